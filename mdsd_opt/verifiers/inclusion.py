r"""Target mass of the drafted tokens: :math:`\sum_i p_i \Pr(i \in \{X_1..X_K\})`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import (
    DraftScheme,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)

Vector = NDArray[np.float64]


@singledispatch
def drafted_mass(drafts: DraftScheme, p: Vector) -> float:
    """Expected mass, under p, of the set of drafts; p may be any non-negative vector."""
    law = drafts.support_law()
    return float(p[law.tokens] @ law.mass[law.arc_support])


@drafted_mass.register
def _with_replacement(drafts: WithReplacement, p: Vector) -> float:
    missed = np.log1p(-np.minimum(drafts.q, 1 - 1e-16))
    return float(-(p @ np.expm1(drafts.num_drafts * missed)))


@drafted_mass.register
def _independent(drafts: IndependentDrafts, p: Vector) -> float:
    return float(p @ (1.0 - np.prod(1.0 - drafts.q, axis=0)))


@drafted_mass.register
def _without_replacement(drafts: WithoutReplacement, p: Vector) -> float:
    return successive_masses(drafts.q, p, [drafts.num_drafts])[0]


def successive_masses(q: Vector, p: Vector, num_drafts: Sequence[int]) -> list[float]:
    """Drafted mass for each of several K, without replacement; the quadrature is shared."""
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
    from mdsd_opt.prefix_search import race_quadrature_kernels as race
    from mdsd_opt.prefix_search.race_budget import require_race
    from mdsd_opt.verifiers import inclusion_kernels

    smallest = np.partition(q, q.size - most)[: q.size - most + 1]  # all but the K - 1 largest
    slowest = float(smallest.sum())
    require_race(int((q > 0).sum()), most, slowest)
    # Unlike containment, which starts from zero, drafted mass is densest at t = 0.
    t, w = race.race_nodes(slowest, most, race.FROM_CONSTANT)
    return inclusion_kernels.drafted_masses(p, q, most, t, w)


@drafted_mass.register(GreedyDrafts)
@drafted_mass.register(TopKDrafts)
def _fixed_set(drafts: GreedyDrafts | TopKDrafts, p: Vector) -> float:
    return float(p[drafts.always_drafted].sum() + p @ drafts.last_draw)


@drafted_mass.register
def _fixed_plus(drafts: FixedPlusDrafts, p: Vector) -> float:
    fixed = drafts.always_drafted
    others = p.copy()
    others[fixed] = 0.0
    return float(p[fixed].sum()) + drafted_mass(drafts.drafts, others)


@drafted_mass.register
def _mixture(drafts: MixtureDrafts, p: Vector) -> float:
    pairs = zip(drafts.mixture_weights.tolist(), drafts.components, strict=True)
    return sum(weight * drafted_mass(component, p) for weight, component in pairs)


def sum_of_others(values: Vector) -> Vector:
    """Sum without each entry; without the largest as a sum, so that it is not lost in rounding."""
    others: Vector = values.sum() - values
    largest = int(values.argmax())
    others[largest] = values[:largest].sum() + values[largest + 1 :].sum()
    return others
