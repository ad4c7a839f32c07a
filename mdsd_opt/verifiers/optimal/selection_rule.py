"""A fitted rule that selects one draft, with the exact law of the token it selects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SelectionRule(ABC):
    """Drafts outside the subset H beat those inside; among the rest a number of each token decides.

    Attributes
    ----------
    scores : ndarray, shape (V,)
        The number: a potential or a height.
    subset : ndarray of bool, shape (V,)
        H, whose tokens are selected only where no other token is drafted.
    fixed : ndarray of int64
        Tokens that are drafted for certain and take no part.
    repeats : bool
        Whether a token drafted twice takes part twice.
    selection : ndarray, shape (V,)
        p_Z, the law of the selected draft.
    target : ndarray, shape (V,)
        The target without the fixed tokens.
    bound, upper : float
        Acceptance rate without residual hits, and what no lossless rule exceeds.
    evaluations : int
        Of p_Z, or of its sums over the vocabulary, in the fit of both sides.
    """

    scores: Vector
    subset: NDArray[np.bool_]
    fixed: NDArray[np.int64]
    repeats: bool
    selection: Vector
    target: Vector
    bound: float
    upper: float
    evaluations: int

    @property
    def gap(self) -> float:
        """How far the optimum may lie above `bound`."""
        return max(self.upper - self.bound, 0.0)

    @abstractmethod
    def win_probabilities(self, scores: Sequence[float], exact: bool) -> list[Any]:
        """Probability that each of some drafts of one side is selected, from their scores."""

    def shares(self, drafts: NDArray[np.int64], exact: bool = False) -> list[tuple[int, Any]]:
        """Places of the drafts that may be selected, with their probabilities."""
        places = [k for k in range(self.fixed.size, drafts.size) if drafts[k] >= 0]
        if not self.repeats:
            first = {int(drafts[k]): k for k in reversed(places)}
            places = sorted(first.values())
        outside = [k for k in places if not self.subset[drafts[k]]]
        rivals = outside or places
        if not rivals:
            return []
        scores = self.scores[drafts[rivals]].tolist()
        return list(zip(rivals, self.win_probabilities(scores, exact), strict=True))
