"""Every module and public name of a package asked for first, each in a process of its own.

    python first_imports.py '{"package": "mdsd_opt", "ready": ["numpy"], "absent": ["torch"]}'

Processes are forked from one that has imported what is `ready` and nothing of the package, so that
third parties, which take most of the time, are imported once. `import a.b.c` imports a, then a.b,
then a.b.c: the process that has done the first two forks one for each module and each public name
that stands below, which goes on as a fresh interpreter would. What is `absent` is not found, as if
it were not installed. A line of JSON tells what was asked for, the class of the error ("": none),
the package that is missing by its account ("": none), and its message.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any


class Finder:
    """A finder that does not find what is absent."""

    def __init__(self, finder: Any, absent: list[str]) -> None:
        self._finder, self._absent = finder, absent

    def find_spec(self, name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in self._absent:
            return None
        return self._finder.find_spec(name, *rest)

    def __getattr__(self, name: str) -> Any:  # installed distributions are asked for here, too
        return getattr(self._finder, name)


class FirstImports:
    def __init__(self, package: str) -> None:
        self._package = package

    def run(self, statements: list[str]) -> None:
        loaded = [name for name in sys.modules if name.partition(".")[0] == self._package]
        assert not loaded, f"{loaded} are there already"
        for code in statements:
            self._ask(code, partial(exec, code, {}))
        self._ask(self._package, partial(importlib.import_module, self._package), self._below)

    def _below(self, module: ModuleType) -> None:
        """Ask for what stands in a package, in a process that has imported it and no more."""
        public = {*dir(module), *getattr(module, "__all__", ())}
        for name in sorted(public - vars(module).keys()):  # what is there imports no more
            self._ask(f"{module.__name__}:{name}", partial(getattr, module, name))
        for _, name, is_package in pkgutil.iter_modules(module.__path__, f"{module.__name__}."):
            then = self._below if is_package else None
            if not name.endswith(".__main__"):  # a program
                self._ask(name, partial(importlib.import_module, name), then)

    def _ask(
        self, what: str, step: Callable[[], Any], then: Callable[[Any], None] | None = None
    ) -> None:
        """Take a step in a process of its own, and say how it ended; go on there where it did."""
        child = os.fork()
        if not child:
            code = 1
            try:
                self._take(what, step, then)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            self._tell(what, "process", "", f"ended with {os.waitstatus_to_exitcode(status)}")

    def _take(self, what: str, step: Callable[[], Any], then: Callable[[Any], None] | None) -> None:
        try:
            result = step()
        except BaseException as error:  # whoever ends the process is told of, too
            self._tell(what, type(error).__name__, self._missing(error), str(error))
            return
        self._tell(what)
        if then is not None:
            then(result)

    def _missing(self, error: BaseException) -> str:
        if not isinstance(error, ModuleNotFoundError) or not error.name:
            return ""
        top = error.name.partition(".")[0]
        return top if importlib.util.find_spec(top) is None else ""

    def _tell(self, what: str, error: str = "", missing: str = "", message: str = "") -> None:
        print(json.dumps([what, error, missing, message]), flush=True)


def first_imports(package: str, place: Path, **asked: list[str]) -> dict[str, tuple[str, ...]]:
    """Error, missing package and message of all that was asked for, by a process of its own."""
    question = json.dumps({"package": package, "ready": [], "absent": [], **asked})
    environment = {**os.environ, "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes read what one compiled
    done = subprocess.run(
        [sys.executable, __file__, question],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return {what: tuple(rest) for what, *rest in map(json.loads, done.stdout.splitlines())}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    sys.meta_path[:] = [Finder(finder, asked["absent"]) for finder in sys.meta_path]
    for name in asked["ready"]:
        importlib.import_module(name)
    FirstImports(asked["package"]).run(asked.get("statements", []))
