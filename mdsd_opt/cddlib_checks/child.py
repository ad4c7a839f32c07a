"""Run a job in a process of its own, with a deadline and a bound on its memory.

A call into cddlib never returns to the interpreter before it is done: neither a thread nor a signal
handler can end it. A process can be ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import re
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from mdsd_opt.errors import InvalidInput, MdsdError, SolverError

#: Address space of a child, in bytes, unless the caller gives another.
DEFAULT_MEMORY = 4 * 2**30

#: Command of a child, not ``-m``: the package has imported the module, and Python would warn.
_START = "from mdsd_opt.cddlib_checks.child import main; main()"

_HEADER = struct.Struct(">Q")

#: How a lack of memory is told: GMP ends the process, PPL may make an error of it, and the system's
#: loader has one of its own.
_EXHAUSTED = re.compile("allocate memory|MemoryError|bad_alloc|failed to map segment")

#: Seconds after its deadline at which a child that still runs exits by itself.
_GRACE = 10

#: Longest wait between two calls of the progress callback, in seconds.
_TICK = 0.5


#: How it shows that a job or an argument is of the script that was run, and what to do.
_OF_SCRIPT = "__main__"
_TO_IMPORT = (
    "its process does not know what a script defines: put it into a module, and import that"
)

#: Modules that a child imports for its job, which are to begin no other one.
_importing: list[str] = []


class OutOfBudget(Exception):
    """The child ran out of time or memory; the message says of which."""


def run_in_child(
    job: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    timeout: float,
    memory: int | None = DEFAULT_MEMORY,
    tick: Callable[[float], None] | None = None,
) -> Any:
    """Result of ``job(**arguments)``, computed in a child process.

    The job is a function at the top level of an importable module; arguments and result are
    pickled. The timeout, in seconds, may be infinite and includes the start of the process;
    `memory` bounds the address space, in bytes. `tick` is called now and then with the seconds that
    have passed. Raises `OutOfBudget` where time or memory ran out, `SolverError` where the child
    died for another reason.
    """
    start = time.perf_counter()
    if _importing:
        raise InvalidInput(
            "a module that a check needs begins a check as it is imported: put the call under "
            "if __name__ == '__main__'"
        )
    if timeout <= 0:
        raise OutOfBudget("no time was left")
    with tempfile.TemporaryFile() as spoken:  # a pipe that nobody reads would fill up
        child = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=spoken,
            env=_environment(),
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the child
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            request = (job.__module__, job.__qualname__, dict(arguments), timeout, memory)
            with contextlib.suppress(BrokenPipeError):  # if it has died, what it said tells why
                child.stdin.write(pickle.dumps(request))
                child.stdin.close()
            received = _read_until(child, start + timeout, start, tick)
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        if received is None:
            raise OutOfBudget(f"time ran out after {timeout:.3g} s")
        spoken.seek(0)
        words = spoken.read().decode(errors="replace")
    return _result(received, words, child.returncode, memory)


def _read_until(
    child: subprocess.Popen[bytes],
    deadline: float,
    start: float,
    tick: Callable[[float], None] | None,
) -> bytes | None:
    """Output of the child up to its end; None if the deadline comes first."""
    assert child.stdout is not None
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            now = time.perf_counter()
            if now >= deadline:
                return None
            if tick is not None:
                tick(now - start)
            if selector.select(min(_TICK, deadline - now)):
                chunk = os.read(child.stdout.fileno(), 1 << 16)
                if not chunk:
                    return bytes(data)
                data += chunk


def _result(data: bytes, spoken: str, returncode: int, memory: int | None) -> Any:
    limit = "" if memory is None else f" (limit {memory / 2**30:.3g} GiB)"
    if len(data) >= _HEADER.size:
        (length,) = _HEADER.unpack(data[: _HEADER.size])
        if len(data) == _HEADER.size + length:
            kind, content = pickle.loads(data[_HEADER.size :])
            if kind == "result":
                return content
            if kind == "out of memory":
                raise OutOfBudget(f"memory ran out{limit}")
            error, text = content
            if isinstance(error, MdsdError):
                raise error
            if _EXHAUSTED.search(spoken + text):
                raise OutOfBudget(f"memory ran out{limit}")
            told = f": {_TO_IMPORT}" if _OF_SCRIPT in text else ""
            raise SolverError(f"the check failed in its process{told}:\n{text}")
    if _EXHAUSTED.search(spoken):
        raise OutOfBudget(f"memory ran out{limit}")
    raise SolverError(
        f"the process of the check ended with code {returncode}: {spoken.strip() or 'no message'}"
    )


def _environment() -> dict[str, str]:
    """Our environment, with this very package importable."""
    root = str(Path(__file__).parents[2])
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + others if others else "")}


def _send(stream: BinaryIO, kind: str, content: Any) -> None:
    """Write one message: its length, then (kind, content)."""
    data = pickle.dumps((kind, content))
    stream.write(_HEADER.pack(len(data)) + data)
    stream.flush()


def _limit_memory(num_bytes: int) -> None:
    """Bound the address space, if the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))


def main() -> None:
    """Run the job from standard input, and report its result or its error."""
    # Messages go to the real standard output; whatever the C library prints goes to stderr.
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    try:
        # Import first: the limit is for the computation.
        _importing.append("of the job")
        module, function, arguments, seconds, memory = pickle.load(sys.stdin.buffer)
        job = getattr(importlib.import_module(module), function)
        _importing.clear()
        if hasattr(signal, "alarm"):
            # Only the default action ends a process inside cddlib, and only this reaches an orphan.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(min(seconds, 1e9)) + _GRACE)
        if memory is not None:
            _limit_memory(memory)
        _send(stream, "result", job(**arguments))
    except MemoryError:
        _send(stream, "out of memory", None)
    except Exception as error:
        import traceback

        _send(stream, "error", (error, traceback.format_exc()))
