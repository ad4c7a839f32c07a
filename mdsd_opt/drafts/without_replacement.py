"""K successive draws from one draft model, each from the tokens not drawn yet."""

from __future__ import annotations

from copy import copy
from fractions import Fraction
from functools import cached_property
from itertools import combinations, permutations
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.drafts.inclusion import inclusion_masses
from mdsd_opt.drafts.scheme import Composition, DraftScheme, OneDraft
from mdsd_opt.drafts.support_law import (
    MAX_EXACT_TERMS,
    MAX_PASSES,
    MAX_TERMS,
    SupportLaw,
    all_tuples,
    count_arrangements,
    count_choices,
    count_power,
    count_subsets,
    require_exact,
    require_listable,
    subsets_of_size,
)
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, all_hold, successive_masses_in
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.prefix_search import BatchRates, RandomDraws, without_replacement_rates

#: Bound on the memory of one chunk of exponential clocks or of support masses, in elements.
_CHUNK = 1 << 22

#: Number of draws that are found one after another sooner than by selecting them all at once.
_FEW_DRAFTS = 16

#: Most draft sets listed in exact arithmetic, about a minute each. The sum over them that
#: containment is has a denominator that grows with every one.
_MAX_SUMMED = 15_000
_MAX_LISTED = 400_000

#: Number of terms of the sets' masses that are summed sooner than the race's kernels are loaded.
_FEW_TERMS = 2_000


class WithoutReplacement(OneDraft):
    r"""Successive sampling: :math:`\Pr(x) = \prod_k q(x_k) / (1 - \sum_{l<k} q(x_l))`.

    If at most K tokens have q > 0, exactly these are drafted and `sample` pads with -1.

    Parameters
    ----------
    q : array_like, shape (V,)
        The draft distribution.
    num_drafts : int
        K.

    Notes
    -----
    Q is q-convex, so an optimal subset is a prefix in the order of p/q [Hu25].

    In floating point Q has an absolute error below 1e-12 for K up to 64 and below 1e-9 beyond;
    where it would take more than about ten seconds, or an exact law more than about a minute,
    `ProblemTooLarge` is raised.
    """

    scheme: ClassVar[str] = "without_replacement"
    title: ClassVar[str] = "without replacement"
    composition: ClassVar[Composition] = Composition()
    optimal_kernels: ClassVar[BatchRates] = BatchRates(
        kernel=without_replacement_rates,
        device="without_replacement",
        decides_on_device=True,
    )

    #: Whether Q comes from nodes that serve to check others.
    _is_check = False

    @property
    def beside_fixed(self) -> DraftScheme | None:
        return None if self.drafts_whole_support else self

    @cached_property
    def support(self) -> Integers:
        """Tokens with q > 0."""
        return np.flatnonzero(self.q > 0)

    @property
    def drafts_whole_support(self) -> bool:
        """Whether drafting runs out of tokens, so that the draft set is certain."""
        return self._successive.are_certain

    @property
    def _successive(self) -> RandomDraws:
        assert self.random_draws is not None
        return self.random_draws

    @property
    def _num_drawn(self) -> int:
        """Number of tokens that are drafted: there may be fewer than K."""
        return min(self.num_drafts, self._successive.support_size)

    @property
    def always_drafted(self) -> Integers:
        return self.support if self.drafts_whole_support else super().always_drafted

    def prefix_order(self, masses: Numbers) -> Integers:
        return self.support if self.drafts_whole_support else super().prefix_order(masses)

    def with_finer_quadrature(self) -> WithoutReplacement:
        if self.exact or self.num_drafts <= 2 or self.drafts_whole_support:  # closed forms
            return self
        result = copy(self)
        result._is_check = True
        return result

    def _containment(self, subset: Flags) -> Any:
        return self.prefix_containment(np.flatnonzero(subset))[-1]

    def prefix_containment(self, order: Integers) -> Numbers:
        """Q of every prefix; in Fractions the cost grows like len(order)**(K - 1).

        Raises
        ------
        ProblemTooLarge
            In Fractions it would take more than about a minute.
        """
        if self.drafts_whole_support:  # 1 once all of it is in, else 0
            held = np.concatenate([[0], np.cumsum(np.isin(order, self.support))])
            return self.zeros(held.size) + (held == self.support.size)
        if self.exact:
            return self._contained_exactly(order)
        if self._has_few_sets:
            return self._listed_containment(order)
        return self._prefix_curve(order)[0]

    def prefix_containment_and_slopes(self, order: Integers) -> tuple[Floats, Floats]:
        if self.drafts_whole_support or self._has_few_sets:
            return super().prefix_containment_and_slopes(order)
        return self._prefix_curve(order)

    @property
    def _has_few_sets(self) -> bool:
        return comb(self.support.size, self._num_drawn) << self._num_drawn <= _FEW_TERMS

    def _listed_containment(self, order: Integers) -> Floats:
        """Containment Q of every prefix with few draft sets: each counts from its last token on."""
        place = np.full(self.vocab_size, order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        law = self.support_law()
        complete = np.maximum.reduceat(place[law.tokens], law.offsets[:-1])
        masses = np.bincount(complete, law.mass, order.size + 1)[: order.size]
        return np.minimum(np.concatenate([[0.0], np.cumsum(masses)]), 1.0)

    def prefix_slopes(self, order: Integers) -> Floats:
        if self.drafts_whole_support:
            raise UnsupportedScheme("the whole support is drafted, so Q has no slopes")
        return self._prefix_curve(order)[1]

    def _prefix_curve(self, order: Integers) -> tuple[Floats, Floats]:
        from mdsd_opt.drafts import plackett_luce_kernels as plackett_luce
        from mdsd_opt.prefix_search import race_kernels as race
        from mdsd_opt.prefix_search import require_race

        require_race(order.size, self.num_drafts, self._slowest_rate)
        outside = np.ones(self.vocab_size, dtype=np.bool_)
        outside[order] = False
        t, w = race.race_nodes(
            self._slowest_rate, self.num_drafts, race.FROM_SQUARE, self._is_check
        )
        return plackett_luce.prefix_curve(
            self.q[order], float(self.q[outside].sum()), self.num_drafts, t, w
        )

    @cached_property
    def _slowest_rate(self) -> float:
        from mdsd_opt.drafts import plackett_luce_kernels as plackett_luce

        return plackett_luce.rates_left(self.q, self.num_drafts)

    def _contained_exactly(self, order: Integers) -> Numbers:
        q, tokens = self.q, order.tolist()
        possible = sum(q[i] > 0 for i in tokens)
        sets, _ = count_subsets(possible, range(1, min(self.num_drafts - 1, possible) + 1))
        require_listable(f"exact containment of {self!r}", sets, _MAX_SUMMED)
        # Denominators of their sum share most of their factors.
        require_exact(sets, sets * max(x.denominator.bit_length() for x in q) // 8)
        law = _ExactSetLaw(q)
        outside = Fraction(1)
        # escaped: sum over A in the prefix, |A| < K, of Pr(the first |A| draws are A) / (1 - q(A)),
        # so that 1 - Q = q(outside) * escaped.
        escaped = Fraction(1)
        result = self.zeros(order.size + 1)
        drawn: list[int] = []
        for place, i in enumerate(tokens, start=1):
            outside -= q[i]
            if q[i] > 0:
                for size in range(self.num_drafts - 1):
                    for rest in combinations(drawn, size):
                        members = frozenset((*rest, i))
                        escaped += law.mass(members) / law.remaining(members)
                drawn.append(i)
            result[place] = 1 - outside * escaped
        return result

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        """First K arrivals of a race of exponential clocks with rates q."""
        drafted = self._num_drawn
        result = np.full((size, self.num_drafts), -1, dtype=np.int64)
        rates = self.q[self.support]
        rows = max(1, _CHUNK // rates.size)
        for start in range(0, size, rows):
            stop = min(start + rows, size)
            clocks = rng.standard_exponential((stop - start, rates.size))
            clocks /= rates
            if drafted <= _FEW_DRAFTS:
                for k in range(drafted):
                    first = clocks.argmin(axis=1)
                    result[start:stop, k] = self.support[first]
                    clocks[np.arange(stop - start), first] = np.inf
                continue
            if drafted < rates.size:
                first = np.argpartition(clocks, drafted - 1, axis=1)[:, :drafted]
            else:
                first = np.broadcast_to(np.arange(drafted), (stop - start, drafted))
            by_time = np.argsort(np.take_along_axis(clocks, first, axis=1), axis=1)
            result[start:stop, :drafted] = self.support[np.take_along_axis(first, by_time, axis=1)]
        return result

    def next_law(self, earlier: Integers) -> Floats:
        law = np.zeros(self.vocab_size)
        if earlier.size < self.num_drafts:
            law[:] = self.q
            law[earlier] = 0.0
            rest = law.sum()  # as a sum of what is left, not as 1 - q(earlier)
            law /= rest if rest > 0 else 1.0
        return law

    def is_possible(self, tokens: Integers) -> bool:
        size = self._num_drawn
        drawn = tokens[:size]
        if (tokens[size:] != -1).any() or (drawn < 0).any() or np.unique(drawn).size != size:
            return False
        return bool((self.q[drawn] > 0).all())

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        drawn = self._num_drawn
        intervals = UniformIntervals.of_choices(*successive_masses_in(self.q, tuples[:, :drawn]))
        return intervals.where(all_hold(tuples[:, drawn:] == -1))

    def independent_places(self) -> list[tuple[list[int], Floats]]:
        return [([0], self.q)]

    def drafted_mass(self, p: Floats) -> float:
        return inclusion_masses(self.q, p, [self.num_drafts])[0]

    def count_supports(self) -> tuple[int, int]:
        return count_subsets(self.support.size, [self._num_drawn])

    def require_listable(self) -> None:
        """Raise if the recursion of every draft set over its own subsets takes too many steps."""
        if self.drafts_whole_support:
            return
        if self.exact:
            sets, _ = count_subsets(self.support.size, range(1, self.num_drafts + 1))
            require_listable(f"the exact draft law of {self!r}", sets, _MAX_LISTED)
            return
        passes = self.num_drafts * count_power(2, self.num_drafts)
        terms = passes * count_choices(self.support.size, self.num_drafts)
        subject = f"listing the draft sets of {self!r}"
        require_listable(subject, terms, MAX_TERMS)
        require_listable(subject, passes, MAX_PASSES)

    def support_law(self) -> SupportLaw:
        self.require_listable()
        size = self._num_drawn
        if self.drafts_whole_support:
            certain = self.support[None, :], self.zeros(1) + 1
            return SupportLaw.from_groups(self.vocab_size, [certain])
        ranks = subsets_of_size(self.support.size, size)
        if self.exact:
            law, sets = _ExactSetLaw(self.q), self.support[ranks]
            masses = np.array([law.mass(frozenset(x)) for x in sets.tolist()], dtype=object)
            return SupportLaw.from_groups(self.vocab_size, [(sets, masses)])
        remaining = _RemainingMass(self.q[self.support], size)
        mass = np.empty(len(ranks))
        rows = max(1, _CHUNK >> size)
        for start in range(0, len(ranks), rows):
            mass[start : start + rows] = _set_masses(ranks[start : start + rows], remaining)
        return SupportLaw.from_groups(self.vocab_size, [(self.support[ranks], mass)])

    def count_tuples(self) -> int:
        return count_power(self.vocab_size, self.num_drafts)

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        if self.drafts_whole_support and not self.exact:  # no difference is small
            tuples, masses = self.law(exact=True).tuple_law()
            return tuples, masses.astype(np.float64)
        tuples = self._listed_tuples()
        remaining = _RemainingMass(self.q, self.num_drafts)
        mass = self.zeros(len(tuples)) + 1
        for k in range(self._num_drawn if self.exact else self.num_drafts):
            drawn = tuples[:, :k]
            fresh = (drawn != tuples[:, k : k + 1]).all(axis=1) & (mass > 0)
            mass[~fresh] = 0
            mass[fresh] *= self.q[tuples[fresh, k]] / remaining(drawn[fresh])
        return tuples, mass

    def _listed_tuples(self) -> NDArray[np.int32]:
        """Tuples that `tuple_law` lists: in Fractions those that can be drawn, else all."""
        size, drawn = self.support.size, self._num_drawn
        count = count_arrangements(size, drawn) if self.exact else self.count_tuples()
        terms = self.num_drafts * count
        require_listable(f"listing the draft tuples of {self!r}", terms, MAX_EXACT_TERMS)
        if not self.exact:
            return all_tuples(self.vocab_size, self.num_drafts)
        tuples = np.full((count, self.num_drafts), -1, dtype=np.int32)
        tuples[:, :drawn] = list(permutations(self.support.tolist(), drawn))
        return tuples


class _RemainingMass:
    """Mass 1 - q(drawn) for fewer than K drawn tokens, with no cancellation.

    Split q into the K-1 largest tokens and a tail. A drawn tail token leaves an undrawn top token
    that is at least as large, so subtracting it from the tail loses nothing of the result.
    """

    def __init__(self, q: Numbers, num_drafts: int) -> None:
        by_size = np.argsort(-q, kind="stable")
        self.q = q
        self.top = by_size[: num_drafts - 1]
        self.in_top = np.zeros(q.size, dtype=np.bool_)
        self.in_top[self.top] = True
        self.tail = q[by_size[num_drafts - 1 :][::-1]].sum()

    def __call__(self, drawn: NDArray[Any]) -> Numbers:
        """Masses without the drawn tokens, indices of shape (n, k), distinct in each row."""
        rest = np.full(len(drawn), self.tail, dtype=self.q.dtype)
        for column in drawn.T:
            rest -= np.where(self.in_top[column], 0, self.q[column])
        rest = np.maximum(rest, 0)
        for token in self.top:
            rest += np.where((drawn == token).any(axis=1), 0, self.q[token])
        return rest


def _set_masses(sets: NDArray[np.int32], remaining: _RemainingMass) -> Floats:
    """Probability that the draws are this set, in any order, by recursion over subsets, (n,)."""
    size = sets.shape[1]
    mass: dict[int, Floats] = {0: np.ones(len(sets))}
    for members in sorted(range(1, 1 << size), key=int.bit_count):
        mass[members] = np.zeros(len(sets))
    for drawn in sorted(range((1 << size) - 1), key=int.bit_count):
        columns = [k for k in range(size) if drawn >> k & 1]
        share = mass.pop(drawn) / remaining(sets[:, columns])
        for k in range(size):
            if not drawn >> k & 1:
                mass[drawn | 1 << k] += share * remaining.q[sets[:, k]]
    return mass[(1 << size) - 1]


class _ExactSetLaw:
    """Probability that the first |A| draws are A, in Fractions, memoised over subsets."""

    def __init__(self, q: Numbers) -> None:
        self.q = q
        self._mass: dict[frozenset[int], Fraction] = {frozenset(): Fraction(1)}

    def remaining(self, members: frozenset[int]) -> Fraction:
        return 1 - sum((self.q[i] for i in members), Fraction(0))

    def mass(self, members: frozenset[int]) -> Fraction:
        if members not in self._mass:
            self._mass[members] = sum(
                (
                    self.mass(members - {last}) * self.q[last] / self.remaining(members - {last})
                    for last in members
                ),
                Fraction(0),
            )
        return self._mass[members]
