"""mdsd-opt audit engine: functions that an installed engine ships, or all that are quick."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from mdsd_opt.cli.audits.common import Audited, Seed
from mdsd_opt.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from mdsd_opt.auditing import EngineAudit


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """An engine by its name, and a limit."""

    engine: Annotated[
        str,
        "What an installed engine ships: transformers, lmdeploy, eagle, vllm, sglang and "
        "others, module:ADAPTER of your own, or all for a table of those that are installed.",
    ]
    any_version: Annotated[bool, "Call versions of an engine that were not tested."] = False
    seconds: Annotated[float | None, "Limit of time of each audit, named where it is reached."] = (
        None
    )
    seed: Seed = 0


def run(options: Options) -> Audited:
    """Audits of an engine, or of all that are installed and quick."""
    # Triton reads this when it is imported, which other engines do as well.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from mdsd_opt.auditing import engines
    from mdsd_opt.cli.report.audits import engines_view

    name = options.engine
    audits: list[EngineAudit] = []
    missing: list[str] = []
    for wanted in engines.names() if name == "all" else (name,):
        if name == "all" and engines.takes_long(wanted):
            missing.append(f"{wanted}: takes more than ten minutes, ask for it by its name")
            continue
        try:
            engine = engines.get(wanted, any_version=options.any_version)
        except (InvalidInput, MissingExtra) as error:
            if name != "all":
                raise
            missing.append(f"{wanted}: {error}")
            continue
        if name == "all":
            typer.echo(f"auditing {wanted} ...", err=True)
        audits.append(engines.audit_engine(engine, options.seed, options.seconds))
    for line in missing:
        typer.echo(f"left out {line}", err=True)
    if not audits:
        raise InvalidInput("no engine with an adapter is installed")
    subjects = [(f"engine {audit.engine.name}", audit) for audit in audits]
    return Audited(subjects, lambda bar: engines_view(audits, missing, bar))
