"""Generators whose states are put back: numbers that come twice, and the same without harm.

A case is a function of `is_wrong` that gives a function of the audit's generator, which gives the
two numbers of a call: one that accepts or refuses, and one for the residual. Where it is wrong the
second is the first again, or both are those of an earlier call; where it is not, what comes twice
is not used.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from functools import partial
from operator import lt
from typing import Any

import numpy as np
from support.text_sessions import chain, pick

Numbers = Callable[[Any], tuple[float, float]]
Case = Callable[[bool], Numbers]

#: Gives what a generator draws with, how its state is read, and how it is put back.
Parts = Callable[[Any], tuple[Callable[[], float], Callable[[], Any], Callable[[Any], None]]]


def of_rng(rng: Any) -> Any:
    bits = rng.bit_generator
    return rng.random, lambda: bits.state, lambda state: setattr(bits, "state", state)


def of_legacy(_: Any) -> Any:
    return np.random.random_sample, np.random.get_state, np.random.set_state


def of_random_state(_: Any) -> Any:
    own = np.random.RandomState()
    return own.random_sample, own.get_state, own.set_state


def of_made(_: Any) -> Any:
    return of_rng(np.random.default_rng())


def of_python(_: Any) -> Any:
    return random.random, random.getstate, random.setstate


def of_python_made(_: Any) -> Any:
    own = random.Random()
    return own.random, own.getstate, own.setstate


def case(numbers: Callable[..., tuple[float, float]], *given: Any) -> Case:
    """The case of what makes the two numbers of `given`, `is_wrong` and the audit's generator."""
    return lambda is_wrong: partial(numbers, *given, is_wrong)


def put_back(parts: Parts, is_wrong: bool, rng: Any) -> tuple[float, float]:
    """Before the second number."""
    draw, state, put = parts(rng)
    before = state()
    first = draw()
    put(before)
    return (first, draw()) if is_wrong else (draw(), draw())


def put_back_at_the_end(parts: Parts, is_wrong: bool, rng: Any) -> tuple[float, float]:
    """So that the next call begins where this one began."""
    draw, state, put = parts(rng)
    before = state()
    given = draw(), draw()
    after = state()
    put(before)
    if not is_wrong:
        draw()
        put(after)
    return given


def kept(parts: Parts) -> Case:
    """From one call to the next: two calls have the same numbers."""

    def numbers(states: list[Any], is_wrong: bool, rng: Any) -> tuple[float, float]:
        draw, state, put = parts(rng)
        now = state()
        if states:
            put(states.pop())
        else:
            states.append(now)
        if not is_wrong:
            draw()
            put(now)
        return draw(), draw()

    return lambda is_wrong: partial(numbers, [], is_wrong)


def twin(copied: Callable[[Any], Any], own: Callable[[Any], Any], is_wrong: bool, rng: Any) -> Any:
    """A copy of the generator, which draws the same."""
    generator = own(rng)
    other = copied(generator)
    first, second = generator.random(), other.random()
    return first, second if is_wrong else generator.random()


def pickled(generator: Any) -> Any:
    return pickle.loads(pickle.dumps(generator))


def jumped(is_wrong: bool, rng: Any) -> tuple[float, float]:
    rng.random()  # what is jumped from moves on
    jumps = (1, 1) if is_wrong else (1, 2)
    first, second = (np.random.Generator(rng.bit_generator.jumped(n)).random() for n in jumps)
    return first, second


def advanced(is_wrong: bool, rng: Any) -> tuple[float, float]:
    first = rng.random()
    rng.bit_generator.advance(-1)
    return (first, rng.random()) if is_wrong else (rng.random(), rng.random())


def spawned(is_wrong: bool, rng: Any) -> tuple[float, float]:
    if is_wrong:  # one child for two generators
        child = rng.bit_generator.seed_seq.spawn(1)[0]
        return np.random.default_rng(child).random(), np.random.default_rng(child).random()
    first, second = rng.spawn(2)
    return first.random(), second.random()


def seeded_anew(
    parts: Parts, seed: Callable[[Any], None], is_wrong: bool, rng: Any
) -> tuple[float, float]:
    """From the same seed in every call."""
    draw, state, put = parts(rng)
    before = state()
    seed(7)
    if not is_wrong:
        draw()
        put(before)
    return draw(), draw()


def seeded_twice(is_wrong: bool, _: Any) -> tuple[float, float]:
    """From a number that was drawn."""
    seed = random.random()
    random.seed(seed)
    first = random.random()
    if is_wrong:
        random.seed(seed)
    return first, random.random()


CASES: dict[str, Case] = {
    "rng": case(put_back, of_rng),
    "rng at the end": case(put_back_at_the_end, of_rng),
    "rng kept": kept(of_rng),
    "rng copied": case(twin, copy.deepcopy, lambda rng: rng),
    "rng pickled": case(twin, pickled, lambda rng: rng),
    "rng jumped": case(jumped),
    "rng advanced": case(advanced),
    "rng spawned": case(spawned),
    "default_rng": case(put_back, of_made),
    "numpy.random": case(put_back, of_legacy),
    "numpy.random at the end": case(put_back_at_the_end, of_legacy),
    "numpy.random kept": kept(of_legacy),
    "numpy.random seeded": case(seeded_anew, of_legacy, np.random.seed),
    "RandomState": case(put_back, of_random_state),
    "RandomState copied": case(twin, copy.deepcopy, lambda _: np.random.RandomState()),
    "random": case(put_back, of_python),
    "random at the end": case(put_back_at_the_end, of_python),
    "random kept": kept(of_python),
    "random seeded": case(seeded_anew, of_python, random.seed),
    "random seeded twice": case(seeded_twice),
    "random.Random": case(put_back, of_python_made),
    "random.Random copied": case(twin, copy.deepcopy, lambda _: random.Random()),
    "random.Random pickled": case(twin, pickled, lambda _: random.Random()),
}

#: Those that chains and texts draw with.
PARTS: dict[str, Parts] = {
    "rng": of_rng,
    "default_rng": of_made,
    "numpy.random": of_legacy,
    "random": of_python,
}


def verifier(
    numbers: Numbers = lambda rng: rng.random(2),
    left: Callable[[Any, Any], Any] = lambda p, q: np.maximum(p - q, 0),
    accepts: Callable[[Any, Any], Any] = lt,
) -> Callable[..., int]:
    """Rejection of one draft by these numbers; what follows a refusal is drawn from `left`."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        x = int(np.asarray(drafts).flat[0])
        first, second = numbers(rng)
        return x if accepts(first * q[x], p[x]) else pick(left(p, q), second)

    return verify


def uniforms(parts: Parts, is_wrong: bool) -> Callable[[Any], Callable[[], float]]:
    """Numbers that come in pairs of equal ones; where it is not wrong, only one of each is used."""

    def begun(rng: Any) -> Callable[[], float]:
        draw, state, put = parts(rng)
        states: list[Any] = []

        def uniform() -> float:
            if states and is_wrong:
                put(states.pop())
                return draw()
            states[:] = [state()]
            number = draw()
            if is_wrong:
                return number
            put(states.pop())
            return draw()

        return uniform

    return begun


def chain_of(parts: Parts, is_wrong: bool) -> Callable[..., list[int]]:
    """Rejection along a chain of drafts."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
        uniform = uniforms(parts, is_wrong)(rng)
        for n, x in enumerate(np.asarray(drafts).tolist()):
            if not uniform() * q[n][x] < p[n][x]:
                return [*drafts[:n], pick(np.maximum(p[n] - q[n], 0), uniform())]
        return [*drafts, pick(p[len(drafts)], uniform())]

    return verify


def text_of(parts: Parts, is_wrong: bool) -> Callable[[Any, Any], list[int]]:
    """Texts that are drafted and verified."""
    return chain(lambda: uniforms(parts, is_wrong)(None), gamma=1, tokens=3)
