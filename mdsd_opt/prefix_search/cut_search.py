r"""Search for the best prefix, which opens buckets until the cut is certain, and bounds.

Any subset H bounds the optimum from above by 1 + P(H) - Q(H). A selection marginal x with
:math:`x(G) \ge Q(G) - d` on every prefix G in order of x/q bounds it from below by
:math:`\sum_i \min(p_i, x_i) - d`; the least x(G) - Q(G) is what the search finds with x in place of
the target. Where Q is a quadrature, it is evaluated a second time from other, finer nodes, with
other tokens added one at a time, and bounds are widened by what the two differ by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Keys, Matrix, Vector
from mdsd_opt.prefix_search import ratio_groups_kernels as kernels
from mdsd_opt.prefix_search.race import race_sums_of_row
from mdsd_opt.prefix_search.random_draws import RandomDraws, require_race
from mdsd_opt.prefix_search.ratio_groups_kernels import NUM_BUCKETS, P, Q
from mdsd_opt.prefix_search.sum_kernels import BLOCK, accurate_sum

#: Most by which some prefix may be better than the best cut found.
CUT_SLACK = 1e-15


def ratio_keys(p: Vector, q: Vector, tokens: Integers, packed: bool) -> Integers:
    """Integers in the order of p/q of some tokens; q > 0 there.

    Packed keys sort by p/q, rounded, and then by token, of up to `MAX_TOKENS`.
    """
    keys = np.empty(tokens.size, np.int64)
    kernels.ratio_keys(p, q, tokens, packed, keys)
    return keys


def ratio_buckets(p: Vector, q: Vector) -> Keys:
    """Bucket of every token, shape (V,)."""
    buckets = np.empty(p.size, np.uint16)
    kernels.fill_buckets(p, q, *kernels.SCALE, np.empty(BLOCK), buckets)
    return buckets


def bucket_sums(p: Vector, q: Vector, buckets: Keys, carries: bool = False) -> Matrix:
    """Sums of p and of q over every bucket, shape (NUM_BUCKETS, 2)."""
    sums = np.empty((NUM_BUCKETS, 2))
    kernels.sum_buckets(p, q, buckets, np.empty((NUM_BUCKETS if carries else 0, 2)), sums)
    return sums


class Containment:
    """Containment Q of the prefixes of one row, by the buckets of its tokens.

    With replacement Q(H) = q(H)^K; without, all of the first K clocks to ring lie in H. `buckets`,
    shape (V,), holds the bucket of every token, `sums`, shape (NUM_BUCKETS, 2), the sums of p and
    of q over every bucket, `contained`, shape (NUM_BUCKETS,), Q at the end of every bucket, which
    means nothing where Q is a power: q^K with K = `exponent`, else 0. `slack` is what rounding may
    feign of P - Q.

    With ``opens=False`` no bucket is to be opened; with ``carries=True`` the sums over buckets lose
    next to nothing; with ``checks=True`` a quadrature is a finer one. Raises `ProblemTooLarge`
    where a race is of too many drafts for so many tokens.
    """

    def __init__(
        self,
        draws: RandomDraws,
        p: Vector,
        buckets: Keys,
        *,
        opens: bool = True,
        carries: bool = False,
        checks: bool = False,
    ) -> None:
        self.buckets = buckets
        self.contained = np.zeros(NUM_BUCKETS)
        self.exponent = draws.num_drafts if draws.is_replaced else 0
        self.slack = 1e-15 if draws.is_replaced else 2e-13
        if draws.is_replaced or carries:
            self.sums = bucket_sums(p, draws.q, buckets, carries)
        if not draws.is_replaced:
            self._run_race(draws, p, opens, carries, checks)

    def _run_race(
        self, draws: RandomDraws, p: Vector, opens: bool, carries: bool, checks: bool
    ) -> None:
        self._draws, most = draws, draws.num_drafts
        require_race(draws.support_size, most, 1.0)  # before anything takes time
        race = race_sums_of_row(draws.q, self.buckets, most, NUM_BUCKETS, p, checks)
        require_race(draws.support_size, most, race.slowest)
        if not carries:
            self.sums = race.moments[:, [P, Q]]
        self._curve = race.curve(self.sums, np.array([most]), keeps=opens, checks=checks)
        self.contained[:-1] = self._curve.contained[1:, 0]

    def at(self, tokens: Integers) -> Vector:
        """Values of Q at the tokens of opened buckets, given in order; each is asked for once."""
        if self.exponent > 0:  # it is known from q
            return np.zeros(tokens.size)
        return self._curve.at(tokens, self.buckets, self._draws.q, self._draws.num_drafts)


def contained_in(draws: RandomDraws, subset: Flags, checks: bool = False) -> float:
    """Containment Q of any subset: its tokens share the first bucket, and the others the last."""
    buckets = np.where(subset, np.uint16(0), np.uint16(kernels.NEVER_DRAFTED))
    containment = Containment(draws, draws.q, buckets, opens=False, carries=True, checks=checks)
    if containment.exponent > 0:
        return min(float(containment.sums[0, Q]), 1.0) ** containment.exponent
    return float(containment.contained[0])


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Disjoint groups of drafted tokens, in ascending order of p/q.

    The rows of `table`, shape (3, n), are `keys`, `buckets` and `tokens`; those of `ends`, shape
    (4, n + 1), `sums_p`, `sums_q`, `contained` and `ratios`.
    """

    table: Integers
    ends: Floats

    @staticmethod
    def with_room(count: int) -> Groups:
        return Groups(np.empty((3, count), np.int64), np.empty((4, count + 1)))

    @property
    def keys(self) -> Integers:
        """Key of a single token, or the least key that its bucket could hold, shape (n,)."""
        return self.table[kernels.KEY]

    @property
    def buckets(self) -> Integers:
        """Bucket of a closed group; ~bucket (negative) for a single token."""
        return self.table[kernels.BUCKET]

    @property
    def tokens(self) -> Integers:
        """Token of a group that is just one; -1 for a closed group."""
        return self.table[kernels.TOKEN]

    @property
    def sums_p(self) -> Vector:
        """Masses P of the prefixes, shape (n + 1,)."""
        return self.ends[kernels.P]

    @property
    def sums_q(self) -> Vector:
        """Masses q of the prefixes, shape (n + 1,)."""
        return self.ends[kernels.Q]

    @property
    def contained(self) -> Vector:
        """Containment Q of the prefixes, shape (n + 1,)."""
        return self.ends[kernels.CONTAINED]

    @property
    def ratios(self) -> Vector:
        """Ratio p/q of every group, always in order, even if too small for the sums, (n,)."""
        return self.ends[kernels.RATIO, :-1]

    def places(self, keys: Integers) -> Integers:
        """Groups in which the tokens of these keys are."""
        return self.keys.searchsorted(keys, side="right") - 1


class CutSearch:
    """The tokens of one row in groups of p/q, and the cut: the best prefix of them.

    With ``rounds=True`` ratios that are equal but for rounding errors are tied, for up to
    `MAX_TOKENS` tokens. Ties keep ascending token ids. `groups` are as far as they have been
    opened, `split` is the number of them in the shortest of their best prefixes, `ratio_bounds` are
    bounds on the ratios in each bucket, and `is_doubtful`, shape (NUM_BUCKETS,), marks those that
    `open` is to open next.
    """

    def __init__(
        self, p: Vector, draws: RandomDraws, rounds: bool = True, checks: bool = False
    ) -> None:
        self.p, self.q = p, draws.q
        self._rounds = rounds
        buckets = ratio_buckets(p, draws.q)
        # A decision follows the target whatever its sums lose; a rate shows it.
        self.containment = Containment(draws, p, buckets, carries=not rounds, checks=checks)
        sums_q = self.containment.sums[: kernels.NEVER_DRAFTED, kernels.Q]
        self._num_closed = int(np.count_nonzero(sums_q))
        self._is_open, self.is_doubtful = np.zeros((2, NUM_BUCKETS), np.bool_)
        self.ratio_bounds = kernels.LOWEST, kernels.HIGHEST
        # The tokens of open buckets in order, with their keys and Q.
        self._keys, self._tokens = np.empty((2, 0), np.int64)
        self._contained = np.empty(0)
        self._arrange()

    def _arrange(self) -> None:
        """Make the groups, and find the cut."""
        of = self.containment
        self.groups = Groups.with_room(self._num_closed + self._keys.size)
        self.split = kernels.arrange(
            of.sums, of.contained, self._is_open, kernels.EDGES, self.p, self.q, of.buckets,
            self._keys, self._tokens, self._contained, of.exponent, self.groups.table,
            self.groups.ends,
        )  # fmt: skip

    def doubts_cut(self, slack: float) -> bool:
        """Whether a cut better by more than `slack` may lie inside a group; flags such groups."""
        return kernels.doubt_cut(
            self.groups.table, self.groups.ends, self.containment.sums, *self.ratio_bounds,
            self.containment.exponent, self.split, slack, self.is_doubtful,
        )  # fmt: skip

    @property
    def difference(self) -> float:
        """Difference P - Q at the cut."""
        return float(self.groups.sums_p[self.split] - self.groups.contained[self.split])

    def subset(self) -> Flags:
        """Prefix below the cut, shape (V,)."""
        buckets, tokens = self.groups.buckets[: self.split], self.groups.tokens[: self.split]
        is_inside = np.zeros(NUM_BUCKETS, np.bool_)
        is_inside[buckets[buckets >= 0]] = True
        subset = is_inside[self.containment.buckets]
        subset[tokens[tokens >= 0]] = True
        return subset

    def narrow(self) -> None:
        """Compute bounds on the ratios in doubtful buckets from their tokens; doubt them anew."""
        self.ratio_bounds = self.ratio_bounds[0].copy(), self.ratio_bounds[1].copy()
        tokens = self._doubtful_tokens()
        kernels.narrow(self.p, self.q, self.containment.buckets, tokens, *self.ratio_bounds)
        self.is_doubtful[:] = False

    def open(self) -> None:
        """Open the doubtful buckets, which are certain from then on, and find the cut anew."""
        keys, tokens = self._doubtful_keys()
        contained = self.containment.at(tokens)
        if self._keys.size > 0:
            keys = np.concatenate((self._keys, keys))
            order = keys.argsort(kind="stable")
            keys = keys[order]
            tokens = np.concatenate((self._tokens, tokens))[order]
            contained = np.concatenate((self._contained, contained))[order]
        self._keys, self._tokens, self._contained = keys, tokens, contained
        self._num_closed -= int(np.count_nonzero(self.is_doubtful))
        self._is_open |= self.is_doubtful
        self.is_doubtful[:] = False
        self._arrange()

    def _doubtful_tokens(self) -> NDArray[np.int32]:
        """Tokens of the doubtful buckets, ascending."""
        tokens = np.empty(self.p.size + 1, np.int32)
        marks = np.empty(BLOCK, np.uint8)
        count = kernels.open_tokens(self.containment.buckets, self.is_doubtful, marks, tokens)
        return tokens[:count]

    def _doubtful_keys(self) -> tuple[Integers, Integers]:
        """Keys of the tokens in doubtful buckets, in order, and these tokens."""
        tokens = self._doubtful_tokens().astype(np.int64)
        keys = ratio_keys(self.p, self.q, tokens, self._rounds)
        if self._rounds:
            keys.sort()
            return keys, keys & kernels.TOKEN_MASK
        order = keys.argsort(kind="stable")
        return keys[order], tokens[order]


def best_cut(p: Vector, draws: RandomDraws, checks: bool = False) -> CutSearch:
    """Search with buckets opened until no cut is better by more than `CUT_SLACK`.

    With ``checks=True`` a quadrature for Q is a finer one.
    """
    search = CutSearch(p, draws, rounds=False, checks=checks)
    while search.doubts_cut(CUT_SLACK):
        search.narrow()
        if search.doubts_cut(CUT_SLACK):
            search.open()
    return search


def upper_bound(p: Vector, draws: RandomDraws, subset: Flags) -> float:
    """Upper bound 1 + P(H) - Q(H), widened."""
    contained = contained_in(draws, subset)
    doubt = 0.0
    if draws.by_quadrature:
        doubt = abs(contained - contained_in(draws, subset, checks=True))
    return 1.0 + accurate_sum(p[subset]) - contained + doubt


def lower_bound(p: Vector, draws: RandomDraws, x: Vector) -> float:
    """Lower bound: sum of min(p, x), less what x lacks of Q on some prefix and of one; widened."""
    cut = best_cut(x, draws)
    shortfall, doubt = -cut.difference, CUT_SLACK
    if draws.by_quadrature:
        again = best_cut(x, draws, checks=True)
        shortfall = max(shortfall, -again.difference)
        doubt += float(np.abs(cut.containment.contained - again.containment.contained).max())
    imbalance = abs(accurate_sum(x) - 1.0)
    return accurate_sum(np.minimum(p, x)) - shortfall - imbalance - doubt
