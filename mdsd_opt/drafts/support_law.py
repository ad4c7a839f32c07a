"""Law of the draft SET, in compressed rows: all that acceptance depends on, and how long it is.

Whether the output is one of the drafts is a question about the set of drafts, not about their
order or multiplicity, so the transport LP needs one constraint for each set ("support"), far fewer
than the V**K ordered tuples.

Sizes of exponential lists are known before anything is listed. Counts end at `COUNTLESS`: the true
ones would have thousands of digits and take as long to compute as a hopeless list takes to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import comb, lgamma, log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Numbers, frozen
from mdsd_opt.errors import ProblemTooLarge


@dataclass(frozen=True, slots=True, eq=False)
class SupportLaw:
    """Draft sets S with their probabilities W_S = Pr({X_1..X_K} = S).

    Attributes
    ----------
    vocab_size : int
    tokens : ndarray of int32, shape (num_arcs,)
        The sets one after another, tokens ascending inside a set.
    offsets : ndarray of int64, shape (num_supports + 1,)
        Set s is ``tokens[offsets[s]:offsets[s + 1]]``.
    mass : ndarray of float64, or of Fractions, shape (num_supports,)
        W_S, positive, in sum one up to rounding.
    """

    vocab_size: int
    tokens: NDArray[np.int32]
    offsets: Integers
    mass: Numbers

    @classmethod
    def from_groups(
        cls, vocab_size: int, groups: Sequence[tuple[NDArray[Any], Numbers]]
    ) -> SupportLaw:
        """Law from groups of equally large sets, each [n, m] tokens and [n] masses; zeros go."""
        positive = [(sets[mass > 0], mass[mass > 0]) for sets, mass in groups]
        sizes = [np.full(len(sets), sets.shape[1], dtype=np.int64) for sets, _ in positive]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
        tokens = np.concatenate([sets.ravel() for sets, _ in positive]).astype(np.int32)
        mass = np.concatenate([mass for _, mass in positive])
        return cls(vocab_size, frozen(tokens), frozen(offsets), frozen(mass))

    @classmethod
    def from_sets(cls, vocab_size: int, masses: Mapping[tuple[int, ...], Any]) -> SupportLaw:
        """Law from ascending tuples of tokens and masses, sorted by size, then in lexical order."""
        groups = []
        for size in sorted({len(members) for members in masses}):
            rows = sorted(members for members in masses if len(members) == size)
            sets = np.array(rows, dtype=np.int64).reshape(len(rows), size)
            groups.append((sets, np.array([masses[members] for members in rows])))
        return cls.from_groups(vocab_size, groups)

    @property
    def num_supports(self) -> int:
        return self.mass.size

    @property
    def num_arcs(self) -> int:
        return self.tokens.size

    @property
    def arc_support(self) -> Integers:
        """Index of each entry's set, shape (num_arcs,)."""
        return np.repeat(np.arange(self.num_supports), np.diff(self.offsets))

    def sets(self) -> Iterator[tuple[int, ...]]:
        """Sets as tuples of ascending token ids."""
        tokens = self.tokens.tolist()
        bounds = self.offsets.tolist()
        for start, stop in pairwise(bounds):
            yield tuple(tokens[start:stop])

    def masses(self) -> dict[tuple[int, ...], Any]:
        """Mass of each set, which is a tuple of ascending token ids."""
        return dict(zip(self.sets(), self.mass.tolist(), strict=True))


def subsets_of_size(num_tokens: int, size: int) -> NDArray[np.int32]:
    """All ascending subsets of range(num_tokens), lexicographic, shape (comb(n, size), size)."""
    if size == 0:
        return np.empty((1, 0), dtype=np.int32)
    sets = np.arange(num_tokens - size + 1, dtype=np.int32)[:, None]
    for column in range(1, size):
        # Append every later token that still leaves room for the columns to come.
        last = sets[:, -1].astype(np.int64)
        choices = num_tokens - size + column - last
        starts = np.cumsum(choices) - choices
        step = np.arange(choices.sum()) - np.repeat(starts, choices)
        appended = (np.repeat(last, choices) + 1 + step).astype(np.int32)
        sets = np.column_stack([np.repeat(sets, choices, axis=0), appended])
    return sets


def all_tuples(num_tokens: int, size: int) -> NDArray[np.int32]:
    """Elements of range(num_tokens) ** size, lexicographic, shape (num_tokens ** size, size)."""
    tuples = np.empty((num_tokens**size, size), dtype=np.int32)
    rest = np.arange(len(tuples))
    for column in reversed(range(size)):
        rest, tuples[:, column] = np.divmod(rest, num_tokens)
    return tuples


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ordered ways to write `total` as a sum of `parts` positive integers."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def multinomial(counts: Sequence[int]) -> int:
    """Coefficient (sum counts)! / prod(counts!)."""
    return prod(comb(total, count) for total, count in zip(accumulate(counts), counts, strict=True))


#: Largest count: larger ones are replaced by it.
COUNTLESS = 10**100

#: Most numbers that a list in floating point, and one in Fractions, may take to compute.
MAX_TERMS = 10**10
MAX_EXACT_TERMS = 10**8

#: Most work on Fractions: their number times the square of their length in bits, and the length
#: that takes as long as all that comes with a shorter one.
MAX_EXACT_WORK = 10**12
_LEAST_BITS = 2_500

#: Most passes of Python over all the sets of one size.
MAX_PASSES = 10**6


def count_choices(num_tokens: int, size: int) -> int:
    """Binomial coefficient: num_tokens choose size."""
    if not 0 <= size <= num_tokens:
        return 0
    logarithm = lgamma(num_tokens + 1) - lgamma(size + 1) - lgamma(num_tokens - size + 1)
    if logarithm > log(COUNTLESS) + 1:
        return COUNTLESS
    return min(comb(num_tokens, size), COUNTLESS)


def count_power(base: int, exponent: int) -> int:
    """Power base ** exponent."""
    if base > 1 and exponent * log(base) > log(COUNTLESS) + 1:
        return COUNTLESS
    return min(base**exponent, COUNTLESS)


def count_arrangements(num_tokens: int, size: int) -> int:
    """Number of ordered ways to draw `size` of the tokens without replacement."""
    count = 1
    for choices in range(num_tokens, num_tokens - size, -1):
        count *= choices
        if count >= COUNTLESS:
            return COUNTLESS
    return count


def count_subsets(num_tokens: int, sizes: Sequence[int]) -> tuple[int, int]:
    """Number of sets of these sizes, and of their elements in total (supports, arcs)."""
    supports = arcs = 0
    for size in sizes:
        supports += (count := count_choices(num_tokens, size))
        arcs += size * count
        if supports >= COUNTLESS:
            return COUNTLESS, COUNTLESS
    return supports, min(arcs, COUNTLESS)


def readable(count: int) -> str:
    """Text of a count in few characters."""
    if count >= COUNTLESS:
        return "over 1e+100"
    return f"{count:,}" if count < 10**15 else f"{float(count):.3g}"


def require_short_powers(masses: Sequence[Fraction], exponent: int) -> None:
    """Raise `ProblemTooLarge` if these powers are too long for arithmetic with Fractions."""
    bits = exponent * max(mass.denominator.bit_length() - 1 for mass in masses)  # none for 0 and 1
    require_exact(len(masses), bits)


def require_exact(count: int, bits: int = 0) -> None:
    """Raise `ProblemTooLarge` if arithmetic with so many Fractions of these bits takes long."""
    if count * max(bits, _LEAST_BITS) ** 2 > MAX_EXACT_WORK:
        raise ProblemTooLarge(
            f"exact arithmetic: {readable(count)} fractions of {readable(bits)} bits are too long "
            "to compute with. Use floating point (exact=False), draft fewer tokens or restrict the "
            "vocabulary (top_k, top_p)."
        )


def require_listable(subject: str, terms: int, limit: int) -> None:
    """Raise `ProblemTooLarge` if a list takes more terms to compute than the limit."""
    if terms > limit:
        raise ProblemTooLarge(
            f"{subject} takes {readable(terms)} terms, over the limit of {limit:,}: draft fewer "
            "tokens or restrict the vocabulary (top_k, top_p). Without a list work "
            "method='subset_selection' (with or without replacement, greedy, top-K), "
            "method='submodular' (draws from different models) and the verifier 'optimal'."
        )
