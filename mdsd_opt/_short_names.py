"""Short names of modules that are public: `mdsd_opt.engines` is `mdsd_opt.auditing.engines`.

The same module stands under both names, so a class is one class whichever way it was reached.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "mdsd_opt.capture": "mdsd_opt.corpora.capture",
    "mdsd_opt.certificate": "mdsd_opt.problem.certificate",
    "mdsd_opt.draft_choice": "mdsd_opt.planning.draft_choice",
    "mdsd_opt.engines": "mdsd_opt.auditing.engines",
    "mdsd_opt.frontier": "mdsd_opt.solvers.frontier",
    "mdsd_opt.models": "mdsd_opt.decoding.models",
    "mdsd_opt.reproduce": "mdsd_opt.corpora.reproduce",
    "mdsd_opt.solution": "mdsd_opt.problem.solution",
    "mdsd_opt.tree_audit": "mdsd_opt.auditing.trees",
}


class _ShortNames:
    """Finder and loader without a base: importing `importlib.abc` takes longer than the rest."""

    def find_spec(self, fullname: str, *where: Any) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        short, dot, inside = rest.partition(".")
        module = MODULES.get(f"{package}.{short}")
        if module is None:
            return None
        loader: Any = self
        return ModuleSpec(fullname, loader, origin=module + dot + inside)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__  # the import system is about to put `spec` in its place
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make short names importable; before files, which are modules of their own by such names."""
    sys.meta_path.insert(0, _ShortNames())
