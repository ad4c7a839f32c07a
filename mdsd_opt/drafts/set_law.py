"""Your own laws: over draft sets, or of the next draft, given those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from numbers import Real
from operator import index
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.foreign import foreign
from mdsd_opt.drafts.scheme import DraftScheme, Entry, EntryReader, SingleModelDrafts, inverse_cdf
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, masses_in_list
from mdsd_opt.errors import InvalidDistribution, ProblemTooLarge


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


#: ``next_law(q, earlier)``: q, shape (V,), and the k drafts before, in draw order, shape (k,) ->
#: probabilities of the next draft, shape (V,). What is missing to a sum of one is the probability
#: that drafting ends here.
NextLaw = Callable[[NDArray[np.float64], NDArray[np.int64]], Any]

#: Most draft tuples that are listed.
_MAX_TUPLES = 200_000

#: Largest excess over one of a sum of probabilities.
_ROUNDING = 1e-9


class SequentialDrafts(SingleModelDrafts):
    r"""K drafts, one after another: :math:`\Pr(x) = \prod_k r(x_k \mid q, x_1..x_{k-1})`.

    The base of schemes that `mdsd_opt.drafts.register` makes of a function r. All tuples are
    listed, so that r must leave few tokens or K be small.

    Parameters
    ----------
    q : array_like, shape (V,)
        The draft distribution.
    num_drafts : int
        K.

    Attributes
    ----------
    sets : DraftSetLaw
        The law of the draft set.

    Raises
    ------
    InvalidDistribution
        r gives something else than probabilities.
    ProblemTooLarge
        There are more than 200,000 draft tuples.
    """

    rule: ClassVar[NextLaw]

    @foreign("the function of a draft scheme")
    def __init__(self, q: Any, num_drafts: int) -> None:
        super().__init__(q, num_drafts)
        count, size = self.num_drafts, self.vocab_size
        ended: dict[tuple[int, ...], float] = {}
        going: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(count):
            longer: dict[tuple[int, ...], float] = {}
            for earlier, mass in going.items():
                law = self._law_after(np.array(earlier, dtype=np.int64), size)
                rest = 1.0 - float(law.sum())
                if rest > _ROUNDING:
                    ended[earlier] = mass * rest
                possible = np.flatnonzero(law)
                if len(longer) + possible.size > _MAX_TUPLES:
                    raise ProblemTooLarge(
                        f"{self.scheme!r} drafts at K = {count} have more than {_MAX_TUPLES:,} "
                        "tuples, which would all be listed: take fewer drafts, or top_k"
                    )
                for token, share in zip(possible.tolist(), law[possible].tolist(), strict=True):
                    longer[(*earlier, token)] = mass * share
            going = longer
        self._tuples = {**ended, **going}
        masses: dict[tuple[int, ...], float] = {}
        for drafts, mass in self._tuples.items():
            members = tuple(sorted(set(drafts)))
            masses[members] = masses.get(members, 0.0) + mass
        self.sets = DraftSetLaw(size, masses)

    def _law_after(self, earlier: Integers, size: int) -> Floats:
        try:
            law = np.asarray(type(self).rule(self.q, earlier), dtype=np.float64)
        except Exception as error:  # the rule is not ours: anything may come
            raise InvalidDistribution(
                f"{self.scheme!r} drafts give no law after {earlier.tolist()}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if law.shape != (size,) or not (law >= 0).all() or not law.sum() <= 1 + _ROUNDING:
            raise InvalidDistribution(
                f"{self.scheme!r} drafts give after {earlier.tolist()} no probabilities: return "
                f"an array of shape ({size},), not negative, with a sum of at most one"
            )
        return law

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        tuples, masses = self.tuple_law()
        chosen = rng.choice(len(masses), size=size, p=masses / masses.sum())
        return tuples[chosen].astype(np.int64)

    def next_law(self, earlier: Integers) -> Floats:
        if earlier.size >= self.num_drafts:
            return np.zeros(self.vocab_size)
        return self._law_after(earlier, self.vocab_size)

    def _containment(self, subset: Flags) -> Any:
        return self.sets.containment(subset)

    def prefix_containment(self, order: Integers) -> Numbers:
        return self.sets.prefix_containment(order)

    def count_supports(self) -> tuple[int, int]:
        return self.sets.count_supports()

    def support_law(self) -> SupportLaw:
        return self.sets.support_law()

    def count_tuples(self) -> int:
        return len(self._tuples)

    def in_fractions(self) -> SequentialDrafts:
        return self._with_fractions(sets=self.sets.law(exact=True))

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        if self.exact:  # of the sets: they are added up from rounded numbers
            return super().tuple_law()
        tuples = np.full((len(self._tuples), self.num_drafts), -1, dtype=np.int32)
        for row, drafts in zip(tuples, self._tuples, strict=True):
            row[: len(drafts)] = drafts
        return tuples, np.array(list(self._tuples.values()))

    def __repr__(self) -> str:
        return (
            f"RegisteredDrafts({self.scheme!r}, vocab_size={self.vocab_size}, "
            f"num_drafts={self.num_drafts})"
        )
