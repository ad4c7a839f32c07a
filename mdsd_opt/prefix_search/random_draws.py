"""What the search for the best prefix is about: K draws at random from one law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

#: Draws without replacement up to which the race before every bucket, some MB for each draw, is
#: kept to save a sort.
_MOST_RACED = 32


@dataclass(frozen=True, eq=False)
class RandomDraws:
    """K draws from q, one after another.

    Attributes
    ----------
    q : ndarray, shape (V,)
    num_drafts : int
        K.
    is_replaced : bool
        Whether a token can be drawn twice. If not, each draw is from what those before it left.
    """

    q: NDArray[np.float64]
    num_drafts: int
    is_replaced: bool

    @cached_property
    def support_size(self) -> int:
        """Number of tokens with q > 0."""
        return int(np.count_nonzero(self.q > 0))

    @property
    def are_certain(self) -> bool:
        """Whether draws without replacement run out of tokens, so that all of them are drawn."""
        return not self.is_replaced and self.support_size <= self.num_drafts

    @property
    def by_quadrature(self) -> bool:
        """Whether Q is an integral that is evaluated at nodes, and not a closed form."""
        return not self.is_replaced and self.num_drafts > 2


def is_searched(draws: RandomDraws | None) -> TypeGuard[RandomDraws]:
    """Whether there is a best prefix to be searched for."""
    return draws is not None and not draws.are_certain


def saves_sorting(draws: RandomDraws | None) -> TypeGuard[RandomDraws]:
    """Whether the search takes less than a sort, and no memory to speak of."""
    if draws is None or not (draws.is_replaced or draws.num_drafts <= _MOST_RACED):
        return False
    return is_searched(draws)
