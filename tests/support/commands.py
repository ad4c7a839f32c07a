"""The commands of the program, as they are when they are asked for."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from mdsd_opt.cli.app import app


def verbs() -> dict[str, Any]:
    """Verbs by name, groups of kinds among them."""
    program: Any = get_command(app)
    return {name: program.get_command(None, name) for name in program.list_commands(None)}


def commands() -> dict[str, Any]:
    """Commands by the words that call them, as ``audit chain``."""
    found = {}
    for verb, command in verbs().items():
        kinds = getattr(command, "commands", None)
        found |= {f"{verb} {kind}": x for kind, x in kinds.items()} if kinds else {verb: command}
    return found
