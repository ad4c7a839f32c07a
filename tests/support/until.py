"""The one wait of the tests: for what another process, or another thread, brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

#: Looks before a test gives up: ten minutes, far beyond what any of them waits for.
_LOOKS, _PAUSE = 120_000, 0.005


def until(look: Callable[[], Answer]) -> Answer:
    """The first answer that counts as true; an error where none comes."""
    for _ in range(_LOOKS):
        if answer := look():
            return answer
        time.sleep(_PAUSE)
    raise AssertionError(f"never true, and waited for: {look}")
