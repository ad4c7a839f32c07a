"""Python's `random` and NumPy's global generator, answered by a source."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.grids import DOUBLE
from mdsd_opt.auditing.randomness.source import Source

#: Functions of the module `random` all go through these three methods of its one instance...
_METHODS = ("random", "getrandbits", "_randbelow")
#: ...but for those that are such a method themselves.
_FUNCTIONS = ("random", "getrandbits")


@contextmanager
def python_served(source: Source) -> Iterator[None]:
    """Answer draws from `random` by the source, in this thread alone.

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
