"""SpecHub: the transport of two drafts through the likeliest token."""

from __future__ import annotations

from typing import ClassVar

from mdsd_opt.drafts import FixedSetDrafts, GreedyDrafts
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.verifiers.greedy import Greedy


class SpecHub(Greedy):
    """Verify the likeliest token and one drawn from the rest, as greedy drafts at K = 2.

    The draft pairs of [SpecHub] all hold the likeliest token (the hub), and its transport plan is
    the optimal one for that law, which [Hu25] shows to be the greedy scheme at K = 2. Lossless and
    optimal for greedy drafts with K = 2. Cost O(V), for the rate and for a decision.
    """

    name: ClassVar[str] = "spechub"
    schemes: ClassVar[tuple[type[FixedSetDrafts], ...]] = (GreedyDrafts,)
    only_num_drafts: ClassVar[int | None] = 2

    def check_num_drafts(self, num_drafts: int) -> None:
        if num_drafts != 2:
            raise UnsupportedScheme(
                f"verifier 'spechub' is for greedy drafts with K = 2, not K = {num_drafts}: "
                "verifier 'greedy' takes any K"
            )


VERIFIER = SpecHub()
