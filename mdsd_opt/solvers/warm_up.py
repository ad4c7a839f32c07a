"""Tiny problems, solved so that a clock does not time the loading of a method."""

from __future__ import annotations

import contextlib
import zlib
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.errors import MdsdError
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import solve

_TOKENS = 6
_MOST_DRAFTS = 4

#: Number of runs: one problem may be solved before the method reaches its last kernel.
_ROUNDS = 4


def warm_up(problem: TransportProblem, method: str, **options: Any) -> None:
    """Run a method on tiny problems of the same kind, so that its kernels and solvers are loaded.

    The options are those that choose an algorithm, no limits. What the method refuses, it refuses
    in silence.
    """
    for seed in range(_ROUNDS):
        with contextlib.suppress(MdsdError):
            solve(tiny_like(problem, seed), method, **options)


def tiny_like(problem: TransportProblem, seed: int = 0) -> TransportProblem:
    """Problem with the same draft scheme and kind of numbers, over six tokens."""
    if problem.vocab_size <= _TOKENS:
        return problem
    law = partial(_few, seed)
    drafts = problem.drafts.miniature(law, _TOKENS, _MOST_DRAFTS)
    return TransportProblem(law(problem._target, _TOKENS), drafts)


def _few(seed: int, law: Distribution, size: int) -> list[Any]:
    """Any law of few outcomes, the same for equal laws; in Fractions if this one is."""
    rng = np.random.default_rng([seed, zlib.crc32(law.values.tobytes())])
    weights = rng.integers(1, 1000, size).tolist()
    total = sum(weights)
    return [Fraction(x, total) if law.is_rational else x / total for x in weights]
