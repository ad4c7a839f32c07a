"""What can come of a call: its answer, or a failure, which is an outcome of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from mdsd_opt.auditing.subject import describe
from mdsd_opt.errors import UnservedDraw


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception, or an answer that is none.

    Attributes
    ----------
    kind : str
        As of a `Violation`.
    name : str
        Tells failures apart.
    message : str
        Does not: it may hold numbers that were drawn.
    """

    kind: str
    name: str
    message: str = field(compare=False)


def outcome_of(answer: Callable[[], Hashable]) -> Hashable:
    """What a call answers, or how it failed."""
    try:
        with np.errstate(all="ignore"):  # log(0) and the like
            return answer()
    except UnservedDraw:
        raise
    except Exception as error:  # the callable is not ours: anything may come
        return Failure("exception", type(error).__name__, f"raised {describe(error)}")
