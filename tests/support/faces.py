"""Faces of rooms: the names that their stubs give to others."""

from __future__ import annotations

import ast
from pathlib import Path


def face_of(room: Path) -> dict[str, str]:
    """Names that a room's stub gives to others, each with the module that is imported for it."""
    stub = room / "__init__.pyi"
    if not stub.exists():
        return {}
    nodes = ast.parse(stub.read_text(encoding="utf-8")).body
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or alias.name for node in found for alias in node.names}
