"""An audit as a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdsd_opt.cli.report.audit_plot import audit_figure
from mdsd_opt.cli.report.pages import Picture, Section, save_page

if TYPE_CHECKING:
    from mdsd_opt.auditing import AuditReport
    from mdsd_opt.auditing.engines import EngineAudit

_TITLE = "Is the output distributed as the target?"


def save_audit_page(path: str | os.PathLike[str], report: AuditReport, subject: str) -> None:
    """The verdict, the picture, and every number behind it.

    Parameters
    ----------
    path : path
    report : AuditReport
    subject : str
        What was audited.
    """
    shows = (
        "The p-value of each check; one that goes beyond its black line convicts. Together they "
        f"accuse a faultless verifier with a probability of {report.false_alarm:g} at most."
    )
    if report.tokens:
        shows = f"Left, the tokens that deviate most. Right: {shows[0].lower()}{shows[1:]}"
    sections = [
        Section(picture=Picture.of(audit_figure(report), shows)),
        Section("In numbers", values=report.rows()[1:]),
    ]
    save_page(path, f"{_TITLE}\n{subject}", [report.verdict], sections)


def save_engines_page(path: str | os.PathLike[str], audits: Sequence[EngineAudit]) -> None:
    """What the standard audits say about engines."""
    found = [
        f"{audit.engine.name}: {'lossless' if audit.lossless else 'not lossless'}"
        for audit in audits
    ]
    sections = [Section(audit.engine.name, values=audit.rows()) for audit in audits]
    save_page(path, f"{_TITLE}\nFunctions that installed engines ship", found, sections)
