"""Generators of Python's `random`, answered by the source that is asked now."""

from __future__ import annotations

import _random
import random
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mdsd_opt.auditing.randomness.sources import CPU_CLOCK, DOUBLE, Source, asked

#: Python's own class, bound before it is replaced.
PythonRandom = random.Random

#: Functions of the module `random` that are methods of its one instance.
_FUNCTIONS = ("random", "getrandbits", "expovariate")


def answers(generator: Any) -> dict[str, Callable[..., Any]]:
    """Methods by which a generator draws, as functions that ask, or let it draw if no source does.

    Its state goes on as it would: it can be read, put back, copied and pickled.
    """

    def drawn(kind: Hashable, draw: Callable[[Source], Any], own: Callable[[], Any]) -> Any:
        source = asked()
        if source is None:
            return own()
        place = "random", hash(_random.Random.getstate(generator))
        _random.Random.random(generator)
        return source.followed([place], kind, lambda: draw(source))

    def uniform() -> float:
        return float(
            drawn(
                DOUBLE.name,
                lambda source: source.uniforms(DOUBLE, (1,))[0],
                lambda: _random.Random.random(generator),
            )
        )

    def bits(k: int, /) -> int:
        own = _random.Random.getrandbits
        return int(drawn(k, lambda source: source.bits(k), lambda: own(generator, k)))

    def below(n: int) -> int:
        own: Any = PythonRandom
        number = drawn(
            ("below", n), lambda source: source.below(n), lambda: own._randbelow(generator, n)
        )
        return int(number)

    def exponential(lambd: float = 1.0) -> float:
        number = drawn(
            "exponential",
            lambda source: source.clocks(CPU_CLOCK, (1,))[0],
            lambda: PythonRandom.expovariate(generator, 1.0),
        )
        return float(number) / lambd

    return {
        "random": uniform,
        "getrandbits": bits,
        "_randbelow": below,
        "expovariate": exponential,
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
        for name, answer in answers(instance).items():
            method, before = getattr(instance, name), vars(instance).get(name)
            if before is None:
                stack.callback(delattr, instance, name)
            else:
                stack.callback(setattr, instance, name, before)
            setattr(instance, name, either(answer, method))
            if name in _FUNCTIONS:
                stack.callback(setattr, random, name, getattr(random, name))
                setattr(random, name, getattr(instance, name))
        yield
