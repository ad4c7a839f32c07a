"""Optimal acceptance rates of one row by sorting, in extended precision, from the definitions.

p and q come from `probabilities`; nothing here is shared with the package.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.longdouble]


def probabilities(logits: NDArray[np.generic], temperature: float = 1.0) -> Row:
    """Softmax in which probabilities below 1e-300 are zero, as everywhere in the package."""
    values = np.asarray(logits, dtype=np.float64).astype(np.longdouble)
    weights = np.exp((values - values.max()) / np.longdouble(temperature))
    weights /= weights.sum()
    weights[weights < 1e-300] = 0
    return weights


def with_replacement(
    p: Row, q: Row, num_drafts: int, order: NDArray[np.intp] | None = None
) -> float:
    """Rate 1 + min over prefixes of P - q(H)^K, of the `prefix_order` if that is known."""
    order = prefix_order(p, q) if order is None else order
    inside = np.cumsum(q[order])
    value = np.cumsum(p[order]) - prod([inside] * num_drafts)  # faster than a power of 80 bits
    return float(1 + min(0, value.min()))


def without_replacement(p: Row, q: Row, num_drafts: int) -> float:
    """Rate 1 + min over prefixes of P - Q, with Q by the exponential race on a fine grid of times.

    Token by token, in O(V) vector operations: for vocabularies of some thousand tokens at most.
    """
    order = prefix_order(p, q)
    if order.size <= num_drafts:
        return float(p[order].sum())
    p, q = p[order].astype(np.float64), q[order].astype(np.float64)
    slowest = np.sort(q)[: q.size - (num_drafts - 1)].sum()
    step = 0.06
    x = np.arange(-4.0, float(np.log((60 + 5 * num_drafts) / slowest)) + step, step)
    t = np.exp(x - np.exp(-x))
    weight = step * t * (1 + np.exp(-x))
    outside = np.append(np.cumsum(q[::-1])[::-1], 0)
    rang = np.zeros((num_drafts, t.size))  # Pr(exactly n of the prefix rang by t)
    rang[0] = 1
    escapes = []
    for j in range(q.size):
        hit = -np.expm1(-q[j] * t)
        rang[1:] += hit * (rang[:-1] - rang[1:])
        rang[0] -= hit * rang[0]
        silent = weight * np.exp(-outside[j + 1] * t)
        escapes.append(outside[j + 1] * (silent * rang.sum(axis=0)).sum())
    value = np.cumsum(p) - 1 + np.array(escapes)
    return float(1 + min(0, value.min()))


def greedy(p: Row, q: Row, num_drafts: int) -> float:
    """Rate P(T) + sum outside of min(p, q'), T the K - 1 likeliest tokens."""
    fixed = _likeliest(q, num_drafts - 1)
    rest = q.copy()
    rest[fixed] = 0
    if rest.sum() > 0:
        rest /= rest.sum()
    return float(p[fixed].sum() + np.minimum(p, rest).sum())


def top_k(p: Row, q: Row, num_drafts: int) -> float:
    """Mass P of the K likeliest tokens."""
    return float(p[_likeliest(q, num_drafts)].sum())


def prefix_order(p: Row, q: Row) -> NDArray[np.intp]:
    """Tokens that may be drafted, in order of p / q."""
    possible = np.flatnonzero(q > 0)
    return possible[np.argsort(p[possible] / q[possible], kind="stable")]


def _likeliest(q: Row, count: int) -> NDArray[np.intp]:
    """Likeliest tokens that are possible, of equal ones those of the lowest ids."""
    first = max(q.size - count, 0)
    least = np.partition(q, first)[first] if count else np.inf
    candidates = np.flatnonzero((q >= least) & (q > 0))
    return candidates[np.argsort(-q[candidates], kind="stable")[:count]]


RATES = {
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "greedy": greedy,
    "top_k": top_k,
}
