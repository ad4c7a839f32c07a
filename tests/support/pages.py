"""Examples of documentation: blocks of a page run in order, as far as what is installed goes."""

from __future__ import annotations

import doctest
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, WithReplacement
from mdsd_opt.errors import MissingExtra

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(pycon|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Pages with examples.
PAGES = sorted(
    str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if FENCE.search(page.read_text())
)

#: Distributions that are imported by another name.
_MODULES = {"pycddlib": "cdd", "pplpy": "ppl", "cupy-cuda13x": "cupy"}


def extras() -> dict[str, str]:
    """The extra that brings a module, by the module's name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, str] = {}
    for extra, lines in project["optional-dependencies"].items():
        for line in lines:
            name = re.split(r"[^\w.-]", line)[0]
            found.setdefault(_MODULES.get(name, name), extra)
    return found


def what_is_missing(error: ImportError) -> str:
    """The extra that an example needs and that is not installed; nothing if it is another fault."""
    if isinstance(error, MissingExtra):
        return str(error)
    module = (error.name or "").partition(".")[0]
    extra = extras().get(module)
    if extra is None or importlib.util.find_spec(module) is not None:
        return ""
    return f"needs {module}, which the extra {extra} brings"


class _Runner(doctest.DocTestRunner):
    """Ends where a module is missing, as a script does."""

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, exc_info: Any) -> None:
        if isinstance(exc_info[1], ImportError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


def run_page(text: str, name: str) -> tuple[list[str], str]:
    """Run the blocks of a page in order, in one namespace, up to one that needs more.

    Returns
    -------
    failures : list of str
        What did not match.
    missing : str
        Where the page needs an extra that is not installed, and which; it goes no further then.
    """
    namespace: dict[str, object] = {"__name__": name}
    failures: list[str] = []
    missing = ""
    runner = _Runner(verbose=False, optionflags=doctest.ELLIPSIS)
    for fence in FENCE.finditer(text):
        language, code = fence.groups()
        line = text[: fence.start()].count("\n") + 1
        try:
            if language == "python":
                exec(compile("\n" * line + code, name, "exec"), namespace)
                continue
            test = doctest.DocTestParser().get_doctest(code, namespace, name, name, line)
            runner.run(test, out=failures.append, clear_globs=False)
            namespace = test.globs
        except ImportError as error:
            missing = what_is_missing(error)
            if not missing:
                raise
            break
    for value in namespace.values():  # what a reader's own process would close at its end
        if isinstance(value, np.lib.npyio.NpzFile):
            value.close()
    return failures, missing


@contextmanager
def reader_at(folder: Path) -> Iterator[None]:
    """A reader who begins anew: files go into a folder, what is registered is forgotten."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        for held in (
            "verifiers.base.VERIFIERS",
            "solvers.solving.METHODS",
            "trees.rules.RULES",
        ):
            monkeypatch.setattr(f"mdsd_opt.{held}.registered", {})
        monkeypatch.setitem(SINGLE_MODEL_SCHEMES, "spread", WithReplacement)
        del SINGLE_MODEL_SCHEMES["spread"]  # some page registers it: what was set is taken back
        yield


def run_docs(page: str, folder: Path) -> tuple[list[str], str]:
    """The same of a page of the documentation, by a reader in an empty folder."""
    with reader_at(folder):
        return run_page((DOCS / page).read_text(), page)
