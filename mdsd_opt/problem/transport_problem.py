"""The transport problem: a target and a draft scheme over one vocabulary."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.arrays import Opened, as_logits, checked_token_ids, spread
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, DraftScheme, checked_scheme, require_exact
from mdsd_opt.errors import InvalidInput


class TransportProblem:
    """A target and a draft scheme over one vocabulary.

    Parameters
    ----------
    target : array_like, shape (V,)
        p. Fractions are kept exactly; a sum within 1e-3 of one is renormalised.
    drafts : DraftScheme
        Law of the draft tuple.

    Raises
    ------
    InvalidDistribution
        The target is not a distribution.
    InvalidInput
        Target and drafts have different vocabularies.
    """

    def __init__(self, target: Any, drafts: DraftScheme) -> None:
        if not isinstance(drafts, DraftScheme):  # anything may be given
            raise InvalidInput(
                f"drafts is a {type(drafts).__name__}: give a draft scheme such as "
                "WithReplacement(q, num_drafts)"
            )
        self._target = Distribution.of(target, "target")
        self.drafts = drafts
        if self._target.vocab_size != drafts.vocab_size:
            raise InvalidInput(
                f"the target has {self._target.vocab_size} tokens and the drafts have "
                f"{drafts.vocab_size}: they must share one vocabulary (from_logits pads the "
                "narrower side with pad=True)"
            )

    @classmethod
    def from_logits(
        cls,
        target_logits: Any,
        draft_logits: Any,
        num_drafts: int,
        drafts: str = "with_replacement",
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        pad: bool = False,
        kind: str | None = None,
        draft_token_ids: Any = None,
        *,
        sampling: Sampling | None = None,
        joint: bool = False,
    ) -> TransportProblem:
        """Problem of one position, from the logits of both models.

        Parameters
        ----------
        target_logits, draft_logits : array_like, shape (V,)
        num_drafts : int
            K.
        drafts : str
            "with_replacement", "without_replacement", "greedy" or "top_k".
        temperature, draft_temperature : float
            Temperature of the target and the draft; the draft's is the target's unless given.
        top_k, top_p, min_p, joint : optional
            Applied to each side separately, see `mdsd_opt.Sampling`.
        pad : bool
            Pad the narrower vocabulary with impossible tokens instead of raising.
        kind, draft_token_ids : optional
            As for `mdsd_opt.acceptance_rates`.
        sampling : Sampling, optional
            Temperature and filters in one, in place of the keywords.
        """
        sides = Sampling.of_both(
            temperature, draft_temperature, top_k, top_p, min_p, sampling, joint=joint
        )
        checked_scheme(drafts)
        target, draft = (
            as_logits(Opened.of(side, name), kind).numpy()
            for name, side in (("target_logits", target_logits), ("draft_logits", draft_logits))
        )
        for name, logits in (("target_logits", target), ("draft_logits", draft)):
            if logits.ndim != 1:
                raise InvalidInput(
                    f"{name} has shape {logits.shape}: give one position, shape (V,); "
                    "acceptance_rates takes whole batches"
                )
        if draft_token_ids is not None:
            sizes = draft.size, target.size
            ids = checked_token_ids(draft_token_ids, *sizes, "draft_token_ids")
            draft = spread(draft, ids, target.size)
        elif target.size != draft.size:
            if not pad:
                raise InvalidInput(_unequal_vocabularies(target.size, draft.size))
            width = max(target.size, draft.size)
            target, draft = (spread(x, slice(x.size), width) for x in (target, draft))
        p, q = sides[0].law(target), sides[1].law(draft)
        return cls(p, SINGLE_MODEL_SCHEMES[drafts](q, num_drafts))

    @property
    def target(self) -> Floats:
        """Target p, read-only, shape (V,)."""
        return self._target.values

    @property
    def target_law(self) -> Distribution:
        """Target with the numbers as they were given."""
        return self._target

    @cached_property
    def exact_target(self) -> tuple[Fraction, ...]:
        """Target as given, in Fractions, divided by their sum; `ProblemTooLarge` for too many."""
        require_exact(self.vocab_size)
        return self._target.exact()

    @property
    def vocab_size(self) -> int:
        return self._target.vocab_size

    @property
    def num_drafts(self) -> int:
        return self.drafts.num_drafts

    def cut_value(self, subset: Any) -> float:
        """Bound 1 + P(H) - Q(H) on the acceptance rate, from above, for every subset H."""
        contained = self.drafts.containment(subset)  # checks the subset
        return 1.0 + float(self.target[subset].sum()) - contained

    def exact_cut_value(self, subset: Any) -> Fraction:
        """Same as `cut_value`, in exact arithmetic."""
        target = self.exact_target
        contained = self.drafts.exact_containment(subset)
        return 1 + sum((target[i] for i in np.flatnonzero(subset)), Fraction(0)) - contained

    def __repr__(self) -> str:
        return f"TransportProblem(vocab_size={self.vocab_size}, drafts={self.drafts!r})"


def _unequal_vocabularies(target_size: int, draft_size: int) -> str:
    """Message for two vocabularies of different width."""
    return (
        f"the target has {target_size} tokens and the draft has {draft_size}. If the wider one is "
        "only padded, pad=True (--pad) fills the narrower with impossible tokens; draft_token_ids "
        "tells which tokens the draft has, if they are not the first."
    )
