"""mdsd-opt audit --engine: what installed engines ship, one or all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mdsd_opt.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from mdsd_opt.auditing.engines import EngineAudit


def audit_engines(
    name: str,
    any_version: bool,
    seconds: float,
    seed: int,
    as_json: bool,
    page: Path | None = None,
) -> None:
    """Audit an engine, or all that are installed and quick; exit code 1 if one is not lossless."""
    # Triton reads this when it is imported, which other engines do as well.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from mdsd_opt.auditing import engines
    from mdsd_opt.cli.output import remark, say, show_rows
    from mdsd_opt.cli.report.tables import as_json as to_json

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
    if as_json:
        print(to_json({"engines": [audit.row() for audit in audits], "left_out": missing}))
    else:
        for audit in audits:
            say(f"{audit.engine.name}: is the output distributed as the target?")
            show_rows(audit.rows())
        lossy = [audit.engine.name for audit in audits if not audit.lossless]
        say(f"not lossless: {', '.join(lossy)}" if lossy else "no engine was found lossy")
    if page is not None:
        from mdsd_opt.cli.report.audit_page import save_engines_page

        save_engines_page(page, audits)
        remark(f"report saved as {page}")
    if not all(audit.lossless for audit in audits):
        raise typer.Exit(1)
