"""The exact law of a callable's output, found by driving it through chosen uniforms.

As a function of each uniform it draws, a verifier is a step function: accept below a threshold, one
token of an inverse CDF after the other. The steps are found by bisection, to 2**-44, one uniform
after the other; what is left after a step is explored once for each step. This is exact for rules
whose branches depend on a few uniforms, each through thresholds of its own; a rule that compares
uniforms with each other, or draws one for each token, is recognised and refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.scripted import LARGEST_UNIFORM, ScriptedBits
from mdsd_opt.auditing.subject import Subject, Tokens, describe, judged
from mdsd_opt.errors import InvalidInput

Vector = NDArray[np.float64]
Signature = tuple[tuple[int, int], ...]

#: Uniforms in one call that can be explored.
_MAX_UNIFORMS = 12

#: Points at which each uniform is tried before bisection.
_GRID = 33

_RESOLUTION = 2.0**-44

#: Continuations that tell two values of a uniform apart: the uniforms that follow are set to these.
_TAILS = (0.013, 0.291, 0.617, 0.983, 0.458)

#: Relative places inside a step at which the rest must have the same law.
_INSIDE = (0.171, 0.839)

#: Largest difference of two such laws.
_SAME = 1e-9

_MAX_CALLS = 3_000_000


class DrivenLaw:
    """Law of a callable's output given a draft tuple: call it with the tuple.

    Raises
    ------
    InvalidInput
        The callable failed, draws raw bits (integers, exponentials) or too many uniforms, or
        compares them with each other: audit it with ``method="sampling"``.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._bits = ScriptedBits()
        self._calls = 0

    def __call__(self, drafts: Tokens) -> Vector:
        return self._law(drafts, ())

    def _run(self, drafts: Tokens, uniforms: Sequence[float]) -> tuple[int, int]:
        """Output token, and how many uniforms were drawn."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise _undrivable(f"it needs more than {_MAX_CALLS:,} calls")
        self._bits.restart(dict(enumerate(uniforms)))
        try:
            answer = self._subject.call(drafts, self._bits.generator)
        except Exception as error:  # the callable is not ours: anything may come
            raise _undrivable(f"drafts {drafts.tolist()} raised {describe(error)}") from error
        kind, token, message = judged(answer, self._subject.problem.vocab_size)
        if kind:
            raise _undrivable(f"drafts {drafts.tolist()} gave {message}")
        if self._bits.drew_bits:
            raise _undrivable("it draws raw bits (integers or exponentials), not only uniforms")
        if self._bits.drawn > _MAX_UNIFORMS:
            raise _undrivable(f"one call draws more than {_MAX_UNIFORMS} uniforms")
        return token, self._bits.drawn

    def _law(self, drafts: Tokens, given: tuple[float, ...]) -> Vector:
        """Law of the output if the first uniforms are `given`."""
        token, drawn = self._run(drafts, given)
        if drawn <= len(given):
            return np.eye(1, self._subject.problem.vocab_size, token)[0]
        total = np.zeros(self._subject.problem.vocab_size)
        for start, stop in self._steps(drafts, given):
            inside = [(*given, start + x * (stop - start)) for x in _INSIDE]
            law = self._law(drafts, inside[0])
            if np.abs(law - self._law(drafts, inside[1])).max() > _SAME:
                raise _undrivable("its thresholds depend on uniforms drawn before")
            total += (stop - start) * law
        return total

    def _signature(self, drafts: Tokens, given: tuple[float, ...]) -> Signature:
        return tuple(
            self._run(drafts, (*given, *(tail,) * (_MAX_UNIFORMS - len(given)))) for tail in _TAILS
        )

    def _steps(self, drafts: Tokens, given: tuple[float, ...]) -> list[tuple[float, float]]:
        """Intervals of the next uniform inside which nothing changes, from 0 to 1."""
        grid = [*(np.arange(_GRID - 1) / (_GRID - 1)).tolist(), LARGEST_UNIFORM]
        known = [(u, self._signature(drafts, (*given, u))) for u in grid]
        edges = [0.0]
        for (low, low_seen), (high, high_seen) in pairwise(known):
            edges += self._changes(drafts, given, low, low_seen, high, high_seen)
        edges.append(1.0)
        return [(a, b) for a, b in pairwise(edges) if b > a]

    def _changes(
        self,
        drafts: Tokens,
        given: tuple[float, ...],
        low: float,
        low_seen: Signature,
        high: float,
        high_seen: Signature,
    ) -> list[float]:
        if low_seen == high_seen:
            return []
        if high - low < _RESOLUTION:
            return [high]
        middle = (low + high) / 2
        seen = self._signature(drafts, (*given, middle))
        return [
            *self._changes(drafts, given, low, low_seen, middle, seen),
            *self._changes(drafts, given, middle, seen, high, high_seen),
        ]


def _undrivable(reason: str) -> InvalidInput:
    return InvalidInput(
        f"verify cannot be driven through chosen uniforms: {reason}. Use method='sampling'."
    )
