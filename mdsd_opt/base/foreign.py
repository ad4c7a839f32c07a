"""Door to code that is not ours: what would end the program there is an error here."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NoReturn

import numpy as np

from mdsd_opt.errors import ForeignFault

_OURS, _PYTHON = (
    f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], sysconfig.get_path("stdlib"))
)

#: `os._exit` itself, which ends the process from within a door as well.
leave = os._exit

#: Signals whose handlers may end a program by an exception.
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGBREAK")
_SIGNALS = [one for one in signal.Signals if one.name in _ENDING]


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Run code that is not ours, as a block or as a decorated function.

    SystemExit, KeyboardInterrupt and what else is no `Exception` become a `ForeignFault` that names
    `what` and the line, and so does `os._exit`. What the handler of a signal raises does not: the
    user's Ctrl-C ends all. What the code changes of the process is put back: streams, folder,
    handlers of signals, NumPy's treatment of errors, filters of warnings. Threads share all that,
    so in any but the main one nothing but the exceptions is looked after.
    """
    raised: list[BaseException] = []
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            _keep_settings(stack)
            _watch_signals(stack, raised)
        try:
            yield
        except Exception:
            raise
        except BaseException as end:
            if raised:
                raise
            raise ForeignFault(
                f"{what} ended the program instead of answering: {_text(end)}{_place(end)}. Let it "
                "return or raise an Exception; what a script does belongs under "
                "if __name__ == '__main__'."
            ) from end


def ran(answer: Any) -> Any:
    """Answer of a foreign function; a generator has run then, and a coroutine is refused."""
    if isinstance(answer, GeneratorType):
        return list(answer)
    if isinstance(answer, CoroutineType | AsyncGeneratorType):
        name = answer.__qualname__
        if isinstance(answer, CoroutineType):
            answer.close()
        raise ForeignFault(
            f"{name} is an async function, which has not run when it returns: give a plain one, "
            f"such as lambda *given: asyncio.run({name}(*given))"
        )
    return answer


def _keep_settings(stack: ExitStack) -> None:
    for name in ("stdout", "stderr"):
        stack.callback(setattr, sys, name, getattr(sys, name))
    with suppress(OSError):  # the folder may be gone
        stack.callback(os.chdir, os.getcwd())  # noqa: PTH109  # as it is spelled
    stack.callback(sys.setrecursionlimit, sys.getrecursionlimit())
    stack.enter_context(np.errstate())
    stack.enter_context(warnings.catch_warnings())
    process = os.getpid()

    def asked_to_leave(status: int) -> NoReturn:
        if os._exit is leave or os.getpid() != process:  # all doors are closed; a fork
            leave(status)
        raise SystemExit(status)

    stack.callback(setattr, os, "_exit", os._exit)
    os._exit = asked_to_leave


def _watch_signals(stack: ExitStack, raised: list[BaseException]) -> None:
    """Note what the handlers of signals raise, and put them back in the end."""

    def watched(handler: Any) -> Any:
        def handle(number: int, frame: Any) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                raised.append(error)
                raise

        return handle

    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler is not None:  # else it was set by code in C, and cannot be put back
            stack.callback(signal.signal, number, handler)
        if callable(handler):
            signal.signal(number, watched(handler))


def _text(error: BaseException) -> str:
    return " ".join(repr(error).split())[:200]


def _place(error: BaseException) -> str:
    """Innermost line that is neither ours nor of Python's library; "" if there is none."""
    for at in reversed(traceback.extract_tb(error.__traceback__)):
        is_library = at.filename.startswith(_PYTHON) and "site-packages" not in at.filename
        if not (is_library or at.filename.startswith((_OURS, "<frozen"))):
            return f" (line {at.lineno} of {at.filename}, in {at.name})"
    return ""
