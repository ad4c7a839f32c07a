"""Dotted names from before the rooms were laid out anew: they import the current module.

The same module stands under both names, so a class is one class whichever way it was reached.
Names that documents and other people's scripts use stay; the others warn, for one release.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Current modules of names that stay: they are public under the short name.
PUBLIC = {
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

#: Current modules of old names, which go with the next release.
MOVED = {
    "mdsd_opt.cli.bench": "mdsd_opt.bench",
    "mdsd_opt.corpora.advice": "mdsd_opt.planning.advice",
    "mdsd_opt.corpora.draft_choice": "mdsd_opt.planning.draft_choice",
    "mdsd_opt.corpora.draft_temperature": "mdsd_opt.planning.draft_temperature",
    "mdsd_opt.corpora.model_advice": "mdsd_opt.planning.model_advice",
    "mdsd_opt.corpora.position_rates": "mdsd_opt.planning.tree_forecasts",
    "mdsd_opt.corpora.step_costs": "mdsd_opt.planning.costs",
    "mdsd_opt.corpora.tree_forecasts": "mdsd_opt.planning.tree_forecasts",
    "mdsd_opt.decoding.device_laws": "mdsd_opt.trees.device_laws",
    "mdsd_opt.decoding.draft_tree": "mdsd_opt.trees.draft_tree",
    "mdsd_opt.decoding.rules": "mdsd_opt.trees.rules",
    "mdsd_opt.decoding.topology": "mdsd_opt.trees.topology",
    "mdsd_opt.decoding.tree_plans": "mdsd_opt.trees.plans",
    "mdsd_opt.planning.counts": "mdsd_opt.formats.counts",
    "mdsd_opt.planning.engine_logs": "mdsd_opt.formats",
}


def name_of_today(name: str) -> str | None:
    """Current name of a module, or None if it never had another."""
    head, rest = name, ""
    while head:
        for table in (MOVED, PUBLIC):
            if head in table:
                return table[head] + rest
        head, dot, tail = head.rpartition(".")
        rest = dot + tail + rest
    return None


class _OldNames:
    """Finder and loader without a base: importing `importlib.abc` takes longer than the rest."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        today = name_of_today(fullname) if fullname.startswith("mdsd_opt.") else None
        loader: Any = self
        return None if today is None else ModuleSpec(fullname, loader, origin=today)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        if spec.name in MOVED:
            told = f"{spec.name} is now {spec.origin}; the old name goes with the next release"
            warnings.warn(told, DeprecationWarning, stacklevel=2)
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__  # the import system is about to put `spec` in its place
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make old names importable.

    First of all finders: that of files would find a folder that moved by its old name's parent, and
    make a second module of each file in it.
    """
    sys.meta_path.insert(0, _OldNames())
