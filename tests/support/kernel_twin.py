"""The kernel of the optimal verifier in NumPy: the same bins, the same rule, the same numbers.

Slow, and meant to be read beside ``kernels/collapsed_marginal.cuh``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.gpu.rates import BIN_BITS, KEY_BITS, ratio_grid, weight_bits

Vector = NDArray[np.float64]

_BINS = 1 << BIN_BITS
_KEYS_PER_BIN = 1 << (KEY_BITS - BIN_BITS)
_LOWEST = np.float32(200.0)
_RESIDUAL_UNITS = 2.0**60
_MASS_UNITS = 2.0**56


@dataclass(frozen=True, slots=True, eq=False)
class WeighedRow:
    """Both sides of a row in whole units, and the bin of every token.

    Attributes
    ----------
    p, q : ndarray of uint64, shape (V,)
    bins : ndarray of int64, shape (V,)
    lowest, highest : ndarray, shape (_BINS,)
        Ratios of probabilities between which a bin's tokens lie.
    """

    p: NDArray[np.uint64]
    q: NDArray[np.uint64]
    bins: NDArray[np.int64]
    lowest: Vector
    highest: Vector


def _exponents(logits: NDArray[Any], scale: float) -> tuple[Vector, Vector]:
    """Integers and fractions of the exponents, as `kernels/logits.cuh` has them."""
    single = np.float32
    row = logits.astype(single)
    high = single(scale)
    low = single(scale - float(high))
    largest = row.max()
    base = largest if not abs(float(largest) * float(high)) < 2.0**20 else single(0)
    floor = np.maximum(largest - _LOWEST / high, single(-3e38))

    def parts(values: NDArray[Any]) -> tuple[Vector, Vector]:
        x = (np.maximum(values, floor) - base).astype(np.float64)
        exact = x * float(high)  # of two numbers of single precision
        y = exact.astype(single).astype(np.float64)
        rest = (x * float(low) + (exact - y)).astype(single).astype(np.float64)
        whole = np.rint(y)
        return whole, ((y - whole) + rest).astype(single).astype(np.float64)

    whole, part = parts(row)
    return whole - parts(np.array([largest]))[0], part


def weigh(
    target: NDArray[Any],
    draft: NDArray[Any],
    num_drafts: int,
    target_scale: float,
    draft_scale: float,
) -> WeighedRow:
    """Weigh one row of logits, each of shape (V,)."""
    single = np.float32
    bits = weight_bits(target.size)
    sides = [_exponents(target, target_scale), _exponents(draft, draft_scale)]
    p, q = (
        np.rint(np.ldexp(np.exp2(part.astype(single)).astype(np.float64), whole.astype(int) + bits))
        for whole, part in sides
    )
    slope, offset = (float(x) for x in ratio_grid(target.size, num_drafts))
    log_ratio = (sides[0][0] - sides[1][0]).astype(single)
    log_ratio += (sides[0][1] - sides[1][1]).astype(single)
    position = (log_ratio.astype(np.float64) * slope + offset).astype(single)
    keys = np.rint(np.clip(position, 0, 2**KEY_BITS - 1)).astype(np.int64)
    factor = q.sum() / p.sum()
    first = np.arange(_BINS) * float(_KEYS_PER_BIN)
    lowest = np.exp2((first - 1.25 - offset) / slope) * factor
    highest = np.exp2((first + _KEYS_PER_BIN + 0.25 - offset) / slope) * factor
    lowest[0], highest[-1] = 0.0, np.inf
    return WeighedRow(
        p.astype(np.uint64), q.astype(np.uint64), keys // _KEYS_PER_BIN, lowest, highest
    )


@dataclass(frozen=True, slots=True, eq=False)
class CollapsedMarginal:
    """Marginal of the selected draft with one ratio to q in every bin.

    Attributes
    ----------
    a, r : ndarray, shape (_BINS + 1,)
        Prefix sums of q and of the marginal at the ends of bins.
    ratio : ndarray, shape (_BINS,)
        Of the marginal to q.
    most : float
        No lossless rule accepts more often.
    """

    a: Vector
    r: Vector
    ratio: Vector
    most: float


def collapse(row: WeighedRow, num_drafts: int) -> CollapsedMarginal:
    """Choose the marginal: at least p below the optimal prefix and at most p above it.

    Where rounding ratios to the edges of bins leaves no room for that, they are rounded by as much
    as there is room for.
    """
    k = num_drafts
    p, q = (_bin_sums(row.bins, x) / float(x.sum()) for x in (row.p, row.q))
    a, p_ends = (np.concatenate([[0.0], np.cumsum(x)]) for x in (q, p))
    used = np.flatnonzero(q > 0)
    a[used[-1] + 1 :] = 1.0
    f = a**k
    h = int(np.argmin(p_ends - f))
    mean = np.divide(p, q, out=np.zeros(_BINS), where=q > 0)
    below = np.arange(_BINS) < h
    ratio = np.where(below, np.minimum(row.highest, np.maximum(k, mean)), row.lowest)
    rounded = _ends(ratio * q)
    ratio[:h] = _raised(ratio[:h], mean[:h], q[:h], a, rounded, f[h], p_ends[h])
    ratio[h:] = _capped(ratio[h:], mean[h:], q[h:], a[h:], rounded[h:], 1.0 - f[h])
    r = _ends(ratio * q)
    lifted = np.maximum(r, f)
    lifted[a == 1.0] = 1.0
    moved = lifted != r
    changed = (moved[1:] | moved[:-1]) & (q > 0)
    ratio[changed] = np.maximum(np.diff(lifted), 0.0)[changed] / q[changed]
    return CollapsedMarginal(a, lifted, ratio, min(max(1.0 + float(p_ends[h] - f[h]), 0.0), 1.0))


def _bin_sums(bins: NDArray[np.int64], weights: NDArray[np.uint64]) -> Vector:
    sums = np.zeros(_BINS, np.uint64)
    np.add.at(sums, bins, weights)
    return sums.astype(np.float64)


def _ends(masses: Vector) -> Vector:
    """Sums up to the end of every bin, of masses in whole units."""
    units = np.cumsum((masses * _MASS_UNITS + 0.5).astype(np.uint64))
    return np.concatenate([[0.0], units.astype(np.float64) / _MASS_UNITS])


def _raised(
    ratio: Vector, mean: Vector, q: Vector, a: Vector, rounded: Vector, f_cut: float, p_cut: float
) -> Vector:
    h = ratio.size
    if h == 0:
        return ratio
    if rounded[h] <= f_cut:
        ends = np.arange(1, h + 1)
        ends = ends[a[ends] > 0]
        level = np.min((f_cut - (rounded[h] - rounded[ends])) / a[ends])
        return np.maximum(ratio, level)
    share = np.clip((f_cut - p_cut) / (rounded[h] - p_cut), 0.0, 1.0)
    return np.where(q > 0, mean + share * (ratio - mean), ratio)


def _capped(
    ratio: Vector, mean: Vector, q: Vector, a: Vector, rounded: Vector, above: float
) -> Vector:
    total = rounded[-1] - rounded[0]
    if total >= above:
        starts = np.flatnonzero(a < 1.0)
        if starts.size == 0:
            return np.minimum(ratio, 0.0)
        level = np.max((above - (rounded[starts] - rounded[0])) / (1.0 - a[starts]))
        return np.minimum(ratio, max(level, 0.0))
    share = np.clip((above - total) / ((mean * q).sum() - total), 0.0, 1.0)
    return np.where(q > 0, ratio + share * (mean - ratio), ratio)


def block_of(
    marginal: CollapsedMarginal, top: int, level: float, num_drafts: int
) -> tuple[int, int]:
    """Bins [start, stop) of the block that holds bin `top`, by walking along the hull."""
    height = marginal.r - level * marginal.a**num_drafts
    hull: list[int] = []
    for j in range(_BINS + 1):
        if j > 0 and marginal.a[j] == marginal.a[j - 1]:
            continue
        while len(hull) > 1:
            i, m = hull[-2:]
            left = (height[m] - height[i]) * (marginal.a[j] - marginal.a[i])
            if left < (height[j] - height[i]) * (marginal.a[m] - marginal.a[i]):
                break
            hull.pop()
        hull.append(j)
    place = int(np.searchsorted(hull, top, side="right"))
    return hull[place - 1], hull[place]


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """The output token, the probability of accepting, and the most that can lack to the optimum."""

    token: int
    rate: float
    gap: float


def verify_row(row: WeighedRow, drafts: NDArray[np.int64], uniforms: Vector) -> RowVerdict:
    """One decision.

    Parameters
    ----------
    drafts : ndarray, shape (K,)
        -1 where there is none.
    uniforms : ndarray, shape (4,)
        In the order of `mdsd_opt.verifiers.Uniforms`.
    """
    level, _, test, residual = uniforms
    possible = [int(x) for x in drafts if 0 <= x < row.q.size and row.q[x] > 0]
    k = len(possible)
    p, q = (x.astype(np.float64) / float(x.sum()) for x in (row.p, row.q))
    ratio = np.zeros(_BINS)
    selected, accepts, most = -1, False, 0.0
    if possible:
        marginal = collapse(row, k)
        ratio, most = marginal.ratio, marginal.most
        top = max(row.bins[possible])
        start, stop = block_of(marginal, int(top), float(level), k)
        selected = next(x for x in possible if start <= row.bins[x] < stop)
        accepts = bool(test * ratio[row.bins[selected]] * q[selected] < p[selected])
    left = np.maximum(p - ratio[row.bins] * q, 0.0)
    ends = np.cumsum((left * _RESIDUAL_UNITS + 0.5).astype(np.uint64))
    rate = max(1.0 - float(ends[-1]) / _RESIDUAL_UNITS, 0.0)
    token = selected
    if not accepts and ends[-1] > 0:
        wanted = min(int(residual * float(ends[-1])), int(ends[-1]) - 1)
        token = int(np.searchsorted(ends, np.uint64(wanted), side="right"))
    return RowVerdict(token, rate, max(most - rate, 0.0))
