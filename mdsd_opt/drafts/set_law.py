"""Any explicit law over draft sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from numbers import Real
from operator import index
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Flags, Integers, Numbers
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import DraftScheme, Entry, EntryReader, inverse_cdf
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, masses_in_list
from mdsd_opt.errors import InvalidDistribution


class DraftSetLaw(DraftScheme):
    r"""Explicit law over sets: :math:`Q(H) = \sum_{S \subseteq H} m(S)`.

    Parameters
    ----------
    vocab_size : int
        V.
    masses : mapping from collections of token ids to probabilities
        For instance ``{(0, 2): 0.25, (1,): 0.75}``. Keys that name the same set are added up; the
        empty set means that nothing is drafted.
    """

    scheme: ClassVar[str] = "set_law"
    title: ClassVar[str] = "law of sets"
    entries: ClassVar[tuple[str, ...]] = ("vocab_size", "sets", "masses")

    def __init__(self, vocab_size: int, masses: Mapping[Any, Any]) -> None:
        self.vocab_size = checked_integer(vocab_size, "vocab_size")
        merged: dict[tuple[int, ...], Any] = {}
        for key, mass in _checked_masses(masses).items():
            members = _members(key)
            if members and (members[0] < 0 or members[-1] >= self.vocab_size):
                raise InvalidDistribution(
                    f"draft set {tuple(key)} names a token outside 0..{self.vocab_size - 1}"
                )
            merged[members] = merged[members] + mass if members in merged else mass
        self._sets = list(merged)
        self._law = Distribution.of(list(merged.values()), "the masses of the draft sets")
        self.num_drafts = max(1, *(len(s) for s in self._sets))

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        return {
            "scheme": self.scheme,
            "vocab_size": self.vocab_size,
            "sets": [list(members) for members in self._sets],
            "masses": written(self._law),
        }

    @classmethod
    def from_entry(cls, entry: EntryReader) -> DraftSetLaw:
        vocab_size = entry["vocab_size"].integer()
        sets = [x.tokens() for x in entry["sets"].items()]
        masses = entry["masses"].vector()
        if len(sets) != len(masses):
            raise entry.error(f"has {len(sets)} sets and {len(masses)} masses")
        if len(set(sets)) < len(sets):
            raise entry["sets"].error("lists one set twice: add up its masses")
        return cls(vocab_size, dict(zip(sets, masses, strict=True)))

    @cached_property
    def _masses(self) -> Numbers:
        return self._law.numbers(self.exact)

    def in_fractions(self) -> DraftSetLaw:
        return self._with_fractions()

    @cached_property
    def possible_sets(self) -> frozenset[tuple[int, ...]]:
        """Sets of positive mass, tokens ascending."""
        pairs = zip(self._sets, self._law.values.tolist(), strict=True)
        return frozenset(members for members, mass in pairs if mass > 0)

    def _held(self, subset: Flags) -> list[int]:
        return [s for s, members in enumerate(self._sets) if subset[list(members)].all()]

    def _containment(self, subset: Flags) -> Any:
        return min(self._masses[self._held(subset)].sum(), 1)

    def prefix_containment(self, order: Integers) -> Numbers:
        """Containment Q of prefixes: a set counts from the place of its last token on."""
        place = np.full(self.vocab_size, order.size + 1, dtype=np.int64)
        place[order] = np.arange(1, order.size + 1)
        tokens, starts, empty = self._flat_sets
        last = np.zeros(len(self._sets), dtype=np.int64)
        if tokens.size:
            last[~empty] = np.maximum.reduceat(place[tokens], starts[~empty])
        arrived = self.zeros(order.size + 2)
        np.add.at(arrived, last, self._masses)
        return np.minimum(np.cumsum(arrived[: order.size + 1]), 1)

    @cached_property
    def _flat_sets(self) -> tuple[Integers, Integers, Flags]:
        """Tokens of all sets, the start of each set, and flags of empty sets."""
        sizes = np.array([len(s) for s in self._sets])
        tokens = np.array([i for s in self._sets for i in s], dtype=np.int64)
        return tokens, np.cumsum(sizes) - sizes, sizes == 0

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        padded = np.full((len(self._sets), self.num_drafts), -1, dtype=np.int64)
        for row, members in zip(padded, self._sets, strict=True):
            row[: len(members)] = members
        return padded[inverse_cdf(self._law.values, rng, (size,))]

    def is_possible(self, tokens: Integers) -> bool:
        return tuple(np.unique(tokens[tokens >= 0]).tolist()) in self.possible_sets

    def _draws(self, tokens: Integers) -> bool:
        drawn = tokens[: np.count_nonzero(tokens >= 0)]
        ascends = bool((np.diff(drawn, prepend=-1) > 0).all())
        return ascends and self.is_possible(tokens)

    def as_listed(self, tuples: Integers) -> Integers:
        """Tuples with the tokens of each set ascending, padding last."""
        last = np.iinfo(np.int64).max
        rows = np.sort(np.where(tuples < 0, last, tuples), axis=1)
        return np.where(rows == last, -1, rows)

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        """Intervals of one choice, of the set, which may be listed in any order."""
        law = self.support_law()
        place = {members: n for n, members in enumerate(law.sets())}
        chosen = [place.get(tuple(sorted(row[row >= 0].tolist())), -1) for row in tuples]
        return masses_in_list(law.mass, chosen)

    def count_supports(self) -> tuple[int, int]:
        return len(self._sets), sum(len(s) for s in self._sets)

    def support_law(self) -> SupportLaw:
        masses = dict(zip(self._sets, self._masses.tolist(), strict=True))
        return SupportLaw.from_sets(self.vocab_size, masses)


def _checked_masses(masses: Any) -> Mapping[Any, Any]:
    if not isinstance(masses, Mapping) or not masses:
        raise InvalidDistribution(
            f"masses is {masses!r:.60}, no draft set given: give {{set of token ids: probability}}"
        )
    for key, mass in masses.items():
        number: Any = mass
        if not (isinstance(mass, Real) and number >= 0):
            raise InvalidDistribution(f"draft set {key!r} has mass {mass!r}: give a probability")
    return masses


def _members(key: Any) -> tuple[int, ...]:
    """A key as ascending token ids."""
    try:
        return tuple(sorted({index(i) for i in key}))
    except TypeError as error:
        raise InvalidDistribution(
            f"draft set {key!r} is not a collection of integer token ids, such as (0, 2)"
        ) from error
