"""Random numbers of an engine: seeded, to be sampled, or answered one by one, to be driven.

To be sampled, the usual generators are seeded by the audit and else left alone: whatever reads
their states, puts them back, copies or reseeds them works as it does without an audit. To be
driven, they go through their states as they would, and a `Source` answers for each state.

A generator that a function makes without a seed is served likewise. One with a seed keeps its own
numbers: a function that makes it anew in each call then gets the same ones each time, and its
outcomes show it. `MadeInside` counts the calls in which that was so, for the report to say where
the fault lies.
"""

from __future__ import annotations

import _random
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness import numpy_draws
from mdsd_opt.auditing.randomness.numpy_draws import (
    BIT_GENERATORS,
    ServedBits,
    ServedGenerator,
    ServedRandomState,
    served_kind,
)
from mdsd_opt.auditing.randomness.sources import (
    ASKED,
    CPU_CLOCK,
    DOUBLE,
    Source,
    asked,
    default_rng,
)

#: Python's own class, whose constructor may be replaced.
PythonRandom = random.Random

#: Functions of the module `random` that are methods of its one instance.
_FUNCTIONS = ("random", "getrandbits", "expovariate")


def answers(generator: Any) -> dict[str, Callable[..., Any]]:
    """Methods by which a generator draws, as functions that ask, or let it draw if no source does.

    Its state goes on as it would: it can be read, put back, copied and pickled.
    """

    def drawn(kind: Hashable, draw: Callable[[Source], Any], name: str, *args: Any) -> Any:
        source = asked()
        if source is None:
            return getattr(PythonRandom, name)(generator, *args)
        place = hash(_random.Random.getstate(generator))
        _random.Random.random(generator)
        return source.answer(place, kind, draw)

    def uniform(source: Source) -> float:
        return source.uniform(DOUBLE)

    def exponential(source: Source) -> float:
        return float(source.clocks(CPU_CLOCK, (1,))[0])

    return {
        "random": lambda: drawn(DOUBLE.name, uniform, "random"),
        "getrandbits": lambda k: drawn(k, lambda source: source.bits(k), "getrandbits", k),
        "_randbelow": lambda n: drawn((n,), lambda source: source.below(n), "_randbelow", n),
        "expovariate": lambda lambd=1.0: (
            drawn("exponential", exponential, "expovariate", 1.0) / lambd
        ),
    }


@contextmanager
def python_functions_served() -> Iterator[None]:
    """Answer draws by the functions of `random`, in this thread only.

    ``from random import random``, done before, keeps the method itself: it goes past the source.
    """
    instance: Any = getattr(random, "_inst")  # noqa: B009  # typeshed does not know it
    owner = threading.get_ident()

    def either(answer: Any, method: Any) -> Any:
        return lambda *args, **named: (answer if threading.get_ident() == owner else method)(
            *args, **named
        )

    with ExitStack() as stack:
        stack.callback(vars(instance).update, vars(instance).copy())
        for name, answer in answers(instance).items():
            stack.callback(vars(instance).pop, name)
            setattr(instance, name, either(answer, getattr(instance, name)))
        for name in _FUNCTIONS:
            stack.callback(setattr, random, name, getattr(random, name))
            setattr(random, name, getattr(instance, name))
        yield


#: NumPy's own names, bound before any of them is replaced.
_Generator, _RandomState = np.random.Generator, np.random.RandomState
_python_init: Any = PythonRandom.__init__

#: A seed has come back if it occurred in so many calls and in this share of all calls.
_LEAST_CALLS, _LEAST_SHARE = 3, 0.01


class MadeInside:
    """Counts the calls in which a generator began where it had begun in an earlier one.

    As a context it encloses one call; before and after it, generators are made as usual. `seeds`
    gives those of generators that are made without one; None where the `source` answers.
    """

    def __init__(self, source: Source | None, seeds: Any, stack: ExitStack) -> None:
        self._source = source
        self._seeds: Any = seeds if source is None else None
        self._num_calls, self._is_calling = 0, False
        self._begun: Counter[str] = Counter()
        self._met: set[str] = set()
        legacy = self._made("RandomState", "MT19937", _random_state)
        changes: list[tuple[Any, str, Any]] = [
            (np.random, "default_rng", self._made("default_rng", "PCG64", _numpy_generator)),
            (np.random, "RandomState", self._stand_in(_RandomState, legacy)),
            *((np.random, name, self._bits(name)) for name in BIT_GENERATORS),
            (PythonRandom, "__init__", self._python_begins()),
        ]
        if source is not None:
            changes.append((np.random, "Generator", self._stand_in(_Generator, _numpy_generator)))
        for owner, name, new in changes:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, new)

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

    def __enter__(self) -> None:
        if self._source is not None:
            self._source.new_call()
        self._num_calls += 1
        self._met.clear()
        self._is_calling = True

    def __exit__(self, *error: object) -> None:
        self._is_calling = False

    def _bits(self, name: str) -> Any:
        kind = BIT_GENERATORS[name]
        make = self._made(name, name, lambda x: x if isinstance(x, kind) else kind(x))
        return self._stand_in(kind, make)

    def _made(self, name: str, kind: str, make: Callable[[Any], Any]) -> Callable[..., Any]:
        """Replacement for a function of NumPy's that makes what draws, of a seed or of bits."""
        others: dict[str, Any] = {"default_rng": default_rng, "RandomState": _RandomState}
        genuine = {**BIT_GENERATORS, **others}[name]

        def begun(seed: Any = None) -> Any:
            if not self._is_calling:
                return genuine(seed)
            if seed is None and self._seeds is None:
                seed = served_kind(kind)()
            elif seed is None:
                seed = BIT_GENERATORS[kind](int(self._seeds.integers(2**63)))
            elif not (isinstance(seed, _Generator) or hasattr(seed, "capsule")):  # a seed itself
                self.met(_called(f"numpy.random.{name}", seed))
            return make(seed)

        return begun

    def _stand_in(self, kind: type, make: Callable[..., Any]) -> type:
        """Stand-in class whose constructor calls `make`; classes derived from it are unchanged."""

        class Meta(type):
            def __call__(cls, *args: Any, **named: Any) -> Any:
                if cls is not stand_in:
                    return super().__call__(*args, **named)
                return (make if self._is_calling else kind)(*args, **named)

            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, kind)

        stand_in = Meta(kind.__name__, (kind,), {})
        return stand_in

    def _python_begins(self) -> Callable[..., None]:
        """Replacement for the constructor of Python's class; classes derived from it are unchanged.

        The class itself stays, as pickled generators name it.
        """

        def begins(generator: random.Random, x: Any = None) -> None:
            is_plain = self._is_calling and type(generator) is PythonRandom
            if is_plain and x is None and self._seeds is not None:
                x = int(self._seeds.integers(2**63))
            elif is_plain and x is None:
                vars(generator).update(answers(generator))
            elif is_plain:
                self.met(_called("random.Random", x))
            _python_init(generator, x)

        return begins


def _numpy_generator(seed: Any) -> Any:
    return (ServedGenerator if isinstance(seed, ServedBits) else default_rng)(seed)


def _random_state(seed: Any) -> Any:
    return (ServedRandomState if isinstance(seed, ServedBits) else _RandomState)(seed)


def _called(name: str, seed: Any) -> str:
    """Text of a generator and its seed, as written in a program."""
    return f"{name}({' '.join(repr(seed).split())[:60]})"


#: Only one audit at a time may replace `random` and `numpy.random`, which are the process's own.
_LOCK = threading.RLock()


class Serving:
    """State while draws are served; enclose each call in `inside`, and `check` now and then.

    `inside` serves the generators that a call makes; `rng` is the one to be handed to the function
    under audit.
    """

    def __init__(
        self,
        source: Source | None,
        seeds: np.random.Generator,
        generators: Sequence[Any],
        stack: ExitStack,
    ) -> None:
        self._source, self._seeds, self._stack = source, seeds, stack
        self._generators = tuple(generators)
        self.inside = MadeInside(source, seeds, stack)
        stack.enter_context(np.errstate(all="ignore"))  # functions take log(0), and the like
        self._torch_draws: Any = None
        self._torch_generators: list[Any] = []
        stack.callback(random.setstate, random.getstate())
        ASKED.append(source)
        stack.callback(ASKED.pop)
        self.rng: np.random.Generator
        if source is None:
            legacy: Any = np.random  # typed without these two functions
            stack.callback(legacy.set_bit_generator, legacy.get_bit_generator())
            legacy.set_bit_generator(BIT_GENERATORS["MT19937"](0))
            self._entropy = int(seeds.integers(2**63))
            self.rng = _Generator(BIT_GENERATORS["PCG64"](self._entropy))
        else:
            stack.enter_context(numpy_draws.functions_served())
            stack.enter_context(python_functions_served())
            self.rng = source.generator = ServedGenerator(served_kind("PCG64")())
        self._serve_torch()

    def _serve_torch(self) -> None:
        if "torch" in sys.modules:
            from mdsd_opt.auditing.randomness.torch_draws import default_generators, torch_draws

            self._torch_generators = [*default_generators(), *self._generators]
            for generator in self._torch_generators:
                self._stack.callback(generator.set_state, generator.get_state())
            self._torch_draws = torch_draws(self._source, self.inside.met)
            self._stack.enter_context(self._torch_draws)
        self._begin()

    def _begin(self) -> None:
        """Seed the generators that functions share."""
        random.seed(int(self._seeds.integers(2**32)))
        if self._source is None:
            np.random.seed(int(self._seeds.integers(2**32)))  # noqa: NPY002
        for generator in self._torch_generators:
            generator.manual_seed(int(self._seeds.integers(2**63)))

    def restart(self) -> None:
        """Begin anew all generators but those of NumPy and `random` that a function has kept.

        Only where no source answers: the new states follow from that of the generator of seeds.
        """
        bits: Any = self.rng.bit_generator
        if bits.seed_seq.n_children_spawned:
            bits = BIT_GENERATORS["PCG64"](self._entropy)
            self.rng = _Generator(bits)
        state = {"state": int.from_bytes(self._seeds.bytes(16)), "inc": 1}
        bits.state = {**bits.state, "state": state, "has_uint32": 0}
        self._begin()
        if self._torch_draws is not None:
            self._torch_draws.restart(self._seeds)

    @property
    def progress(self) -> tuple[Any, ...]:
        """What changes when anything is drawn that the audit has seeded."""
        draws = 0 if self._torch_draws is None else self._torch_draws.num_draws
        own = [repr(rng.bit_generator.state) for rng in (self.rng, self._seeds)]
        return draws, *own, repr(np.random.get_state()), random.getstate()  # noqa: NPY002

    @property
    def restarting(self) -> tuple[str, ...]:
        return self.inside.restarting

    @property
    def narrow(self) -> bool:
        """Whether any tensor was computed in float32 or coarser, so that rounding shows."""
        return self._torch_draws is not None and self._torch_draws.narrow

    def check(self) -> None:
        """Serve PyTorch if the engine has only now imported it."""
        if self._torch_draws is None and "torch" in sys.modules:
            self._serve_torch()


@contextmanager
def served(
    source: Source | np.random.Generator | int, generators: Sequence[Any] = ()
) -> Iterator[Serving]:
    """Serve the random draws inside the block: from seeds, or answered by the caller's source.

    With a seed, or a generator of seeds, the default generators of PyTorch (if it is imported),
    Python and NumPy are seeded, and those that are made inside `Serving.call` without a seed. They
    then run by themselves; when the block ends, they are as they were before.

    A `Source` is asked for every draw instead. Of PyTorch it answers `rand`, `rand_like`,
    `uniform_`, `exponential_`, `multinomial` and `bernoulli`, with a generator or without; another
    operator draws by itself, which is the source's `trouble`.

    Parameters
    ----------
    source : numpy.random.Generator, int or Source
    generators : sequence of torch.Generator, optional
        Generators to be seeded beside the default ones, and put back.

    Notes
    -----
    A source is not asked for draws in other threads, by generators of NumPy that were made before
    (or by a function bound before: ``from numpy.random import default_rng``), from `mlx.random`, or
    by a kernel.
    """
    is_source = isinstance(source, Source)
    seeds = default_rng(None if is_source else source)  # type: ignore[arg-type]
    with _LOCK, ExitStack() as stack:
        serving = Serving(source if is_source else None, seeds, generators, stack)  # type: ignore[arg-type]
        yield serving
