"""Tests that loop over cases: one test, whose failure names the case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any


def of_each(**values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that calls a test with every combination of these arguments."""
    cases = [dict(zip(values, case, strict=True)) for case in product(*values.values())]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def looped(*args: Any, **given: Any) -> None:
            for case in cases:
                try:
                    test(*args, **given, **case)
                except BaseException as error:
                    error.add_note(f"the case: {case}")
                    raise

        signature = inspect.signature(test)
        left = [x for name, x in signature.parameters.items() if name not in values]
        looped.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return looped

    return decorated
