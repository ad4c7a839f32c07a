"""mdsd-opt audit --engine: what installed engines ship, one or all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from mdsd_opt.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from mdsd_opt.auditing.engines import EngineAudit
    from mdsd_opt.cli.view import Form


def audit_engines(
    name: str,
    any_version: bool,
    seconds: float,
    seed: int,
    form: Form,
) -> None:
    """Audit an engine, or all that are installed and quick; exit code 1 if one is not lossless."""
    # Triton reads this when it is imported, which other engines do as well.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from mdsd_opt.auditing import engines
    from mdsd_opt.cli.report.audits import engines_view
    from mdsd_opt.cli.view import present

    audits: list[EngineAudit] = []
    missing: list[str] = []
    for wanted in engines.names() if name == "all" else (name,):
        if name == "all" and engines.takes_long(wanted):
            missing.append(f"{wanted}: takes more than ten minutes, ask for it by its name")
            continue
        try:
            engine = engines.get(wanted, any_version=any_version)
        except (InvalidInput, MissingExtra) as error:
            if name != "all":
                raise
            missing.append(f"{wanted}: {error}")
            continue
        if name == "all":
            typer.echo(f"auditing {wanted} ...", err=True)
        audits.append(engines.audit_engine(engine, seed, seconds))
    for line in missing:
        typer.echo(f"left out {line}", err=True)
    if not audits:
        raise InvalidInput("no engine with an adapter is installed")
    present(engines_view(audits, missing), form)
    if not all(audit.lossless for audit in audits):
        raise typer.Exit(1)
