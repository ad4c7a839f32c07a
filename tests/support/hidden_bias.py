"""Biases of a given size in the directions that are hardest to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.reused_states import verifier

import mdsd_opt as mo
from mdsd_opt.auditing.checks import _SHARE, _strengths

Vector = NDArray[np.float64]

#: Multiple of the stated bias that is planted, number of seeds, and how many have to be found.
BEYOND, SEEDS, FOUND = 1.05, 20, 17


def zipf(vocab_size: int, steepness: float = 1.0) -> Vector:
    """Tokens in falling order of probability."""
    p = np.arange(1.0, vocab_size + 1) ** -steepness
    return np.asarray(p / p.sum())


def moved(p: Vector, weights: Vector, size: float) -> Vector | None:
    """Law this far away, by signed weights; None where they are none, or tokens have too little."""
    up, down = np.maximum(weights, 0.0), np.maximum(-weights, 0.0)
    if not up.any() or not down.any():
        return None
    up, down = up / up.sum() * size, down / down.sum() * size
    return None if (down > p).any() else p + up - down


def balanced(sizes: Vector) -> Vector:
    """Sizes with signs of which both sums are about the same: the largest first."""
    signs, left = np.ones(sizes.size), 0.0
    for place in np.argsort(-sizes, kind="stable").tolist():
        signs[place] = -1.0 if left > 0 else 1.0
        left += signs[place] * sizes[place]
    return signs * sizes


def biased(p: Vector, size: float) -> Iterator[tuple[str, Vector]]:
    """Laws this far from p, each by the name of its direction."""
    h = np.ones(p.size)
    h[p > 0] = _strengths(p) / (1.0 + _strengths(p))
    hardest = np.divide(p, h * (1.0 - _SHARE * h))
    middle, by_rank = p.size // 2, np.argsort(-p, kind="stable")
    alternating = np.empty(p.size)
    alternating[by_rank] = np.where(np.arange(p.size) % 2, 1.0, -1.0)
    to_one, to_first = -p.copy(), -p.copy()
    to_one[by_rank[middle]] = to_first[by_rank[0]] = 1.0
    directions = {
        "hardest for the bet": balanced(hardest),
        "by the root of p": balanced(np.cbrt(p) ** 2),
        "alternating by rank": balanced(p),
        "neighbours by rank": alternating * p,
        "tail alone": balanced(np.where(p < np.sort(p)[middle], p, 0.0)),
        "to the likeliest": to_first,
        "to one in the middle": to_one,
    }
    for name, weights in directions.items():
        law = moved(p, weights, size)
        if law is not None:
            yield name, law


def low_bit_lost(p: Vector) -> Vector:
    """Law of ids of which the last bit is lost."""
    m = np.zeros(p.size)
    np.add.at(m, np.arange(p.size) // 2 * 2, p)
    return m


def sampled_from(m: Vector) -> Callable[..., Any]:
    """Verifier in batches whose output has this law, whatever is drafted."""
    reached = np.cumsum(m)

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return np.minimum(reached.searchsorted(rng.random(len(drafts)) * reached[-1]), m.size - 1)

    return verify


def found_in(audits: Iterator[Any] | list[Any]) -> int:
    """How many of some reports are lossy."""
    return sum(report.verdict_class == "lossy" for report in audits)


def window(of: int, width: float, start: float) -> Callable[..., int]:
    """A right verifier of single tokens but in a window of one tuple's two uniforms."""

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        u, v = rng.random(2)
        if int(drafts[0]) == of and all(start <= x < start + width for x in (u, v)):
            return int(np.argmin(target))
        return verifier(lambda _: (u, v))(target, draft, drafts, rng)

    return verify


def problem_of(p: Vector, seed: int = 0) -> mo.TransportProblem:
    """Problem of a target and a draft near it."""
    q = p * np.exp(np.random.default_rng(seed).normal(0.0, 0.7, p.size))
    return mo.TransportProblem(p, mo.WithReplacement(q / q.sum(), 1))
