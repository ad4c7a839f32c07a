r"""Search for a good subset, nearly always the best, for draws from different models.

With x = (q_r(H)) and Q(H) = f(x) (`ProductForm`), an optimal H holds the tokens with
:math:`p_i < \nabla f(x) \cdot q_i` (`lower_bounds.boxes`). So start with the best prefix of the
tokens by :math:`p_i / \nabla f(1) \cdot q_i`, in buckets, and replace H by the threshold set of
its point while P(H) - Q(H) falls. Heavy tokens may keep that from ending at an optimum; so then
flip the single token that gains most, and go on. Nothing is proven about the end, but
1 + P(H) - Q(H) bounds the optimum for every H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.array_types import Flags, Vector
from mdsd_opt.drafts import ProductForm

_MAX_PASSES = 40

#: Gains below this are attributed to rounding.
_LEAST_GAIN = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdSubset:
    """Subset H with its point q_r(H), shape (R,), and its value P(H) - Q(H)."""

    subset: Flags
    point: Vector
    value: float


def threshold_subset(p: Vector, form: ProductForm) -> ThresholdSubset:
    """Search for the subset of least P(H) - Q(H); p may be sub-normalised, Q is in float64."""
    best = _settled(p, form, _best_prefix(p, form))
    for _ in range(_MAX_PASSES):
        flipped = _flipped(p, form, best)
        if flipped is None:
            break
        best = _settled(p, form, flipped)
    return best


def subset_of(p: Vector, form: ProductForm, subset: Flags) -> ThresholdSubset:
    """Subset of a threshold, with its sums."""
    point = form.q[:, subset].sum(axis=1)
    return ThresholdSubset(subset, point, float(p[subset].sum() - form.value(point)))


def _best_prefix(p: Vector, form: ProductForm) -> ThresholdSubset:
    """Threshold set of the best prefix of buckets."""
    from mdsd_opt.solvers.scan_kernels import NUM_BUCKETS, sum_ratio_buckets

    num_rows = len(form.q)
    sums = np.empty((NUM_BUCKETS + 1, num_rows + 1))
    sum_ratio_buckets(p, form.q, form.gradient(np.ones(num_rows)), sums)
    ends = np.cumsum(sums[:-1], axis=0)
    points, masses = ends[:, :-1], ends[:, -1]
    best = int(np.argmin(masses - form.values(points)))
    return _threshold_set(p, form, points[best])


def _settled(p: Vector, form: ProductForm, start: ThresholdSubset) -> ThresholdSubset:
    """Last threshold set of a sequence, each set of the point before it, that still gains."""
    best = start
    for _ in range(_MAX_PASSES):
        candidate = _threshold_set(p, form, best.point)
        if not candidate.value < best.value - _LEAST_GAIN:
            break
        best = candidate
    return best


def _threshold_set(p: Vector, form: ProductForm, point: Vector) -> ThresholdSubset:
    from mdsd_opt.solvers.scan_kernels import below_threshold

    subset, sums = np.empty(p.size, dtype=np.bool_), np.empty(len(form.q) + 1)
    below_threshold(p, form.q, form.gradient(point), subset, sums)
    return ThresholdSubset(subset, sums[:-1], float(sums[-1] - form.value(sums[:-1])))


def _flipped(p: Vector, form: ProductForm, start: ThresholdSubset) -> ThresholdSubset | None:
    """Subset with one token added or removed that gains most; None if none gains.

    A token may gain only if its distance from the threshold is below the curvature of f over it.
    """
    from mdsd_opt.solvers.scan_kernels import near_threshold

    second = form.weights @ (form.powers * form.powers.max(axis=1, keepdims=True))  # derivatives
    tokens = np.empty(p.size, dtype=np.int64)
    slopes = form.gradient(start.point)
    count = near_threshold(p, form.q, slopes, float(second.max()) / 2, tokens)
    near = tokens[:count]
    sign = np.where(start.subset[near], -1.0, 1.0)
    points = np.maximum(start.point + (sign * form.q[:, near]).T, 0.0)
    gains = form.values(points) - form.value(start.point) - sign * p[near]
    if not gains.max(initial=0.0) > _LEAST_GAIN:
        return None
    best = int(np.argmax(gains))
    subset = start.subset.copy()
    subset[near[best]] ^= True
    return ThresholdSubset(subset, points[best], start.value - float(gains[best]))
