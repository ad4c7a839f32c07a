"""Groups of drafted tokens in ascending order of p/q, with the sums over their prefixes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search import ratio_groups_kernels as kernels

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


def ratio_keys(p: Vector, q: Vector, tokens: Integers, packed: bool) -> Integers:
    """Integers in the order of p/q of some tokens; q > 0 there.

    Packed keys sort by p/q, rounded, and then by token, of up to `MAX_TOKENS`.
    """
    keys = np.empty(tokens.size, np.int64)
    kernels.ratio_keys(p, q, tokens, packed, keys)
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Disjoint groups of drafted tokens, in ascending order of p/q.

    Attributes
    ----------
    table : ndarray of int64, shape (3, n)
        `keys`, `buckets` and `tokens`.
    ends : ndarray, shape (4, n + 1)
        `sums_p`, `sums_q`, `contained` and `ratios`.
    """

    table: Integers
    ends: NDArray[np.float64]

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
        """P of the prefixes, shape (n + 1,)."""
        return self.ends[kernels.P]

    @property
    def sums_q(self) -> Vector:
        """q of the prefixes, shape (n + 1,)."""
        return self.ends[kernels.Q]

    @property
    def contained(self) -> Vector:
        """Q of the prefixes, shape (n + 1,)."""
        return self.ends[kernels.CONTAINED]

    @property
    def ratios(self) -> Vector:
        """p/q of every group, never out of order, however little of it shows in the sums, (n,)."""
        return self.ends[kernels.RATIO, :-1]

    def places(self, keys: Integers) -> Integers:
        """Groups in which the tokens of these keys are."""
        return self.keys.searchsorted(keys, side="right") - 1
