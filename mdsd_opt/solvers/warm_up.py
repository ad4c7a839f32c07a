"""Tiny problems, solved so that a clock does not time the loading of a method."""

from __future__ import annotations

import contextlib
import zlib
from fractions import Fraction
from typing import Any

import numpy as np

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    IndependentDrafts,
    MixtureDrafts,
    SequentialDrafts,
)
from mdsd_opt.drafts.single_model import OneDraft
from mdsd_opt.errors import MdsdError, UnsupportedScheme
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import solve

_TOKENS = 6
_MOST_DRAFTS = 4

#: One problem may be solved before the method comes to its last kernel.
_ROUNDS = 4


def warm_up(problem: TransportProblem, method: str, **options: Any) -> None:
    """Run a method on tiny problems of the same kind, so that its kernels and solvers are loaded.

    What it refuses, it refuses in silence.

    Parameters
    ----------
    problem : TransportProblem
    method : str
        One of `methods()`.
    **options
        Those that choose an algorithm; no limits.
    """
    for seed in range(_ROUNDS):
        with contextlib.suppress(MdsdError):
            solve(tiny_like(problem, seed), method, **options)


def tiny_like(problem: TransportProblem, seed: int = 0) -> TransportProblem:
    """A problem with the same draft scheme and kind of numbers, over six tokens."""
    if problem.vocab_size <= _TOKENS:
        return problem
    return TransportProblem(_few(problem._target, seed), _tiny(problem.drafts, seed))


def _tiny(drafts: DraftScheme, seed: int) -> DraftScheme:
    if isinstance(drafts, OneDraft):
        return type(drafts)(_few(drafts.model, seed), min(drafts.num_drafts, _MOST_DRAFTS))
    if isinstance(drafts, IndependentDrafts):
        return IndependentDrafts([_few(q, seed) for q in drafts.models[:_MOST_DRAFTS]])
    if isinstance(drafts, MixtureDrafts):
        shares = _even(len(drafts.components), drafts._law)
        components = [_tiny(component, seed) for component in drafts.components]
        return MixtureDrafts(list(zip(shares, components, strict=True)))
    if isinstance(drafts, FixedPlusDrafts):
        return FixedPlusDrafts([0], _tiny(drafts.drafts, seed))
    if isinstance(drafts, SequentialDrafts):
        return _tiny(drafts.sets, seed)
    if isinstance(drafts, DraftSetLaw):
        return DraftSetLaw(_TOKENS, dict(zip([(0,), (1, 2)], _even(2, drafts._law), strict=True)))
    raise UnsupportedScheme(f"there is no tiny form of {drafts!r}")


def _few(law: Distribution, seed: int) -> list[Any]:
    """Any law of few tokens, the same for equal laws; in Fractions if this one was given so."""
    rng = np.random.default_rng([seed, zlib.crc32(law.values.tobytes())])
    weights = rng.integers(1, 1000, _TOKENS).tolist()
    total = sum(weights)
    return [Fraction(x, total) if law.is_rational else x / total for x in weights]


def _even(count: int, law: Distribution) -> list[Any]:
    return [Fraction(1, count) if law.is_rational else 1 / count] * count
