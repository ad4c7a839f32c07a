"""Door to code that is not ours: what would end the program there is an error here."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any, NoReturn

from mdsd_opt.errors import ForeignFault, InvalidInput, SolverError

_OURS, _PYTHON = str(Path(__file__).parents[1]), sysconfig.get_path("stdlib")

#: `os._exit` itself, which ends the process from within a door as well.
leave = os._exit


@contextmanager
def foreign(subject: str, failed: str = "") -> Iterator[None]:
    """Run code that is not ours, as a block or as a decorated function.

    SystemExit, KeyboardInterrupt and what else is no `Exception` become a `ForeignFault` that names
    `what` and the line, and so does `os._exit`; but not what comes after the handler of a signal
    was called: the user's Ctrl-C ends all. What the code changes of the process is put back:
    streams, folder, handlers, NumPy's treatment of errors, filters of warnings. Threads share all
    that, so in any but the main one nothing but the exceptions is looked after. With the beginning
    of a message, `failed`, all other errors become `InvalidInput`.
    """
    signals: list[int] = []
    interrupts: type[BaseException] = Exception
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            _keep_settings(stack, signals)
            handler = signal.getsignal(signal.SIGINT)
            if _is_compiled(handler):
                interrupts = KeyboardInterrupt
        try:
            yield
        except BaseException as end:
            if failed and isinstance(end, Exception) and not isinstance(end, ForeignFault):
                raise InvalidInput(f"{failed} {describe(end)}") from end
            if signals or isinstance(end, Exception | interrupts):
                raise
            raise ForeignFault(
                f"{subject} ended the program instead of answering: "
                f"{' '.join(repr(end).split())[:200]}{_place(end)}. Let it return or raise an "
                "Exception; what a script does belongs under if __name__ == '__main__'."
            ) from end


class _OutOfTimeError(BaseException):
    """Raised in code that is not ours, past its handlers of `Exception`."""


@contextmanager
def stopped_after(seconds: float | None, subject: str) -> Iterator[None]:
    """Stop the block after so many seconds, with a `SolverError`; None for no limit.

    By the alarm of POSIX, which only the main thread can be given: elsewhere there is no limit.
    Python comes to it between two lines, so a call of compiled code is waited for.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or seconds == inf or not in_main or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: Any) -> NoReturn:
        raise _OutOfTimeError

    handler = signal.signal(signal.SIGALRM, stop)
    began, (left, _) = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    except _OutOfTimeError:
        raise SolverError(
            f"{subject} did not end within the limit of {seconds:.3g} s and was stopped, without "
            "bounds: one that takes time_limit can return what it has, as Status.LIMIT"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # of an alarm that was set before
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-6))


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yield what tells whether a KeyboardInterrupt, which Ctrl-C still raises, is the user's."""
    signals: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread() and _is_of_python(handler):
            stack.callback(signal.signal, signal.SIGINT, handler)
            signal.signal(signal.SIGINT, partial(_handled, handler, signals))
        yield lambda: bool(signals) or _is_compiled(handler)


def describe(error: BaseException) -> str:
    """Text of an exception in one short line."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def ran(answer: Any) -> Any:
    """Answer of a foreign function; a generator has run then, and a coroutine is refused."""
    if isinstance(answer, CoroutineType | AsyncGeneratorType):
        getattr(answer, "close", str)()  # of a coroutine, which warns if nobody awaits it
        raise ForeignFault(
            f"{answer.__qualname__} is an async function, which has not run when it returns: give "
            "a plain one, which may call asyncio.run"
        )
    return list(answer) if isinstance(answer, GeneratorType) else answer


def _keep_settings(stack: ExitStack, signals: list[int]) -> None:
    for owner, name in ((sys, "stdout"), (sys, "stderr"), (os, "_exit")):
        stack.callback(setattr, owner, name, getattr(owner, name))
    with suppress(OSError):  # the folder may be gone
        stack.callback(os.chdir, Path.cwd())
    stack.callback(sys.setrecursionlimit, sys.getrecursionlimit())
    if numpy := sys.modules.get("numpy"):
        stack.enter_context(numpy.errstate())
    stack.enter_context(warnings.catch_warnings())
    for number in (signal.SIGINT, signal.SIGTERM):
        if _is_of_python(handler := signal.getsignal(number)):
            stack.callback(signal.signal, number, handler)
            signal.signal(number, partial(_handled, handler, signals))
    os._exit = partial(_asked_to_leave, os.getpid())


def _is_of_python(handler: Any) -> bool:
    """Whether a handler of a signal may be called by another one.

    Compiled ones need not: that of cysignals, which pplpy and Sage bring, only raises where its own
    C code saw the signal first.
    """
    python = (FunctionType, MethodType, partial)
    return handler is signal.default_int_handler or isinstance(handler, python)


def _is_compiled(handler: Any) -> bool:
    """Whether ours cannot call a handler: what it raises is taken for the user's."""
    return callable(handler) and not _is_of_python(handler)


def _handled(handler: Any, signals: list[int], number: int, frame: Any) -> None:
    signals.append(number)
    handler(number, frame)


def _asked_to_leave(process: int, status: int) -> NoReturn:
    if os._exit is leave or os.getpid() != process:  # all doors are closed; a fork
        leave(status)
    raise SystemExit(status)


def _place(error: BaseException) -> str:
    """Innermost line that is neither ours nor of Python's library; "" if there is none."""
    for at in reversed(traceback.extract_tb(error.__traceback__)):
        is_library = at.filename.startswith(_PYTHON) and "site-packages" not in at.filename
        if not (is_library or at.filename.startswith((_OURS, "<frozen"))):
            return f" (line {at.lineno} of {at.filename}, in {at.name})"
    return ""
