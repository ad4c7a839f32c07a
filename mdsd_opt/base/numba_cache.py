"""Compilation of kernels, and storage of the compiled code.

Compiling takes seconds, loading compiled code milliseconds, so compiled code is kept on disk: in
`NUMBA_CACHE_DIR` if it is set, else in the user's cache folder. The folder is named after what the
code was made from, so that all environments with the same kernels share it, wherever they are
installed, and none ever loads code of other kernels. Where no folder can be written, a kernel is
compiled anew by every process.

A file that imports this one imports numba (0.4 s): import it where a kernel is needed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import logging
import os
import pickle
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

import llvmlite
import numba
from llvmlite import binding
from numba import types
from numba.core import caching, compiler, event, serialize
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.runtime import rtsys
from numba.core.typed_passes import AnnotateTypes

from mdsd_opt._version import __version__
from mdsd_opt.base import long_runs
from mdsd_opt.base.long_runs import working
from mdsd_opt.errors import InvalidInput

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger("mdsd_opt.numba")

_PACKAGE = Path(__file__).parents[1]

#: Modules that kernels may import from, beside other kernels.
OTHER_SOURCES = ("base/arrays.py", "base/distributions.py", "problem/water_filling.py")

#: Number of other versions' folders that are kept when a new one is made.
_FOLDERS_KEPT = 7

_COMPILING = "compiling kernels, once for each kind of command; it takes seconds"
_NO_FOLDER = (
    "found no folder to keep compiled kernels in, so every process compiles them anew; "
    "set NUMBA_CACHE_DIR to a folder that can be written"
)


@overload
def kernel(function: Function) -> Function: ...


@overload
def kernel(
    *, contract: bool = ..., reassociate: bool = ..., inner: bool = ...
) -> Callable[[Function], Function]: ...


def kernel(
    function: Any = None, *, contract: bool = False, reassociate: bool = False, inner: bool = False
) -> Any:
    """Compile a function with numba: no GIL, IEEE division, cached on disk.

    With `contract=True` the compiler may fuse a multiplication and an addition, with
    `reassociate=True` it may also reorder sums, which lets it vectorise them (and nothing else).
    With `inner=True` other kernels alone can call the function, and it cannot make arrays: it is
    compiled as a part of them, a quarter faster, not kept by itself, and counts no references,
    which takes longer than a short function.
    """
    if function is None:
        return functools.partial(kernel, contract=contract, reassociate=reassociate, inner=inner)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    if reassociate:
        options["fastmath"] = {"contract", "reassoc"}
    elif contract:
        options["fastmath"] = {"contract"}
    if inner:
        options["no_cpython_wrapper"] = True
        options["_nrt"] = False  # nothing is allocated, so there is nothing to count
        options["pipeline_class"] = InnerCompiler
    if numba.config.DISABLE_JIT:
        raise InvalidInput("NUMBA_DISABLE_JIT is set, and kernels run only compiled: unset it")
    dispatcher = numba.njit(**options)(function)
    if not inner:
        dispatcher._cache = KernelCache(function)
    _take_literals_as_numbers(dispatcher)
    return dispatcher


def _take_literals_as_numbers(dispatcher: Any) -> None:
    """Compile once for any number: numba would compile anew for every literal that callers name."""
    find = dispatcher.get_call_template

    def find_for_numbers(args: Any, kws: Any) -> Any:
        return find([types.unliteral(arg) for arg in args], kws)

    dispatcher.get_call_template = find_for_numbers


class KernelCache(caching._Cache):  # type: ignore[misc]  # numba has no types
    """Compiled code of one kernel, a file for each signature and processor.

    numba's own cache is keyed by the place of the source, compares none but the kernel's own file,
    and may mix up two signatures that two processes compile at once. Files here are named after all
    that went into them and appear under that name when they are complete, so nothing is compared
    and nothing is shared.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @property
    def cache_path(self) -> str:
        return str(cache_folder())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code for a signature; None if there is none, or none that can be read."""
        # Compiled code needs no more of numba; the compiler takes half a second to load.
        rtsys.initialize(target_context)
        try:
            payload = pickle.loads(self._path(sig, target_context.codegen()).read_bytes())
            return compiler.CompileResult._rebuild(target_context, *payload)
        except Exception:  # cut short, or of other versions: unpickling may raise anything
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store compiled code, if there is a place for it."""
        path = self._path(sig, data.codegen)
        unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            _make_folder(path.parent)
            unfinished.write_bytes(serialize.dumps(data._reduce()))
            unfinished.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            say_once(_NO_FOLDER)

    def _path(self, sig: Any, codegen: Any) -> Path:
        code = self._function.__code__
        made_from = (sig, codegen.magic_tuple(), code.co_firstlineno, code.co_code)
        name = kernel_name(self._function)
        return cache_folder() / f"{name}-{_digest(repr(made_from).encode())}.code"

    def enable(self) -> None:
        """Do nothing: the cache is always enabled, and its content is never out of date."""

    disable = flush = enable


def kernel_name(function: Callable[..., Any]) -> str:
    """File and name of the kernel, as the files of its compiled code begin."""
    return f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"


def cache_folder() -> Path:
    """Folder where this version of the kernels keeps its code; it need not exist."""
    return _cache_root() / _folder_name()


def _cache_root() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        home = "~/Library/Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(home).expanduser() / "mdsd-opt"
    except RuntimeError:  # no HOME, and a user whom the system does not know
        return Path(os.devnull)


@functools.cache
def _folder_name() -> str:
    """Name of the folder, from versions of all that compiles and the kernels' sources."""
    versions = (sys.version_info[:2], numba.__version__, llvmlite.__version__)
    sources = [*sorted(_PACKAGE.rglob("*_kernels.py")), *(_PACKAGE / x for x in OTHER_SOURCES)]
    content = b"".join(path.read_bytes() for path in sources)
    return f"mdsd-opt-{__version__}-{_digest(repr(versions).encode() + content)}"


def _make_folder(folder: Path) -> None:
    """Make the folder; when it is new, delete those of versions that were used long ago."""
    if folder.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    others = [path for path in folder.parent.glob("mdsd-opt-*") if path != folder]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_FOLDERS_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def seconds_compiled() -> float:
    """Seconds for which this process has compiled so far."""
    return _compilations.seconds


def _is_ours(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "mdsd_opt"


@functools.cache
def say_once(message: str) -> None:
    """Log a warning that need not be repeated."""
    _log.warning("mdsd_opt: %s", message)


class _Compilations(event.Listener):  # type: ignore[misc]  # numba has no types
    """Listener that reports compilations, which may seem to hang, and times and shortens them.

    On a terminal the report is a line that goes away, with its number among the kernels that the
    process expects to call and that nobody has compiled; elsewhere it is printed once per process.
    Numba compiles one function after the other; those that one calls are compiled within. Meanwhile
    no garbage is collected: looking through what the compiler holds finds next to nothing, again
    and again, for a tenth of the time.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0
        self._collects_garbage = False
        self._line = contextlib.ExitStack()
        self._count = 0  # of ours, compiled by this process
        self._at_most = 0

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._began = time.perf_counter()
        self._collects_garbage = gc.isenabled()
        gc.disable()
        function = event.data["dispatcher"].py_func
        if not _is_ours(function):
            return
        if sys.stderr is not None and sys.stderr.isatty():
            module = function.__module__.rpartition(".")[2].removesuffix("_kernels")
            said = f"compiling, once: {module.replace('_', ' ')}{self._numbered()}"
            self._line.enter_context(working(said))
        else:
            say_once(_COMPILING)

    def _numbered(self) -> str:
        """Number of the current kernel among those still to be compiled, if that is known."""
        if not self._count:
            names = {path.name.partition("-")[0] for path in cache_folder().glob("*.code")}
            self._at_most = len(set(long_runs.expected_kernels) - names)
        self._count += 1
        known = self._count <= self._at_most
        return f" ({self._count} of at most {self._at_most})" if known else ""

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            if self._collects_garbage:
                gc.enable()
            self.seconds += time.perf_counter() - self._began
            self._line.close()


_compilations = _Compilations()
event.register("numba:compile", _compilations)


class LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """Code of a function that is only ever linked into the code of others."""

    def _optimize_final_module(self) -> None:
        """Skip optimisation: the code it is linked into is optimised as a whole."""

    def _finalize_final_module(self) -> None:
        """Make no machine code; numba writes addresses to the variables of environments."""
        self._finalize_dynamic_globals()
        names = [variable.name for variable in self._final_module.global_variables]
        self._codegen._add_module(
            binding.parse_assembly(
                "\n".join(
                    f'@"{name}" = common global i64 0' for name in names if "NumbaEnv" in name
                )
            )
        )
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _LinkOnly(LoweringPass):  # type: ignore[misc]
    _name = "mdsd_opt_link_only"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


class InnerCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler for functions that other compiled functions alone can call.

    Numba optimises a function, makes machine code of it, links it into its callers and optimises
    these, at every level of the calls. An inner kernel never runs by itself, so what counts is done
    once, in the kernel that is called from Python: that takes a quarter off the time to compile.
    """

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_LinkOnly, AnnotateTypes)
        passes.finalize()
        return [passes]
