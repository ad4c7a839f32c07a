"""Faces of rooms: the names that their stubs give to others."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import mdsd_opt as mo


def face_of(room: Path) -> dict[str, str]:
    """Names that a room's stub gives to others, each with the module that is imported for it."""
    stub = room / "__init__.pyi"
    if not stub.exists():
        return {}
    nodes = ast.parse(stub.read_text(encoding="utf-8")).body
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or alias.name for node in found for alias in node.names}


def public() -> dict[str, Any]:
    """What is public, by name, in the rooms as well."""
    names = {x.name for x in pkgutil.iter_modules(mo.__path__) if x.ispkg} | {*mo._MODULES}
    rooms = [mo, *(import_module(f"mdsd_opt.{name}") for name in sorted(names))]
    return {name: getattr(room, name) for room in rooms for name in getattr(room, "__all__", ())}


def public_functions() -> dict[str, Callable[..., Any]]:
    """The functions of it."""
    return {name: x for name, x in public().items() if inspect.isfunction(x)}
