"""The command line on a terminal of 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

WIDTH = 80


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """Exit code, what the command line prints to a terminal, and its stderr."""
    import fcntl
    import struct
    import termios

    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "mdsd_opt", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=known | {"TERM": "xterm", "NO_COLOR": "1"},
        cwd=Path(__file__).parents[2],
    ) as process:
        os.close(terminal)
        parts = []
        while True:
            try:
                part = os.read(reader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    os.close(reader)
    return process.returncode, b"".join(parts).decode().replace("\r\n", "\n"), said
