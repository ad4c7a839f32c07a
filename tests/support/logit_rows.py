"""Pairs of rows of logits of every character."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float64]


def normal(seed: int, size: int, spread: float) -> Logits:
    return np.random.default_rng(seed).normal(size=size) * spread


def rows_of_every_character(size: int) -> dict[str, tuple[Logits, Logits]]:
    """Rows of every character, named."""
    draft = normal(0, size, 2.5)
    one_hot = draft.copy()
    one_hot[size // 2] = 60.0
    even = np.arange(size) % 2 == 0
    halves = np.where(even, draft, -np.inf)
    other_halves = np.where(even & (size > 1), -np.inf, draft)
    return {
        "near": (draft + normal(1, size, 0.5), draft),
        "far": (normal(2, size, 3.0), draft),
        "almost equal": (draft + normal(3, size, 1e-3), draft),
        "equal up to rounding": (draft + 3.7, draft),
        "equal": (draft, draft),
        "few distinct ratios": (np.round(draft + normal(4, size, 0.5)), np.round(draft)),
        "uniform draft": (draft, np.zeros(size)),
        "dominating draft": (draft, one_hot),
        "dominating target": (one_hot, draft),
        "disjoint": (halves, other_halves),
        "zeros in the draft": (draft + 0.1, halves),
        "zeros in the target": (halves, draft + normal(5, size, 1.0)),
        "peaked": (normal(6, size, 40.0), normal(7, size, 40.0)),
        "range of float64": (normal(8, size, 250.0), normal(9, size, 250.0)),
    }


def confident_rows(
    rng: np.random.Generator, num_rows: int, size: int, dtype: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows that few tokens hold nearly all of, up to all but 1e-60, and targets near and far."""
    shape = num_rows, size
    spread = np.exp(rng.uniform(np.log(5.0), np.log(60.0), (num_rows, 1)))
    away = rng.choice([0.0, 1e-4, 1e-2, 0.2, 0.3, 1.0], (num_rows, 1))
    draft = spread * rng.standard_normal(shape)
    target = draft + away * spread * rng.standard_normal(shape)
    is_far = rng.random((num_rows, 1)) < 0.2
    target = np.where(is_far, spread * rng.standard_normal(shape), target)
    kind = rng.integers(8)
    if kind == 0:  # ties
        target, draft = np.round(target), np.round(draft)
    elif kind == 1:
        draft += rng.choice([-30.0, 30.0, 300.0])
    elif kind == 2:
        draft[:, : size // 2] += 3 * spread
    elif kind == 3:
        for side in (target, draft):
            side[:, 1:][rng.random((num_rows, size - 1)) < 0.2] = -np.inf
    return target.astype(dtype), draft.astype(dtype)
