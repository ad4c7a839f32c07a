"""Expected mass of the tokens drafted without replacement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def drafted_masses(q: Vector, p: Vector, num_drafts: Sequence[int]) -> list[float]:
    """sum of p_i Pr(i is drafted) for each of several K; the quadrature is shared."""
    support = int((q > 0).sum())
    most = max((k for k in num_drafts if k < support), default=1)
    by_quadrature = _race_masses(q, p, most) if most > 2 else None
    masses = []
    for k in num_drafts:
        if k >= support:
            masses.append(float(p[q > 0].sum()))
        elif k == 1:
            masses.append(float(p @ q))
        elif k == 2:  # first, or second after any other token
            rest = sum_of_others(q)
            odds = np.divide(q, rest, out=np.zeros_like(q), where=rest > 0)
            masses.append(float(p @ (q * (1.0 + sum_of_others(odds)))))
        else:
            assert by_quadrature is not None
            masses.append(float(by_quadrature[k - 1]))
    return masses


def _race_masses(q: Vector, p: Vector, most: int) -> Vector:
    from mdsd_opt.drafts import drafted_masses_kernels
    from mdsd_opt.prefix_search import race_quadrature_kernels as race
    from mdsd_opt.prefix_search.race_budget import require_race

    smallest = np.partition(q, q.size - most)[: q.size - most + 1]  # all but the K - 1 largest
    slowest = float(smallest.sum())
    require_race(int((q > 0).sum()), most, slowest)
    # Unlike containment, which starts from zero, drafted mass is densest at t = 0.
    t, w = race.race_nodes(slowest, most, race.FROM_CONSTANT)
    return drafted_masses_kernels.drafted_masses(p, q, most, t, w)


def sum_of_others(values: Vector) -> Vector:
    """Sum without each entry; without the largest as a sum, so that it is not lost in rounding."""
    others: Vector = values.sum() - values
    largest = int(values.argmax())
    others[largest] = values[:largest].sum() + values[largest + 1 :].sum()
    return others
