"""Generators that a function makes while it is called: do they begin anew each time?

A generator without a seed is answered by the audit, as all draws are. One with a seed keeps its own
numbers, as it would without an audit: a function that makes it anew in each call then gives the
same ones each time, and its outcomes show it. Here is counted in how many calls that was so, for
the report to say where the fault lies.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.sources import DOUBLE, Source

#: NumPy's functions, bound before any of them is replaced.
_default_rng = np.random.default_rng
_Generator = np.random.Generator

_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")

#: A seed has come back if it occurred in so many calls and in this share of all calls.
_LEAST_CALLS, _LEAST_SHARE = 3, 0.01


class MadeInside:
    """Counts the calls in which a generator began where it had begun in an earlier one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._num_calls = 0
        self._begun: Counter[str] = Counter()
        self._met: set[str] = set()
        changes: list[tuple[Any, str, Any]] = [
            (np.random, "default_rng", self._numpy_generator),
            (np.random, "RandomState", self._answered("RandomState")),
            *((np.random, name, self._answered(name)) for name in _BIT_GENERATORS),
            (random, "Random", self._python_generator()),
        ]
        self._exchanged = [(at, name, getattr(at, name), new) for at, name, new in changes]

    def met(self, name: str) -> None:
        """Record that a generator of this name, seed included, begins at its beginning."""
        if name not in self._met:
            self._met.add(name)
            self._begun[name] += 1

    @property
    def restarting(self) -> tuple[str, ...]:
        """Generators that begin anew in every call, or in many; the most frequent first."""
        least = max(_LEAST_CALLS, _LEAST_SHARE * self._num_calls)
        return tuple(name for name, count in self._begun.most_common() if count >= least)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Enclose one call of the function under audit."""
        self._num_calls += 1
        self._met.clear()
        try:
            for owner, name, _, other in self._exchanged:
                setattr(owner, name, other)
            yield
        finally:
            for owner, name, genuine, _ in self._exchanged:
                setattr(owner, name, genuine)

    def _numpy_generator(self, seed: Any = None) -> np.random.Generator:
        if seed is None:
            return _Generator(self._source.bit_generator)
        if not (isinstance(seed, _Generator) or hasattr(seed, "capsule")):  # a seed, no generator
            self.met(_called("numpy.random.default_rng", seed))
        return _default_rng(seed)

    def _answered(self, name: str) -> Any:
        """Replacement for a class of NumPy's: objects without a seed draw the audit's answers."""
        kind: Any = getattr(np.random, name)

        def made(seed: Any = None) -> Any:
            if seed is not None:
                if not hasattr(seed, "capsule"):
                    self.met(_called(f"numpy.random.{name}", seed))
                return kind(seed)
            bits = self._source.bit_generator
            return kind(bits) if name == "RandomState" else bits

        return _stand_in(kind, made)

    def _python_generator(self) -> Any:
        def made(seed: Any = None) -> random.Random:
            if seed is None:
                return _AnsweredRandom(self._source)
            self.met(_called("random.Random", seed))
            return _Random(seed)

        return _stand_in(_Random, made)


_Random = random.Random


class _AnsweredRandom(_Random):
    """A generator of Python's whose numbers come from a source."""

    def __init__(self, source: Source) -> None:
        super().__init__(0)
        self._source = source

    def random(self) -> float:
        return float(self._source.uniforms(DOUBLE, (1,))[0])

    def getrandbits(self, k: int, /) -> int:
        return self._source.bits(k)

    def _randbelow(self, n: int) -> int:
        return self._source.below(n)


def _stand_in(kind: type, made: Callable[..., Any]) -> type:
    """Stand-in class whose constructor calls `made`; classes derived from it are unchanged."""

    class Meta(type):
        def __call__(cls, *args: Any, **named: Any) -> Any:
            return made(*args, **named) if cls is stand_in else super().__call__(*args, **named)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, kind)

    stand_in = Meta(kind.__name__, (kind,), {})
    return stand_in


def _called(name: str, seed: Any) -> str:
    """Text of a generator and its seed, as written in a program."""
    return f"{name}({' '.join(repr(seed).split())[:60]})"
