"""Answers draws of any of the usual generators, and refuses draws that bypass the audit.

A generator that a function makes without a seed is answered by the audit, as all draws are. One
with a seed keeps its own numbers, as it would without an audit: a function that makes it anew in
each call then gives the same ones each time, and its outcomes show it. `MadeInside` counts the
calls in which that was so, for the report to say where the fault lies.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NoReturn

import numpy as np

from mdsd_opt.auditing.randomness.sources import DOUBLE, SampledSource, Source
from mdsd_opt.errors import UnservedDraw

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


#: Only one audit at a time may replace `random` and `numpy.random`, which are the process's own.
_LOCK = threading.RLock()

#: Methods of the one instance of `random.Random` that all functions of the module `random` use.
_METHODS = ("random", "getrandbits", "_randbelow")
#: Functions of the module that are themselves such a method.
_FUNCTIONS = ("random", "getrandbits")


class Serving:
    """State while draws are served; call `check` after each call, and now and then."""

    def __init__(self, source: Source, generators: Sequence[Any], stack: ExitStack) -> None:
        self._source, self._generators, self._stack = source, tuple(generators), stack
        self._refused = ""
        self._made_inside = MadeInside(source)
        stack.callback(setattr, np.random, "seed", np.random.seed)
        np.random.seed = lambda *_: self._raise_past("numpy")
        # Both start from where no engine has ever been, so that seeding shows as well.
        stack.callback(random.setstate, random.getstate())
        random.seed()
        self._python_state = random.getstate()
        self._mlx_state = mlx_state()
        self._torch_states: list[Any] | None = None
        self._torch_draws: Any = None
        self._serve_torch()

    def _serve_torch(self) -> None:
        if "torch" in sys.modules:
            import torch

            from mdsd_opt.auditing.randomness.torch_draws import generator_states, torch_draws

            default = torch.default_generator
            self._stack.callback(default.set_state, default.get_state())
            default.seed()
            self._torch_states = generator_states(self._generators)
            for generator in self._generators:
                self._stack.callback(generator.set_state, generator.get_state())
            self._torch_draws = torch_draws(
                self._source, self.refuse, self._made_inside.met, self._moved
            )
            self._stack.enter_context(self._torch_draws)

    def _moved(self, state: Any) -> None:
        """Record that the audit itself moved a generator to this state.

        PyTorch shows it as another object than the engine has.
        """
        assert self._torch_states is not None
        for n, watched in enumerate(reversed(self._generators), start=1):
            if watched.get_state().equal(state):
                self._torch_states[-n] = state

    def call(self) -> AbstractContextManager[None]:
        """Enclose one call of the function under audit: generators it makes are served."""
        if self._torch_draws is not None:
            self._torch_draws.new_call()
        return self._made_inside.call()

    @property
    def restarting(self) -> tuple[str, ...]:
        """Generators that began anew, from the same seed, in one call after the other."""
        return self._made_inside.restarting

    @property
    def narrow(self) -> bool:
        """Whether any tensor was computed in float32 or coarser, so that rounding shows."""
        return self._torch_draws is not None and self._torch_draws.narrow

    def refuse(self, what: str) -> NoReturn:
        """Record the draw, in case the engine catches the error, and raise it."""
        self._refused = (
            f"the function under audit drew from {what}, which is not served. Served are "
            "torch.rand, rand_like, uniform_, exponential_, multinomial and bernoulli, Python's "
            "random, numpy.random, and the rng that it is given."
        )
        raise UnservedDraw(self._refused)

    def check(self) -> None:
        """Raise `UnservedDraw` if a draw bypassed the audit, or a generator was seeded anew."""
        if self._refused:
            raise UnservedDraw(self._refused)
        mlx_before, self._mlx_state = self._mlx_state, mlx_state()
        if mlx_before is not None and mlx_before != self._mlx_state:
            self.refuse("mlx.random")
        moved = "random" if random.getstate() != self._python_state else ""
        if self._torch_states is None:
            self._serve_torch()  # the engine has only now imported it
        else:
            from mdsd_opt.auditing.randomness.torch_draws import generator_states, states_differ

            if states_differ(self._torch_states, generator_states(self._generators)):
                moved = "torch"
        if moved:
            self._raise_past(moved)

    def _raise_past(self, library: str) -> NoReturn:
        self._refused = (
            f"the function under audit seeds a generator of {library} or draws from it past the "
            "audit: from another thread, below an operator of C++, or by a function bound "
            "before (from random import random). Let it draw in the thread it is called in, "
            "seed nothing, and look up its functions when it calls them."
        )
        raise UnservedDraw(self._refused)


def mlx_state() -> tuple[Any, ...] | None:
    """State of MLX's generator, whose draws cannot be answered; None if it is not imported."""
    mlx = sys.modules.get("mlx.core")
    if mlx is None:
        return None
    return tuple(np.asarray(part).tobytes() for part in mlx.random.state)


@contextmanager
def served(
    source: Source | np.random.Generator | int, generators: Sequence[Any] = ()
) -> Iterator[Serving]:
    """Answer the random draws inside the block, from any generator, by the caller's source.

    Served are torch's `rand`, `rand_like`, `uniform_`, `exponential_`, `multinomial` and
    `bernoulli`, with a generator or without, in the type asked for, if torch is imported; Python's
    `random`; and NumPy's global generator. They are numbers that the engine's own generator can
    return. Other random operators of torch are refused by name. A generator of torch that comes
    back to a state it was in, as one that is seeded anew in every call, gives the same numbers
    again; `Serving.call` does likewise for what NumPy and `random` make inside. Draws from
    `mlx.random` are refused.

    Parameters
    ----------
    source : numpy.random.Generator, int or Source
        Source of the answers; an integer is a seed.
    generators : sequence of torch.Generator, optional
        Generators whose states are watched beside those of torch's default generators and of
        `random`: draws from another thread, say, can't be served, but are noticed.

    Raises
    ------
    UnservedDraw
        A draw that is not served, or one that went past the audit.

    Notes
    -----
    Not noticed are draws from generators made inside another thread, from those of NumPy that were
    made before (or by a function bound before: ``from numpy.random import default_rng``), and
    random numbers that a kernel computes for itself.
    """
    asked = (
        SampledSource(np.random.default_rng(source))
        if isinstance(source, (int, np.integer, np.random.Generator))
        else source
    )
    with _LOCK, ExitStack() as stack:
        stack.enter_context(python_served(asked))
        stack.enter_context(numpy_served(asked))
        serving = Serving(asked, generators, stack)
        yield serving
        serving.check()


@contextmanager
def python_served(source: Source) -> Iterator[None]:
    """Answer draws from `random` by the source, in this thread only.

    ``from random import random``, done before, keeps the method itself: it can't be answered, but
    the state of the generator shows that it was called.
    """
    instance: Any = getattr(random, "_inst")  # noqa: B009  # typeshed does not know it
    owner = threading.get_ident()

    def either(answer: Any, method: Any) -> Any:
        return lambda *args: (answer if threading.get_ident() == owner else method)(*args)

    methods = {name: getattr(instance, name) for name in _METHODS}
    before = {name: vars(instance).get(name) for name in _METHODS}
    functions = {name: getattr(random, name) for name in _FUNCTIONS}
    answers = {
        "random": lambda: float(source.uniforms(DOUBLE, (1,))[0]),
        "getrandbits": source.bits,
        "_randbelow": source.below,
    }
    for name in _METHODS:
        setattr(instance, name, either(answers[name], methods[name]))
    for name in _FUNCTIONS:
        setattr(random, name, getattr(instance, name))
    try:
        yield
    finally:
        for name, method in before.items():
            if method is None:
                delattr(instance, name)
            else:
                setattr(instance, name, method)
        for name, function in functions.items():
            setattr(random, name, function)


@contextmanager
def numpy_served(source: Source) -> Iterator[None]:
    """Answer draws from `numpy.random` (its one global generator) by the source."""
    legacy: Any = np.random  # typed without these two functions
    before = legacy.get_bit_generator()
    legacy.set_bit_generator(source.bit_generator)
    try:
        yield
    finally:
        legacy.set_bit_generator(before)
