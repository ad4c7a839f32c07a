"""What a solution brings along, read once: behind this door there are only finite float64 numbers,
masks and integers of the right shapes, whose sums do not overflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import floats, mask
from mdsd_opt.base.distributions import SUM_TOLERANCE
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem.plans.feasibility import read_plan
from mdsd_opt.problem.solution import Found, Status

#: What a solution may leave out. Its proof is read where it is held against the problem.
_OPTIONAL = ("subset", "selection", "plan")


def read_solution(solution: Any, vocab_size: int) -> tuple[Found | None, list[str]]:
    """The solution in these types, or None and what of it cannot be read so.

    Raises
    ------
    InvalidInput
        It is no solution.
    """
    if not isinstance(solution, Found):
        raise InvalidInput(f"solution is a {type(solution).__name__}: give what solve returns")
    readers: dict[str, Callable[[Any], Any]] = {
        "acceptance_rate": partial(_rate, "acceptance_rate"),
        "lower_bound": partial(_rate, "lower_bound"),
        "upper_bound": partial(_rate, "upper_bound"),
        "status": _status,
        "subset": partial(mask, name="the subset", size=vocab_size, of="tokens"),
        "selection": partial(_selection, vocab_size=vocab_size),
        "plan": partial(read_plan, vocab_size=vocab_size),
    }
    read: dict[str, Any] = {}
    unreadable = []
    for name, reader in readers.items():
        given = getattr(solution, name)
        try:
            read[name] = None if given is None and name in _OPTIONAL else reader(given)
        except InvalidInput as error:
            unreadable.append(str(error))
    return (None if unreadable else replace(solution, **read)), unreadable


def _rate(name: str, value: Any) -> float:
    try:
        rate = float(value) if isinstance(value, Real) else np.nan
    except OverflowError:  # of an integer
        rate = np.inf
    if not np.isfinite(rate):
        raise InvalidInput(f"{name} is {value}")
    return rate


def _status(status: Any) -> Status:
    if not isinstance(status, Status):
        raise InvalidInput(f"status is {status!r}, not a Status")
    return status


def _selection(selection: Any, vocab_size: int) -> NDArray[np.float64]:
    x = floats(selection, "the selection marginal")
    if x.shape != (vocab_size,):
        raise InvalidInput(f"the selection marginal has shape {x.shape}")
    if not (np.isfinite(x) & (x >= 0)).all():
        raise InvalidInput("the selection marginal has masses that are negative or not finite")
    with np.errstate(over="ignore"):
        total = x.sum()
    if total > 1 + SUM_TOLERANCE:
        raise InvalidInput(f"the selection marginal sums to {total:.6g}, more than one")
    return x
