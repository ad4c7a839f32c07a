"""Sampling of probabilities from logits: temperature and filters, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.distributions import check_sampling_parameters, softmax


@dataclass(frozen=True, slots=True)
class Sampling:
    r"""Parameters of :math:`p_i \propto \exp(\ell_i / T)`, with filters.

    Parameters
    ----------
    temperature : float
        T; 0 gives the one-hot of the largest logit.
    top_k : int, optional
        Keep the `top_k` likeliest tokens, and those tied with the last of them; all for 0 and -1,
        which are kept as None.
    top_p : float, optional
        Keep the fewest likeliest tokens that together hold at least `top_p`, and ties.
    min_p : float, optional
        Keep tokens with at least `min_p` times the largest probability.

    Raises
    ------
    InvalidInput
        A parameter is out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        check_sampling_parameters(self.temperature, self.top_k, self.top_p, self.min_p)
        if self.top_k is not None and self.top_k <= 0:  # "off", as engines write it
            object.__setattr__(self, "top_k", None)

    @classmethod
    def of_both(
        cls,
        temperature: float,
        draft_temperature: float | None,
        top_k: int | None,
        top_p: float | None,
        min_p: float | None,
    ) -> tuple[Sampling, Sampling]:
        """Sampling of the target, and of the draft, whose temperature is the same unless given."""
        target = cls(temperature, top_k, top_p, min_p)
        if draft_temperature is None:
            return target, target
        return target, replace(target, temperature=draft_temperature)

    @property
    def masks_tokens(self) -> bool:
        """Whether tokens are filtered out, so that scaling the logits is not enough."""
        filters = (self.top_k, self.top_p, self.min_p)
        return self.temperature == 0 or any(value is not None for value in filters)

    @property
    def scale(self) -> float:
        """Scale log2(e) / T, finite for every T."""
        if self.temperature == 0:  # one token is left: any scale will do
            return 1.0
        return math.log2(math.e) / max(float(self.temperature), 1e-300)

    def law(self, logits: Floats) -> Floats:
        """Probabilities of every row of logits."""
        return softmax(logits, self.temperature, self.top_k, self.top_p, self.min_p)
