"""What a method says of itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from mdsd_opt.problem.solution import Found


@dataclass(frozen=True, slots=True)
class Method:
    """What a method is for, what it costs, and what it needs."""

    purpose: str
    cost: str
    needs: str
    exact: bool
    solve: Callable[..., Found] = field(repr=False)

    @property
    def options(self) -> list[str]:
        """Names of the options it takes."""
        return [name for name in inspect.signature(self.solve).parameters if name != "problem"]

    def __str__(self) -> str:
        return f"{self.purpose}. Cost: {self.cost}. Needs: {self.needs}."
