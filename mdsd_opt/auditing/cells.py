"""Groups of tokens large enough to be counted, in orders in which a wrong verifier shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import frozen
from mdsd_opt.drafts import DraftScheme

Vector = NDArray[np.float64]

#: Smallest expected count of a cell.
MIN_EXPECTED = 5.0

#: Cells beyond this number would only dilute the test.
MAX_CELLS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A partition of the possible tokens.

    Attributes
    ----------
    of_token : ndarray of int64, shape (V,)
        Cell of each token; -1 for tokens of probability zero.
    probabilities : ndarray, shape (k,)
    """

    of_token: NDArray[np.int64]
    probabilities: Vector

    def counts(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each cell was hit; no token may be impossible."""
        return np.bincount(self.of_token[tokens], minlength=self.probabilities.size)


def merged_cells(
    probabilities: Vector,
    order: NDArray[np.int64],
    num_trials: int,
    max_cells: int = MAX_CELLS,
) -> Cells:
    """Likely tokens alone, unlikely ones merged with their neighbours in `order`.

    Parameters
    ----------
    probabilities : ndarray, shape (V,)
    order : ndarray of int64, shape (V,)
        In which cells are numbered.
    num_trials : int
        Every cell expects at least five of them (unless all tokens together do not).
    """
    kept = order[probabilities[order] > 0]
    p = probabilities[kept]
    smallest = max(MIN_EXPECTED / max(num_trials, 1), 1.0 / max_cells)
    light = p < smallest
    # Steps of twice the smallest mass: a light token may reach into the next step, never past it.
    before = np.cumsum(np.where(light, p, 0.0)) - p
    steps = np.floor(before[light] / (2 * smallest)).astype(np.int64)
    if steps.size:
        last = np.flatnonzero(steps == steps[-1])
        if p[light][last].sum() < smallest:
            steps[last] = max(steps[-1] - 1, 0)
    label = np.empty(kept.size, dtype=np.int64)
    label[light] = steps
    label[~light] = np.arange(int((~light).sum())) + (steps.max() + 1 if steps.size else 0)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    of_token = np.full(probabilities.size, -1, dtype=np.int64)
    of_token[kept] = rank[inverse]
    mass = np.bincount(of_token[kept], weights=p, minlength=first.size)
    return Cells(frozen(of_token), frozen(mass))


def by_ratio(target: Vector, drafts: DraftScheme) -> NDArray[np.int64]:
    """Tokens by target / draft ratio, ascending: verifiers move mass along this order."""
    propensity = drafts.propensity()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(propensity > 0, target / propensity, np.inf)
    return np.argsort(ratio, kind="stable")


def by_rank(target: Vector) -> NDArray[np.int64]:
    """Tokens by probability, descending."""
    return np.argsort(-target, kind="stable")
