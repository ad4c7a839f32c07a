"""The search for the best prefix: buckets are opened until the cut is certain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search import ratio_groups_kernels as kernels
from mdsd_opt.prefix_search.containment import Containment, containment_of
from mdsd_opt.prefix_search.random_draws import RandomDraws
from mdsd_opt.prefix_search.ratio_groups import Groups, ratio_keys
from mdsd_opt.prefix_search.sum_kernels import BLOCK

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

#: By how much less than the best cut found some prefix may be better.
CUT_SLACK = 1e-15


class CutSearch:
    """The tokens of one row in groups of p/q, and the cut: the best prefix of them.

    With ``rounds=True`` ratios that are equal but for rounding errors are tied, for up to
    `MAX_TOKENS` tokens. Ties keep ascending token ids.

    Attributes
    ----------
    p, q : ndarray, shape (V,)
        Target and draft.
    groups : Groups
        As far as they have been opened.
    split : int
        Number of groups in the shortest of the best prefixes of groups.
    containment : Containment
        Q, and the buckets with their sums.
    ratio_bounds : tuple of ndarray
        Bounds on the ratios in each bucket.
    is_doubtful : ndarray of bool, shape (NUM_BUCKETS,)
        Buckets that `open` is to open next.
    """

    def __init__(
        self,
        p: Vector,
        draws: RandomDraws,
        rounds: bool = True,
        checks: bool = False,
    ) -> None:
        self.p, self.q = p, draws.q
        self._rounds = rounds
        buckets = np.empty(p.size, np.uint16)
        kernels.fill_buckets(p, draws.q, np.empty(BLOCK), buckets)
        # A decision follows the target whatever its sums lose; a rate shows it.
        self.containment: Containment = containment_of(
            draws, p, buckets, carries=not rounds, checks=checks
        )
        sums_q = self.containment.sums[: kernels.NEVER_DRAFTED, kernels.Q]
        self._num_closed = int(np.count_nonzero(sums_q))
        self._is_open, self.is_doubtful = np.zeros((2, kernels.NUM_BUCKETS), np.bool_)
        self.ratio_bounds = kernels.LOWEST, kernels.HIGHEST
        # The tokens of open buckets in order, with their keys and Q.
        self._keys, self._tokens = np.empty((2, 0), np.int64)
        self._contained = np.empty(0)
        self._arrange()

    def _arrange(self) -> None:
        """Make the groups, and cut."""
        of = self.containment
        self.groups = Groups.with_room(self._num_closed + self._keys.size)
        self.split = kernels.arrange(
            of.sums, of.contained, self._is_open, kernels.EDGES, self.p, self.q, of.buckets,
            self._keys, self._tokens, self._contained, of.exponent, self.groups.table,
            self.groups.ends,
        )  # fmt: skip

    def doubts_cut(self, slack: float) -> bool:
        """Whether a cut better by more than `slack` may lie inside a group; flags these in
        `is_doubtful`.
        """
        return kernels.doubt_cut(
            self.groups.table, self.groups.ends, self.containment.sums, *self.ratio_bounds,
            self.containment.exponent, self.split, slack, self.is_doubtful,
        )  # fmt: skip

    @property
    def difference(self) -> float:
        """P - Q at the cut."""
        return float(self.groups.sums_p[self.split] - self.groups.contained[self.split])

    def subset(self) -> NDArray[np.bool_]:
        """The prefix below the cut, shape (V,)."""
        buckets, tokens = self.groups.buckets[: self.split], self.groups.tokens[: self.split]
        is_inside = np.zeros(kernels.NUM_BUCKETS, np.bool_)
        is_inside[buckets[buckets >= 0]] = True
        subset = is_inside[self.containment.buckets]
        subset[tokens[tokens >= 0]] = True
        return subset

    def narrow(self) -> None:
        """Take the bounds on the ratios in doubtful buckets from their tokens; doubt them anew."""
        self.ratio_bounds = self.ratio_bounds[0].copy(), self.ratio_bounds[1].copy()
        tokens = self._doubtful_tokens()
        kernels.narrow(self.p, self.q, self.containment.buckets, tokens, *self.ratio_bounds)
        self.is_doubtful[:] = False

    def open(self) -> None:
        """Open the doubtful buckets, which are not doubtful any more, and cut anew."""
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
    """The search with buckets opened until no cut is better by more than `CUT_SLACK`.

    With ``checks=True`` a quadrature for Q is a finer one.
    """
    search = CutSearch(p, draws, rounds=False, checks=checks)
    while search.doubts_cut(CUT_SLACK):
        search.narrow()
        if search.doubts_cut(CUT_SLACK):
            search.open()
    return search
