"""Generators of Python's `random`, answered by the source that is asked now."""

from __future__ import annotations

import _random
import random
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mdsd_opt.auditing.randomness.sources import CPU_CLOCK, DOUBLE, Source, asked

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
def functions_served() -> Iterator[None]:
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
