"""Law of the draft SET, in compressed rows: all that acceptance depends on.

Whether the output is one of the drafts is a question about the set of drafts, not about their
order or multiplicity, so the transport LP needs one constraint for each set ("support"), far fewer
than the V**K ordered tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Numbers
from mdsd_opt.base.arrays import frozen


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
