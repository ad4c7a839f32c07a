"""Which draft schemes the search is for; imports no kernels."""

from __future__ import annotations

from typing import TypeGuard

from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement

#: Drafts without replacement up to which the race before every bucket, some MB for each draft, is
#: kept to save a sort.
_MOST_RACED = 32

#: Schemes that draw at random from one q.
Searched = WithReplacement | WithoutReplacement


def is_searched(drafts: DraftScheme) -> TypeGuard[Searched]:
    """Whether the scheme draws at random from one q."""
    if isinstance(drafts, WithoutReplacement):
        return not drafts.drafts_whole_support
    return isinstance(drafts, WithReplacement)


def saves_sorting(drafts: DraftScheme) -> TypeGuard[Searched]:
    """Whether the search takes less than a sort, and no memory to speak of."""
    if isinstance(drafts, WithoutReplacement) and drafts.num_drafts > _MOST_RACED:
        return False
    return is_searched(drafts)
