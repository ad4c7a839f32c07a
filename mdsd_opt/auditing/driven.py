"""The law of a callable's output, as far as probes at chosen uniforms tell.

As a function of each uniform it draws, a verifier is a step function: accept below a threshold, one
token of an inverse CDF after the other. The steps are found by bisection, to 2**-44, one uniform
after the other, and what follows is explored once for each step. The result is a cover of the cube
of uniforms by boxes with one token each. It is made for rules whose branches depend on a few
uniforms, each through thresholds of its own. Every box is then tried near its corners, which
refuses most rules that compare uniforms with each other. Nothing is proved: a step that no probe
falls into goes unseen, and the law found is then wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

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
_TAILS = (0.013, 0.291, 0.617, 0.983)

#: Where in each step the rest is explored, and how near to its ends it is tried afterwards.
_INSIDE = 0.421
_NEAR_END = 0.01

#: Tries of each box.
_CORNERS = 4

_MAX_CALLS = 3_000_000


class Box(NamedTuple):
    """Uniforms in these intervals, one after the other, give this token."""

    intervals: tuple[tuple[float, float], ...]
    token: int


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
        self._corners = np.random.default_rng(0)

    def __call__(self, drafts: Tokens) -> Vector:
        law = np.zeros(self._subject.problem.vocab_size)
        for box in self._boxes(drafts, (), ()):
            self._try_corners(drafts, box)
            law[box.token] += np.prod([stop - start for start, stop in box.intervals])
        return law

    def _run(self, drafts: Tokens, uniforms: Sequence[float]) -> tuple[int, int]:
        """Output token, and how many uniforms were drawn."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise _undrivable(f"it needs more than {_MAX_CALLS:,} calls")
        self._bits.restart(dict(enumerate(uniforms)))
        try:
            with np.errstate(all="ignore"):  # log(0) and the like
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

    def _boxes(
        self,
        drafts: Tokens,
        given: tuple[float, ...],
        intervals: tuple[tuple[float, float], ...],
    ) -> Iterator[Box]:
        """The boxes that begin with these intervals, explored at the uniforms `given` in them."""
        token, drawn = self._run(drafts, given)
        if drawn <= len(given):
            yield Box(intervals, token)
            return
        for start, stop in self._steps(drafts, given):
            inside = start + _INSIDE * (stop - start)
            yield from self._boxes(drafts, (*given, inside), (*intervals, (start, stop)))

    def _try_corners(self, drafts: Tokens, box: Box) -> None:
        size = len(box.intervals)
        for ends in self._corners.random((_CORNERS, size)) < 0.5:
            places = np.where(ends, _NEAR_END, 1.0 - _NEAR_END).tolist()
            point = [a + x * (b - a) for (a, b), x in zip(box.intervals, places, strict=True)]
            if self._run(drafts, point) != (box.token, size):
                raise _undrivable("its thresholds depend on uniforms drawn before")

    def _signature(self, drafts: Tokens, given: tuple[float, ...]) -> Signature:
        rest = _MAX_UNIFORMS - len(given)
        return tuple(self._run(drafts, (*given, *(tail,) * rest)) for tail in _TAILS)

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
