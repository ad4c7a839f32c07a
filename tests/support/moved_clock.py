"""A clock that only the test moves, in place of the one that budgets look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


class Clock:
    """Time that passes while a function is called, and at no other time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def slow(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """The function, each call of which takes so long."""

        def taking(*given: Any) -> Any:
            self.now += seconds
            return function(*given)

        return taking


@pytest.fixture(name="clock")
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)
