"""How verbs speak: tables to stdout, remarks to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def show_table(table: Table) -> None:
    """Print a table; a pipe or file gets it at its natural width, a terminal at its own."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 120
    console = Console(width=width, highlight=False, emoji=False)
    console.print(table)


def remark(text: Any) -> None:
    """One line to stderr."""
    print(f"mdsd-opt: {text}", file=sys.stderr)
