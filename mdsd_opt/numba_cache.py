"""How kernels are compiled, and where the compiled code is kept.

Compiling takes seconds, loading compiled code milliseconds, so every kernel is cached on disk: in
`NUMBA_CACHE_DIR` if it is set, else beside the source, else (read-only install) in the user's
cache folder. Where none of them can be written, a kernel is compiled anew by every process.

A file that imports this one imports numba (0.4 s): import it where a kernel is needed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger("mdsd_opt.numba")

_IMPORT = re.compile(r"^from (mdsd_opt[\w.]*) import", re.MULTILINE)

_COMPILING = "compiling kernels for this machine, once; this takes some seconds"
_NO_FOLDER = (
    "found no folder to keep compiled kernels in, so every process compiles them anew; "
    "set NUMBA_CACHE_DIR to a folder that can be written"
)


@overload
def kernel(function: Function) -> Function: ...


@overload
def kernel(*, contract: bool = ..., reassociate: bool = ...) -> Callable[[Function], Function]: ...


def kernel(function: Any = None, *, contract: bool = False, reassociate: bool = False) -> Any:
    """Compile a function with numba: no GIL, IEEE division, cached on disk.

    With `contract=True` the compiler may fuse a multiplication and an addition, with
    `reassociate=True` it may also reorder sums, which lets it vectorise them (and nothing else).
    """
    if function is None:
        return functools.partial(kernel, contract=contract, reassociate=reassociate)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    if reassociate:
        options["fastmath"] = {"contract", "reassoc"}
    elif contract:
        options["fastmath"] = {"contract"}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder it may write to
        _say_once(_NO_FOLDER)
        return numba.njit(**options)(function)
    _stamp_with_sources(dispatcher)
    _ignore_unreadable(dispatcher)
    return dispatcher


def _stamp_with_sources(dispatcher: Any) -> None:
    """Make cached code depend on the files of all kernels it may call, not only on its own.

    numba itself compares only the file of the outermost function, and would go on using machine
    code in which an old version of a helper from another file is inlined.
    """
    cache_file: Any = getattr(dispatcher._cache, "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        hashes = tuple(
            _hash(path) for path in sorted(_sources(dispatcher.py_func.__code__.co_filename))
        )
        cache_file._source_stamp = (cache_file._source_stamp, hashes)


def _ignore_unreadable(dispatcher: Any) -> None:
    """Compile anew where cached code cannot be read: cut short, or of a version before a move.

    numba unpickles what it finds before it compares versions of ours, and a name that no longer
    exists would end the program.
    """
    cache_file: Any = getattr(dispatcher._cache, "_cache_file", None)
    for name, nothing in (("_load_index", dict), ("load", lambda: None)):
        if hasattr(cache_file, name):
            setattr(cache_file, name, _readable_or(nothing, getattr(cache_file, name)))


def _readable_or(nothing: Callable[[], Any], load: Callable[..., Any]) -> Callable[..., Any]:
    def forgiving(*key: Any) -> Any:
        try:
            return load(*key)
        except Exception:  # unpickling may raise anything
            return nothing()

    return forgiving


def _sources(path: str) -> set[str]:
    """The file of a kernel and those it imports from this package, and so on through kernel files.

    Imports are read off the text: a constant does not know the file it came from.
    """
    found: set[str] = set()
    pending = [path]
    while pending:
        path = pending.pop()
        if path not in found:
            found.add(path)
            if path.endswith("_kernels.py"):
                pending += _imported_files(path)
    return found


@functools.cache
def _imported_files(path: str) -> list[str]:
    names = _IMPORT.findall(Path(path).read_text(encoding="utf-8"))
    specs = (importlib.util.find_spec(name) for name in names)
    return [str(spec.origin) for spec in specs if spec is not None]


def _is_ours(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "mdsd_opt"


@functools.cache
def _hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@functools.cache
def _say_once(message: str) -> None:
    _log.warning("mdsd_opt: %s", message)


class _CompilationNote(event.Listener):  # type: ignore[misc]  # numba has no types
    """Say that a compilation starts, once a process: else the first call seems to hang."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        if _is_ours(event.data["dispatcher"].py_func):
            with self._lock:
                _say_once(_COMPILING)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _CompilationNote())
