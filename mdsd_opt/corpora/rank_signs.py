"""Signs of life that ranks give each other: small files beside the results.

Each rank writes a file anew every few seconds, with a number that grows; at its end it removes the
file, or says in it that it failed. The others watch whether the content changes, by their own
clocks; what an earlier run left behind does not.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST_PAUSE = 5.0
_FAILED = "failed"


@contextmanager
def signs_of_life(folder: Path, rank: int, timeout: float) -> Iterator[None]:
    """Give them while the block runs, ten or more in each `timeout` seconds."""
    path, run = _path(folder, rank), secrets.token_hex(8)
    ended = threading.Event()

    def go_on() -> None:
        number = 0
        while not ended.wait(min(_LONGEST_PAUSE, timeout / 10)):
            number += 1
            with suppress(OSError):  # a full disk is for the results to tell of
                path.write_text(f"{run} {number}\n")

    with suppress(OSError):
        path.write_text(f"{run} 0\n")
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    failed = True
    try:
        yield
        failed = False
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):
            if failed:
                path.write_text(f"{_FAILED} {run}\n")
            else:
                path.unlink()


class Peer:
    """Another rank, watched from now on.

    Attributes
    ----------
    rank : int
    came, left : bool
        Whether its file has changed since, and whether that says that it ended.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self.came = self.left = False
        self._path = _path(folder, rank)
        self._content = self._read()
        self._changed = time.monotonic()

    def look(self) -> float:
        """Seconds since the last sign, or since it is watched; infinite once it left."""
        content = self._read()
        if content != self._content:
            self._content, self._changed = content, time.monotonic()
            self.came, self.left = True, content is None or content.startswith(_FAILED)
        return float("inf") if self.left else time.monotonic() - self._changed

    def _read(self) -> str | None:
        try:
            return self._path.read_text()
        except OSError:
            return None


def _path(folder: Path, rank: int) -> Path:
    return folder / f".rank-{rank}.alive"
