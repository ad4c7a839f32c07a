"""Subject of the search for the best prefix: K draws from one law, and limits on them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.errors import ProblemTooLarge

#: Number of tokens that are sorted and summed before a kernel would be loaded.
FEW_TOKENS = 64

#: Most draws without replacement for which the race before every bucket, some MB for each draw, is
#: kept to save a sort.
_MOST_RACED = 32


@dataclass(frozen=True, eq=False)
class RandomDraws:
    """Scheme of K draws from q, shape (V,), one after another.

    Where a token cannot be drawn twice, each draw is from what those before it left.
    """

    q: Floats
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


def is_searchable(draws: RandomDraws | None) -> TypeGuard[RandomDraws]:
    """Whether there is a best prefix to be searched for."""
    return draws is not None and not draws.are_certain


def saves_sorting(draws: RandomDraws | None) -> TypeGuard[RandomDraws]:
    """Whether the search takes less than a sort, and no memory to speak of."""
    if draws is None or draws.q.size <= FEW_TOKENS:
        return False
    if not (draws.is_replaced or draws.num_drafts <= _MOST_RACED):
        return False
    return is_searchable(draws)


def require_race(tokens: int, num_drafts: int, slowest: float) -> None:
    """Raise `ProblemTooLarge` if Q without replacement would take more than about ten seconds.

    So many tokens are added to the race one at a time; `slowest` is 1 minus the K - 1 largest q.
    """
    from mdsd_opt.prefix_search.race_kernels import MAX_RACE_WORK, race_work

    work = race_work(tokens, num_drafts, slowest)
    if work <= MAX_RACE_WORK:
        return
    fewer = range(3, num_drafts)
    fits = 2 + bisect_right(fewer, MAX_RACE_WORK, key=lambda k: race_work(tokens, k, slowest))
    raise ProblemTooLarge(
        f"{num_drafts} drafts without replacement and {tokens:,} tokens take about {work:.1e} "
        f"operations (drafts x tokens x quadrature nodes); the budget is {MAX_RACE_WORK:.1e}. "
        f"Draft about {fits} tokens, or restrict the vocabulary (top_k, top_p)."
    )
