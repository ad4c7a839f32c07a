"""Small problems of drafts from different models that are hard to fit, and their optima."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import mdsd_opt as mo
from mdsd_opt.drafts import DraftScheme

Vector = NDArray[np.float64]


def adversarial_problem(rng: np.random.Generator, kind: str = "different") -> mo.TransportProblem:
    """Targets that are one of the models or nearly so, equal models, one-hot rows, ties, rests.

    `kind` "mixture" drafts from two of the models, or twice from one, with some probability.
    """
    size, count = int(rng.integers(2, 11)), int(rng.integers(2, 5))
    p = _weights(rng, size)
    models = [_weights(rng, size) for _ in range(count)]
    match rng.integers(9):
        case 0:
            models = [models[0]] * count
        case 1:
            models[0] = p
        case 2:
            models = [p] * count
        case 3:
            models[0] = np.eye(size)[rng.integers(size)]
        case 4:
            models = [_normalised(np.sqrt(q * p) + 1e-12) for q in models]
        case 5:
            models[0] = _normalised(p + 1e-9 * models[0])
        case 6:
            p = 0.98 * np.eye(size)[rng.integers(size)] + 0.02 * p
    different = mo.IndependentDrafts(models)
    if kind == "different":
        return mo.TransportProblem(p, different)
    fewer, twice = mo.IndependentDrafts(models[:2]), mo.WithReplacement(models[0], 2)
    parts = [(0.5, different), (0.25, fewer), (0.25, twice)]
    return mo.TransportProblem(p, mo.MixtureDrafts(parts))


def best_subset_value(problem: mo.TransportProblem) -> float:
    """min over all subsets of 1 + P(H) - Q(H)."""
    size = problem.vocab_size
    subsets = ((np.arange(1 << size)[:, None] >> np.arange(size)) & 1).astype(bool)
    values = 1.0 + subsets @ problem.target - _contained(problem.drafts, subsets)
    return float(values.min())


def _contained(drafts: DraftScheme, subsets: NDArray[np.bool_]) -> Vector:
    """Q of every row: by the formula if each draft is drawn by itself, else one by one."""
    if isinstance(drafts, mo.MixtureDrafts):
        parts = drafts.mixture_parts()
        return np.sum([mass * _contained(part, subsets) for mass, part in parts], axis=0)
    if isinstance(drafts, mo.IndependentDrafts):
        return np.prod([subsets @ model.values for model in drafts.models], axis=0)
    if isinstance(drafts, mo.WithReplacement):
        return (subsets @ drafts.q) ** drafts.num_drafts
    return np.array([drafts.containment(subset) for subset in subsets])


def _weights(rng: np.random.Generator, size: int) -> Vector:
    match rng.integers(4):
        case 0:
            return rng.dirichlet(np.ones(size))
        case 1:
            return _normalised(rng.dirichlet(np.full(size, 0.15)) + 1e-300)
        case 2:
            counts = rng.integers(0, 4, size).astype(float)
            counts[rng.integers(size)] += 1.0
            return _normalised(counts)
        case _:
            return _normalised(np.exp(3.0 * rng.standard_normal(size)))


def _normalised(weights: Vector) -> Vector:
    result: Vector = weights / weights.sum()
    return result
