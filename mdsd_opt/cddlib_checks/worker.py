"""The child process: reads one job from standard input, writes its messages to standard output.

Started by `child.run_in_child`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import struct
import sys
from typing import Any, BinaryIO

HEADER = struct.Struct(">Q")

#: Seconds after its deadline at which a child that nobody has ended, ends itself.
_GRACE = 10


def send(stream: BinaryIO, kind: str, content: Any) -> None:
    """Write one message: its length, then (kind, content)."""
    data = pickle.dumps((kind, content))
    stream.write(HEADER.pack(len(data)) + data)
    stream.flush()


def limit_memory(num_bytes: int) -> None:
    """Bound the address space, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))


def main() -> None:
    """Run the job and report its result, or the error it ended with."""
    # Messages go to the real standard output; whatever the C library prints goes to stderr.
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    module, function, arguments, seconds, memory = pickle.load(sys.stdin.buffer)
    if hasattr(signal, "alarm"):
        # Only the default action ends a process inside cddlib, and only this reaches an orphan.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + _GRACE)
    try:
        # Import first: the limit is for the computation.
        job = getattr(importlib.import_module(module), function)
        if memory is not None:
            limit_memory(memory)
        send(stream, "result", job(**arguments))
    except MemoryError:
        send(stream, "out of memory", None)
    except Exception as error:
        import traceback

        send(stream, "error", (error, traceback.format_exc()))
