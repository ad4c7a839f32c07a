"""Faces of rooms: the names that their stubs give to others."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
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


def public_functions() -> dict[str, Callable[..., Any]]:
    """Public functions by name, those of the rooms as well."""
    rooms = [mo, *(x for name in dir(mo) if isinstance(x := getattr(mo, name), ModuleType))]
    named = {name: getattr(room, name) for room in rooms for name in getattr(room, "__all__", ())}
    return {name: x for name, x in named.items() if inspect.isfunction(x)}
