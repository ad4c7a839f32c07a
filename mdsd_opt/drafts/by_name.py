"""Draft schemes by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts.base import DraftScheme
from mdsd_opt.drafts.fixed_set import GreedyDrafts, TopKDrafts
from mdsd_opt.drafts.with_replacement import WithReplacement
from mdsd_opt.drafts.without_replacement import WithoutReplacement
from mdsd_opt.errors import UnknownName

#: Makes a scheme from a draft law and the number of drafts.
SchemeMaker = Callable[[NDArray[np.float64], int], DraftScheme]

#: Schemes described by one draft distribution and K, by name.
SINGLE_MODEL_SCHEMES: dict[
    str, type[WithReplacement | WithoutReplacement | GreedyDrafts | TopKDrafts]
] = {
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "greedy": GreedyDrafts,
    "top_k": TopKDrafts,
}


def scheme_maker(scheme: str | SchemeMaker) -> SchemeMaker:
    """A scheme by name ("with_replacement", ...), or a function (q, num_drafts) -> scheme."""
    if callable(scheme):
        return scheme
    if scheme not in SINGLE_MODEL_SCHEMES:
        raise UnknownName.among("draft scheme", scheme, SINGLE_MODEL_SCHEMES)
    return SINGLE_MODEL_SCHEMES[scheme]
