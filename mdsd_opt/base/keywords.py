"""Arguments as they were: by place where they are keywords now, and by their old names."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from mdsd_opt.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])


def by_place(*names: str) -> Callable[[F], F]:
    """Decorator of functions that take these keywords by place, too, after the other arguments."""

    def decorated(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        places = sum(x.kind is x.POSITIONAL_OR_KEYWORD for x in parameters)

        @functools.wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            late: dict[str, Any] = dict(zip(names, args[places:], strict=False))
            return function(*args[:places], *args[places + len(names) :], **late, **keywords)

        return cast("F", called)

    return decorated


def renamed(old: str, new: str) -> Callable[[F], F]:
    """Decorator of functions with a keyword that had an old name, which warns for one release."""

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            if (value := keywords.pop(old, None)) is not None:
                if new in keywords:
                    raise InvalidInput(f"{old} is the old word for {new}: give {new} alone")
                told = f"{old} of {function.__name__} is {new}: it goes with the next release"
                warnings.warn(told, DeprecationWarning, stacklevel=2)
                keywords[new] = value
            return function(*args, **keywords)

        return cast("F", called)

    return decorated
