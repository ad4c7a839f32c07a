"""Audits as views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mdsd_opt.cli.report.audit_plot import audit_figure
from mdsd_opt.cli.view import Drawing, Section, View

if TYPE_CHECKING:
    from mdsd_opt.auditing import AuditReport
    from mdsd_opt.auditing.engines import EngineAudit

_QUESTION = "is the output distributed as the target?"


def audit_view(report: AuditReport, subject: str) -> View:
    """What was audited, every number that was found, and the verdict."""
    shows = (
        "The p-value of each check; one that goes beyond its black line convicts. Together they "
        f"accuse a faultless verifier with a probability of {report.false_alarm:g} at most."
    )
    if report.tokens:
        shows = f"Left, the tokens that deviate most. Right: {shows[0].lower()}{shows[1:]}"
    verdict, *rows = report.rows()
    return View(
        f"{_QUESTION.capitalize()}\n{subject}",
        [Section(text=f"{_QUESTION} {subject}"), Section("In numbers", values=rows)],
        [": ".join(verdict)],
        report.to_dict(),
        Drawing(partial(audit_figure, report), shows),
        findings=[report.verdict],
    )


def engines_view(audits: Sequence[EngineAudit], left_out: Sequence[str]) -> View:
    """What the standard audits say about engines, and which engines were left out and why."""
    tables = []
    for audit in audits:
        name = audit.engine.name
        tables += [Section(text=f"{name}: {_QUESTION}"), Section(name, values=audit.rows())]
    lossy = [audit.engine.name for audit in audits if not audit.lossless]
    return View(
        f"{_QUESTION.capitalize()}\nFunctions that installed engines ship",
        tables,
        [f"not lossless: {', '.join(lossy)}" if lossy else "no engine was found lossy"],
        {"engines": [audit.row() for audit in audits], "left_out": list(left_out)},
        findings=[
            f"{audit.engine.name}: {'lossless' if audit.lossless else 'not lossless'}"
            for audit in audits
        ],
    )
