"""What a list of the likeliest tokens says of a distribution."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from mdsd_opt.base.distributions import SUM_TOLERANCE
from mdsd_opt.errors import InvalidDistribution, InvalidInput

#: By how much the mass of the tokens that are not listed may exceed what fits beside the others:
#: logarithms of probabilities come in 32 bits.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Listed:
    """One side: the likeliest tokens, and what is left for the others.

    Attributes
    ----------
    probabilities : dict
        Token -> probability.
    cap : float
        The smallest of them: no other token has more.
    tail : float
        Mass of the tokens that are not listed.
    """

    probabilities: dict[Hashable, float]
    cap: float
    tail: float

    @classmethod
    def of(cls, logprobs: Any, name: str, vocab_size: int | None) -> Listed:
        """Check the list of one side.

        Raises
        ------
        InvalidInput
            No mapping, an empty one, or one of more tokens than there are.
        InvalidDistribution
            No logarithms of probabilities, or a mass that does not fit into the vocabulary.
        """
        if not isinstance(logprobs, Mapping) or not logprobs:
            raise InvalidInput(f"{name} is {logprobs!r:.60}: give a mapping token id -> logprob")
        if vocab_size is not None and len(logprobs) > vocab_size:
            raise InvalidInput(
                f"{name} lists {len(logprobs)} tokens, and vocab_size is {vocab_size}"
            )
        probabilities = {}
        for token, logprob in logprobs.items():
            if not isinstance(logprob, (int, float)) or not logprob <= SUM_TOLERANCE:  # NaN, too
                raise InvalidDistribution(
                    f"{name} gives token {token!r} the logprob {logprob!r:.40}: give the "
                    "logarithm of a probability"
                )
            probabilities[token] = math.exp(logprob)
        total = math.fsum(probabilities.values())
        if total > 1 + SUM_TOLERANCE:
            raise InvalidDistribution(f"the probabilities of {name} sum to {total:.6g}, over one")
        complete = len(probabilities) == vocab_size
        if complete and total < 1 - SUM_TOLERANCE:
            raise InvalidDistribution(
                f"{name} lists all {vocab_size} tokens, whose probabilities sum to {total:.6g}"
            )
        if complete or total > 1:
            probabilities = {token: x / total for token, x in probabilities.items()}
            total = 1.0
        cap, tail = min(probabilities.values()), 1.0 - total
        others = math.inf if vocab_size is None else vocab_size - len(probabilities)
        if tail > (cap * others if cap else 0.0) + _ROUNDING:
            raise InvalidDistribution(
                f"{name} leaves {tail:.3g} for {others:,} tokens, none of which may have more than "
                f"the {cap:.3g} of the last one listed. Are these the likeliest tokens?"
            )
        return cls(probabilities, cap, tail if cap else 0.0)

    @property
    def tokens_of_tail(self) -> int:
        """How many tokens it takes at least to hold the tail."""
        return math.ceil(self.tail / self.cap) if self.tail else 0
