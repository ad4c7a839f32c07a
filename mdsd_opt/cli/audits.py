"""Views of audits, and the picture of the tokens that deviate and the checks that see it.

Verdicts are also written as JUnit's XML, which continuous integration shows as tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar
from xml.etree import ElementTree

from mdsd_opt._version import __version__
from mdsd_opt.base.files import atomic_write
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.evidence import ANSWERS, Bar
from mdsd_opt.plots import audit_figure, portfolio_figure

if TYPE_CHECKING:
    from mdsd_opt.auditing import AuditReport, EngineAudit
    from mdsd_opt.evidence import Report


_QUESTION = "is the output distributed as the target?"

#: Words under the picture of a report on laws of all kinds.
_SHOWS_LAWS = (
    "Distance of the output from the target on each kind of laws: exact where the law was "
    "found, else the interval of a sample. Green: lossless, blue: no deviation in a sample, "
    "yellow: an edge, grey: not judged, violet: not settled, red: lossy."
)


AnyReport = TypeVar("AnyReport", bound="Report")


@dataclass(frozen=True)
class Answered(Result, Generic[AnyReport]):
    """What is told of an audit: the report, and the answer by what was asked of it."""

    report: AnyReport
    bar: Bar
    answer: str
    told_as: str

    columns: ClassVar = ("*report", "*bar", "answer", Column("told", of="told_as"))

    def tables(self) -> list[Table]:
        """That of the report, with the answer by what was asked of it."""
        (table,) = self.report.tables()
        return [replace(table, rows=[("answer", self.answer), *table.rows[1:]])]


@dataclass(frozen=True)
class AnsweredEngine(Result):
    """What is told of the audit of an engine."""

    audit: EngineAudit
    answer: str

    columns: ClassVar = ("*audit", "answer")


@dataclass(frozen=True)
class Engines(Result):
    """What is told of engines beside each other."""

    engines: Sequence[AnsweredEngine]
    left_out: Sequence[str]
    bar: Bar
    answer: str

    columns: ClassVar = ("engines", "left_out", "*bar", "answer")

    def tables(self) -> list[Table]:
        """A line for each engine."""
        names = ("engine", "package", "answer", "verdict_class", "detectable_bias", "finding")
        rows = [x.to_dict() for x in self.engines]
        return [Table("engines", [Column(x, of=itemgetter(x), is_text=True) for x in names], rows)]


def audit_view(report: Report, subject: str, bar: Bar) -> View:
    """View of the subject of an audit, every number that was found, and the answer."""
    from mdsd_opt.auditing import AuditReport, PortfolioReport

    _, *rows = report.rows()
    answer, sentence = bar.answer(report), bar.told(report)
    document = Answered(report, bar, answer, sentence)
    odd = report.example
    example = [] if odd is None else [f"For example: {odd.said}", *filter(None, [odd.repeat])]
    heading, figure = "On which laws, and what came of it", None
    if isinstance(report, AuditReport):
        heading, figure = "In numbers", _of_checks(report)
    elif isinstance(report, PortfolioReport):
        figure = Drawing(partial(portfolio_figure, report), _SHOWS_LAWS)
    return View(
        f"{_QUESTION.capitalize()}\n{subject}",
        [Section(text=f"{_QUESTION} {subject}"), Section(heading, values=rows)],
        [sentence],
        document,
        figure,
        findings=[sentence, *example],
        verdict=answer,
        code=ANSWERS[answer],
    )


def _of_checks(report: AuditReport) -> Drawing:
    shows = (
        "The p-value of each check; one that goes beyond its black line convicts. Together they "
        f"accuse a faultless verifier with a probability of {report.false_alarm:g} at most."
    )
    if report.tokens:
        shows = f"Above, the tokens that deviate most. Below: {shows[0].lower()}{shows[1:]}"
    return Drawing(partial(audit_figure, report), shows)


def engines_view(audits: Sequence[EngineAudit], left_out: Sequence[str], bar: Bar) -> View:
    """View of the standard audits of engines, and of the engines that were left out and why."""
    tables = []
    for audit in audits:
        name = audit.engine.name
        tables += [Section(text=f"{name}: {_QUESTION}"), Section(name, values=audit.rows())]
    answers = [bar.answer(audit) for audit in audits]
    sentences = [f"{a.engine.name}: {answer}" for a, answer in zip(audits, answers, strict=True)]
    worst = max(answers, key=list(ANSWERS).index)
    rows = [*map(AnsweredEngine, audits, answers)]
    return View(
        f"{_QUESTION.capitalize()}\nFunctions that installed engines ship",
        tables,
        ["; ".join(sentences)],
        Engines(rows, left_out, bar, worst),
        findings=sentences,
        verdict=worst,
        code=ANSWERS[worst],
    )


#: Letters that XML cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class TestCase:
    """Answer on one subject: passed where its exit code is 0, failed for 1, else undecided."""

    __test__ = False  # it is none of pytest's

    subject: str
    code: int
    told: str
    rows: Sequence[tuple[str, str]] = ()


def save_junit(path: str | os.PathLike[str], cases: Sequence[TestCase]) -> None:
    """Write the verdicts, a test each; undecided ones are errors, which a pipeline stops at."""
    counts = {"tests": len(cases), "failures": sum(case.code == 1 for case in cases)}
    counts["errors"] = sum(case.code not in (0, 1) for case in cases)
    totals = {name: str(count) for name, count in counts.items()}
    suites = ElementTree.Element("testsuites", totals)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "mdsd-opt audit", **totals})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "mdsd_opt", "value": __version__})
    for case in cases:
        named = {"classname": "mdsd_opt.audit", "name": _clean(case.subject)}
        test = ElementTree.SubElement(suite, "testcase", named)
        if case.code:
            kind = "failure" if case.code == 1 else "error"
            fault = ElementTree.SubElement(test, kind, {"message": _clean(case.told)})
            fault.text = _clean(case.told)
        out = ElementTree.SubElement(test, "system-out")
        out.text = _clean("\n".join(f"{label}: {value}" for label, value in case.rows))
    ElementTree.indent(suites)
    with atomic_write(path) as file:
        ElementTree.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
