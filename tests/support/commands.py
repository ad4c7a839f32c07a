"""The commands of the program, as they are when they are asked for."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from mdsd_opt.cli.verbs import app


def verbs() -> dict[str, Any]:
    """Verbs by name, groups of kinds among them."""
    program: Any = get_command(app)
    return {name: program.get_command(None, name) for name in program.list_commands(None)}


def kinds_of(verb: str, command: Any) -> dict[str, Any]:
    """Commands of a verb by the words that call them: its kinds, or the verb itself."""
    if not hasattr(command, "list_commands"):
        return {verb: command}
    return {f"{verb} {x}": command.get_command(None, x) for x in command.list_commands(None)}


def commands() -> dict[str, Any]:
    """Commands by the words that call them, as ``audit chain``."""
    return {words: x for verb, of in verbs().items() for words, x in kinds_of(verb, of).items()}
