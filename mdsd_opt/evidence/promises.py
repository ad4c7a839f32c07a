"""Promises: laws of the next token that a function says it draws from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Vector, to_numpy
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidDistribution, InvalidInput

#: What a function makes of a model's logits: temperature and filters, or a law of each text.
Promise = Sampling | Callable[[tuple[int, ...], Vector], Any]

#: Promises for target and draft; None where laws stay as the models give them.
Promises = tuple[Promise | None, Promise | None]


class TextSoFar(tuple[int, ...]):
    """Tokens written so far; `prompt` are those before them, none where the audit has no prompt."""

    prompt: tuple[int, ...] = ()


class NoTokenLeft(InvalidInput):
    """A promise leaves no token after a text, so that nothing can be judged on such laws."""


def both_sides(promise: Any, draft_promise: Any = None) -> Promises:
    """Promises, checked, for target and draft: sampling holds for both unless the draft has one."""
    for name, value in (("promise", promise), ("draft_promise", draft_promise)):
        if not (value is None or isinstance(value, Sampling) or callable(value)):
            raise InvalidInput(
                f"{name} is {value!r:.60}: give mdsd_opt.Sampling(...), or a function (text, "
                "logits) -> probabilities of the next token"
            )
    if draft_promise is None and isinstance(promise, Sampling):
        return promise, promise
    return promise, draft_promise


def row_promises(promise: Any, draft_promise: Any) -> list[Promises]:
    """Promises of each row where either is a list of as many, else one pair for all rows."""
    sides = [list(x) if isinstance(x, (list, tuple)) else [x] for x in (promise, draft_promise)]
    rows = max(map(len, sides))
    if any(len(side) not in (1, rows) for side in sides) or not all(sides):
        raise InvalidInput(
            f"promise has {len(sides[0])} rows and draft_promise {len(sides[1])}: give one for "
            "each row of the batch, or one for all"
        )
    return [both_sides(*(side[n % len(side)] for side in sides)) for n in range(rows)]


def changes_with_text(promise: Promise | None) -> bool:
    """Whether a promise may be another one after each text."""
    return promise is not None and not isinstance(promise, Sampling)


def leaves_one_token(promise: Promise | None) -> bool:
    """Whether a promise makes a law certain that is not: texts then follow one path."""
    if promise is None:
        return False
    try:
        return np.count_nonzero(promised(promise, (), np.array([0.4, 0.3, 0.2, 0.1]))) == 1
    except NoTokenLeft:
        return False


def promised(
    promise: Promise, text: Sequence[int], law: Vector, prompt: Sequence[int] = ()
) -> Vector:
    """Law of the next token that a promise makes of a model's law after a text, checked."""
    with np.errstate(divide="ignore"):
        logits = np.log(law)
    if isinstance(promise, Sampling):
        return promise.law(logits)
    so_far = TextSoFar(text)
    so_far.prompt = tuple(prompt)
    name = f"the promise after {(*prompt, *text)}"
    try:
        with np.errstate(all="ignore"):
            masses = np.asarray(to_numpy(promise(so_far, logits), name), dtype=np.float64)
    except InvalidDistribution as error:
        raise NoTokenLeft(f"{name} leaves no token: {error}") from error
    except Exception as error:  # it may not be ours: anything may come
        raise InvalidInput(f"{name} failed with {type(error).__name__}: {error}") from error
    if masses.shape != law.shape:
        raise InvalidInput(f"{name} has shape {masses.shape}: give {law.shape}, as the logits have")
    if not (masses > 0).any() and not (masses < 0).any():
        raise NoTokenLeft(f"{name} leaves no token")
    return Distribution.of(masses, name).values
