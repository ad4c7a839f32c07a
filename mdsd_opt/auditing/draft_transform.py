r"""Draft tuples turned into independent uniforms.

The conditional law of every draft given the earlier ones is known for every scheme. With F_k its
distribution function in a fixed order of the tokens and v_k uniform noise,
:math:`u_k = F_k(x_k^-) + v_k \Pr(x_k \mid x_1..x_{k-1})` is uniform and independent of the earlier
ones exactly if the tuples follow the scheme (Rosenblatt's transform, randomised).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DraftPoints:
    """Transformed draft tuples.

    Attributes
    ----------
    uniforms : ndarray, shape (N, J)
        J random choices in each tuple; rows of impossible tuples mean nothing.
    possible : ndarray of bool, shape (N,)
        Whether the scheme can draft this tuple.
    """

    uniforms: Vector
    possible: NDArray[np.bool_]


def transform(drafts: DraftScheme, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    """Transform draft tuples (N, K), padded with -1, under the law of a scheme.

    Raises
    ------
    UnsupportedScheme
        There are too many tuples to list them, for a scheme whose law has to be listed.
    """
    below, mass, possible = drafts.draw_masses(tuples)
    return DraftPoints(below + rng.random(mass.shape) * mass, possible)


def repeat_probabilities(drafts: DraftScheme) -> dict[tuple[int, int], float]:
    """Probability that the drafts at two places are the same token, where they are independent."""
    laws = {place: q for places, q in drafts.independent_places() for place in places}
    return {(i, j): float(laws[i] @ laws[j]) for i, j in combinations(sorted(laws), 2)}
