"""Arguments as they were: by place where they are keywords now, and by their old names."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from mdsd_opt.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])


class Formerly(NamedTuple):
    """Keywords that a function took after its other arguments by place, and old names of others.

    The old names, which warn for one release, stand with the new ones.
    """

    function: Callable[..., Any]
    late: tuple[str, ...]
    renamed: Mapping[str, str]
    places: int

    @classmethod
    def of(
        cls, function: Callable[..., Any], late: tuple[str, ...], renamed: Mapping[str, str]
    ) -> Formerly:
        """Former arguments of a function."""
        parameters = inspect.signature(function).parameters.values()
        places = sum(x.kind is x.POSITIONAL_OR_KEYWORD for x in parameters)
        return cls(function, late, renamed, places)

    def call(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Result of the function; `InvalidInput` for a keyword under both of its names."""
        for old in self.renamed.keys() & keywords.keys():
            new, value = self.renamed[old], keywords.pop(old)
            if value is None:
                continue
            if new in keywords:
                raise InvalidInput(f"{old} is the old word for {new}: give {new} alone")
            told = f"{old} of {self.function.__name__} is {new}: it goes with the next release"
            warnings.warn(told, DeprecationWarning, stacklevel=3)
            keywords[new] = value
        late = dict(zip(self.late, args[self.places :], strict=False)) if self.late else {}
        rest = args[self.places + len(self.late) :]
        return self.function(*args[: self.places], *rest, **late, **keywords)


def formerly(*late: str, **renamed: str) -> Callable[[F], F]:
    """Decorator of functions that take these keywords by place, too, and others by an old name."""

    def decorated(function: F) -> F:
        former = Formerly.of(function, late, renamed)

        @functools.wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            return former.call(args, keywords)

        return cast("F", called)

    return decorated
