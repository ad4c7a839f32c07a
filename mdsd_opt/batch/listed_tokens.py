r"""Lists of the likeliest tokens, and the subsets H that they leave to look at.

Where two laws are half known, the least of 1 + P(H) - Q(H) is found among few subsets. Tokens
are of four kinds: listed on both sides, only the draft's (their p is open), only the target's
(their q is open), on neither side. In whichever way the open masses are chosen, some H of least
1 + P(H) - Q(H) is made of

- a prefix of the tokens listed on both sides, ordered by p/q (the prefix theorem), and
- a prefix of one sequence of all others: the draft's tokens, the largest q first; the tokens on
  neither side; the target's tokens, the smallest p first.

For a token that only the draft lists has at least the q of any that it does not list, and its p
counts no more than theirs; a token that only the target lists costs at least the p of any that it
does not list, and its q counts as theirs: exchanging one for the other in H never makes it worse.
Proofs: docs/theory/unknown-tails.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import SUM_TOLERANCE
from mdsd_opt.errors import InvalidDistribution, InvalidInput

#: By how much the mass of the tokens that are not listed may exceed what fits beside the others:
#: logarithms of probabilities come in 32 bits.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Listed:
    """One side: token -> probability of the likeliest, and what is left for the others.

    None of these has more than the cap, the smallest that is listed; the tail is their mass.
    """

    probabilities: dict[Hashable, float]
    cap: float
    tail: float

    @classmethod
    def of(cls, logprobs: Any, name: str, vocab_size: int | None) -> Listed:
        """Check the list of one side.

        Raises `InvalidInput` for no mapping, an empty one or one of more tokens than there are, and
        `InvalidDistribution` where these are no logarithms of probabilities, or a mass that does
        not fit.
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


Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Subsets:
    """Prefixes of the sequence of half-listed tokens (rows, R) and of common ones (columns, C + 1).

    Attributes
    ----------
    common_p, common_q : ndarray, shape (C,)
        Tokens listed on both sides, by ascending p/q.
    draft_only : ndarray, shape (A,)
        q of the tokens that the draft alone lists, descending; `num_draft_only` of them are in H.
    target_only_mass : ndarray, shape (R,)
        p of the tokens in H that the target alone lists.
    target_open, draft_open : ndarray, shape (R,)
        Tokens in H that the target, the draft does not list; `num_...` those of the vocabulary.
    """

    target: Listed
    draft: Listed
    common_p: Vector
    common_q: Vector
    draft_only: Vector
    num_draft_only: NDArray[np.int64]
    target_only_mass: Vector
    target_open: Vector
    draft_open: Vector
    num_target_open: int
    num_draft_open: int

    @classmethod
    def of(cls, target: Listed, draft: Listed, vocab_size: int | None) -> Subsets:
        """Those of two lists. A vocabulary of unknown size has room for the tails side by side."""
        p, q = target.probabilities, draft.probabilities
        common = [(p[token], q[token]) for token in p.keys() & q.keys()]
        common.sort(key=lambda pair: pair[0] / pair[1] if pair[1] else math.inf)
        draft_only = sorted((q[token] for token in q.keys() - p.keys()), reverse=True)
        target_only = sorted(p[token] for token in p.keys() - q.keys())
        if vocab_size is None:
            neither = target.tokens_of_tail + draft.tokens_of_tail
        else:
            neither = vocab_size - len(common) - len(draft_only) - len(target_only)
        taken = _numbers_taken(neither, target, draft)
        first, last = len(draft_only), len(target_only)
        # One row for each prefix: some draft-only tokens; then tokens on neither side; then all.
        before = np.concatenate([np.arange(first), np.full(len(taken) + last, first)])
        between = np.concatenate([np.zeros(first), taken, np.full(last, float(neither))])
        after = np.concatenate([np.zeros(first + len(taken), np.int64), np.arange(1, last + 1)])
        return cls(
            target,
            draft,
            np.array([pair[0] for pair in common]),
            np.array([pair[1] for pair in common]),
            np.array(draft_only, dtype=np.float64),
            before,
            np.concatenate([[0.0], np.cumsum(target_only)])[after],
            before + between,
            between + after,
            first + neither,
            last + neither,
        )

    def target_mass(self, most: bool) -> Vector:
        """The largest or smallest p of H without its common tokens, shape (R,)."""
        open_mass = _open_mass(self.target, self.target_open, self.num_target_open, most)
        return self.target_only_mass + open_mass

    def draft_open_mass(self, most: bool) -> Vector:
        """The largest or smallest q of the tokens in H that the draft does not list, shape (R,)."""
        return _open_mass(self.draft, self.draft_open, self.num_draft_open, most)

    def rows(self, chosen: NDArray[np.bool_]) -> Subsets:
        """Some of the rows alone."""
        return replace(
            self,
            num_draft_only=self.num_draft_only[chosen],
            target_only_mass=self.target_only_mass[chosen],
            target_open=self.target_open[chosen],
            draft_open=self.draft_open[chosen],
        )


def _open_mass(side: Listed, inside: Vector, everywhere: int, most: bool) -> Vector:
    """The largest or smallest mass of `inside` tokens that the side does not list."""
    if most:
        return np.minimum(side.tail, side.cap * inside)
    return np.maximum(0.0, side.tail - side.cap * (everywhere - inside))


def _numbers_taken(neither: int, target: Listed, draft: Listed) -> list[float]:
    """How many tokens that no side lists H has where it has the least value, some of them.

    Between these numbers the value is monotone or concave.
    """
    full = [neither - target.tail / target.cap if target.cap else neither,
            draft.tail / draft.cap if draft.cap else 0.0]  # fmt: skip
    numbers = {0, neither} | {int(f(x)) for x in full for f in (math.floor, math.ceil)}
    return [float(min(max(x, 0), neither)) for x in sorted(numbers) if 0 <= x <= neither]
