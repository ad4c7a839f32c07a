"""Probability of each token to be among the drafts."""

from __future__ import annotations

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
from mdsd_opt.solution import weighted_count

Vector = NDArray[np.float64]

#: Elements of draft sets that may be listed.
_MAX_ARCS = 5_000_000


@singledispatch
def inclusion_probabilities(drafts: DraftScheme) -> Vector | None:
    """Pr(token among the drafts), shape (V,); None where only sampling is feasible."""
    if drafts.count_supports()[1] > _MAX_ARCS:
        return None
    law = drafts.support_law()
    return weighted_count(law.tokens, law.mass[law.arc_support], drafts.vocab_size)


@inclusion_probabilities.register
def _with_replacement(drafts: WithReplacement) -> Vector:
    result: Vector = -np.expm1(drafts.num_drafts * np.log1p(-np.minimum(drafts.q, 1 - 1e-16)))
    return result


@inclusion_probabilities.register
def _without_replacement(drafts: WithoutReplacement) -> Vector | None:
    q = drafts.q
    if drafts.drafts_whole_support:
        return (q > 0).astype(np.float64)
    if drafts.num_drafts == 1:
        return q
    if drafts.num_drafts == 2:
        others = rest_of_each(q)
        odds = np.divide(q, others, out=np.zeros_like(q), where=others > 0)
        result: Vector = np.minimum(q * (1.0 + odds.sum() - odds), 1.0)
        return result
    if drafts.count_supports()[1] > _MAX_ARCS:
        return None
    law = drafts.support_law()
    return weighted_count(law.tokens, law.mass[law.arc_support], drafts.vocab_size)


@inclusion_probabilities.register(GreedyDrafts)
@inclusion_probabilities.register(TopKDrafts)
def _fixed_set(drafts: GreedyDrafts | TopKDrafts) -> Vector:
    result = drafts.last_draw.copy()
    result[drafts.always_drafted] = 1.0
    return result


@inclusion_probabilities.register
def _fixed_plus(drafts: FixedPlusDrafts) -> Vector | None:
    inner = inclusion_probabilities(drafts.drafts)
    if inner is None:
        return None
    result = inner.copy()
    result[drafts.always_drafted] = 1.0
    return result


@inclusion_probabilities.register
def _mixture(drafts: MixtureDrafts) -> Vector | None:
    total = np.zeros(drafts.vocab_size)
    for weight, component in zip(drafts.mixture_weights, drafts.components, strict=True):
        inner = inclusion_probabilities(component)
        if inner is None:
            return None
        total += weight * inner
    return total


@inclusion_probabilities.register
def _independent(drafts: IndependentDrafts) -> Vector:
    result: Vector = 1.0 - np.prod(1.0 - drafts.q, axis=0)
    return result


def rest_of_each(q: Vector) -> Vector:
    """1 - q of each token; of a dominating one as the sum of the others."""
    rest = 1.0 - q
    largest = int(q.argmax())
    if q[largest] > 0.5:
        rest[largest] = q[:largest].sum() + q[largest + 1 :].sum()
    return rest
