"""Views of audits, and the picture of the tokens that deviate and the checks that see it.

Verdicts are also written as JUnit's XML, which continuous integration shows as tests.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from mdsd_opt._version import __version__
from mdsd_opt.auditing.report import ANSWERS, Bar
from mdsd_opt.base.files import atomic_write
from mdsd_opt.cli.view import COLUMN, SMALL, Drawing, Section, View, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mdsd_opt.auditing import AuditReport
    from mdsd_opt.auditing.engines import EngineAudit
    from mdsd_opt.auditing.portfolio import PortfolioReport
    from mdsd_opt.auditing.report import Report


_QUESTION = "is the output distributed as the target?"


def audit_view(report: Report, subject: str, bar: Bar) -> View:
    """View of the subject of an audit, every number that was found, and the answer."""
    from mdsd_opt.auditing import AuditReport
    from mdsd_opt.auditing.portfolio import PortfolioReport

    _, *rows = report.rows()
    answer, told = bar.answer(report), bar.told(report)
    document = {**report.to_dict(), **asdict(bar), "answer": answer, "told": told}
    odd = report.example
    example = [] if odd is None else [f"For example: {odd.said}", *filter(None, [odd.repeat])]
    shared: Any = {"findings": [told, *example], "verdict": answer, "code": ANSWERS[answer]}
    title, question = f"{_QUESTION.capitalize()}\n{subject}", f"{_QUESTION} {subject}"
    if not isinstance(report, AuditReport):
        tables = [
            Section(text=question),
            Section("On which laws, and what came of it", values=rows),
        ]
        return View(
            title,
            tables,
            [told],
            document,
            _of_laws(report) if isinstance(report, PortfolioReport) else None,
            **shared,
        )
    shows = (
        "The p-value of each check; one that goes beyond its black line convicts. Together they "
        f"accuse a faultless verifier with a probability of {report.false_alarm:g} at most."
    )
    if report.tokens:
        shows = f"Above, the tokens that deviate most. Below: {shows[0].lower()}{shows[1:]}"
    return View(
        title,
        [Section(text=question), Section("In numbers", values=rows)],
        [told],
        document,
        Drawing(partial(audit_figure, report), shows),
        **shared,
    )


#: Colours of the classes of verdicts.
_COLOURS = {
    "lossless": "C2",
    "no deviation": "C0",
    "edge": "C1",
    "not judged": "0.6",
    "not settled": "C4",
    "lossy": "C3",
}

#: Smaller distances are drawn at this one.
_SMALLEST = 1e-17


def _of_laws(report: PortfolioReport) -> Drawing:
    shows = (
        "Distance of the output from the target on each kind of laws: exact where the law was "
        "found, else the interval of a sample. Green: lossless, blue: no deviation in a sample, "
        "yellow: an edge, grey: not judged, violet: not settled, red: lossy."
    )
    return Drawing(partial(portfolio_figure, report), shows)


def portfolio_figure(report: PortfolioReport) -> Figure:
    """Picture of the distance on each kind of laws, in the colour of its class."""
    tried = [one for one in report.tried if one.report is not None]
    figure = new_figure(figsize=(COLUMN, 0.9 + 0.22 * len(tried)))
    axes = figure.add_subplot()
    for place, one in enumerate(tried):
        colour = _COLOURS[one.verdict_class]
        found = max(one.report.total_variation, _SMALLEST)
        axes.plot(found, place, "o", color=colour, markersize=4.5)
        interval = one.report.total_variation_interval
        if one.report.method == "sampling" and interval is not None:
            ends = [max(end, _SMALLEST) for end in interval]
            axes.plot(ends, [place, place], color=colour, linewidth=1.5)
    axes.set_yticks(
        range(len(tried)), [f"{x.law}, V = {x.vocab_size}" for x in tried], fontsize=SMALL
    )
    axes.set(xscale="log", xlim=(_SMALLEST / 3, 2.0), ylim=(len(tried) - 0.5, -0.5))
    axes.set_xlabel("total variation", fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    axes.grid(alpha=0.3, axis="x")
    return figure


def engines_view(audits: Sequence[EngineAudit], left_out: Sequence[str], bar: Bar) -> View:
    """View of the standard audits of engines, and of the engines that were left out and why."""
    tables = []
    for audit in audits:
        name = audit.engine.name
        tables += [Section(text=f"{name}: {_QUESTION}"), Section(name, values=audit.rows())]
    answers = [bar.answer(audit) for audit in audits]
    told = [f"{a.engine.name}: {answer}" for a, answer in zip(audits, answers, strict=True)]
    worst = max(answers, key=list(ANSWERS).index)
    rows = [audit.row() | {"answer": answer} for audit, answer in zip(audits, answers, strict=True)]
    return View(
        f"{_QUESTION.capitalize()}\nFunctions that installed engines ship",
        tables,
        ["; ".join(told)],
        {"engines": rows, "left_out": list(left_out), **asdict(bar), "answer": worst},
        findings=told,
        verdict=worst,
        code=ANSWERS[worst],
    )


#: Powers of ten beyond which p-values are not distinguished.
_MOST_POWERS = 30.0


def audit_figure(report: AuditReport) -> Figure:
    """Picture of the tokens that deviate most, expected and observed, and of all p-values."""
    heights = [0.9 + 0.18 * max(len(part), 3) for part in (report.tokens, report.checks)]
    if not report.tokens:
        figure = new_figure(figsize=(COLUMN, heights[1]))
        _draw_checks(figure.add_subplot(), report)
        return figure
    figure = new_figure(figsize=(COLUMN, sum(heights)))
    tokens, checks = figure.subfigures(2, 1, height_ratios=heights)
    _draw_tokens(tokens.add_subplot(), report)
    _draw_checks(checks.add_subplot(), report)
    return figure


def _draw_tokens(axes: Axes, report: AuditReport) -> None:
    places = range(len(report.tokens))
    for place, token in zip(places, report.tokens, strict=True):
        axes.plot([token.expected, token.observed], [place, place], color="0.7", linewidth=2)
    expected = [token.expected for token in report.tokens]
    observed = [token.observed for token in report.tokens]
    axes.plot(expected, places, "o", color="0.3", mfc="white", markersize=4.5, label="the target's")
    axes.plot(observed, places, "D", color="C3", markersize=3.5, label="of the output")
    axes.set_yticks(places, [f"token {token.token}" for token in report.tokens])
    axes.set_ylim(len(expected) - 0.5, -0.5)
    axes.legend(fontsize=SMALL - 1)
    _finish(axes, "tokens that deviate most", "probability")


def _draw_checks(axes: Axes, report: AuditReport) -> None:
    checks = report.checks
    if not checks:
        axes.text(0.5, 0.5, "decided without trials", ha="center", va="center")
        axes.set_axis_off()
        return
    whole = max(sum(check.weight for check in checks), 1.0)
    for place, check in enumerate(checks):
        level = report.false_alarm * check.weight / whole
        powers = min(_powers(check.p_value), _MOST_POWERS)
        axes.barh(place, powers, color="C3" if check.p_value < level else "C0", height=0.55)
        axes.plot([_powers(level)] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1.5)
    axes.set_yticks(range(len(checks)), [check.name for check in checks])
    axes.set_xlim(0, _MOST_POWERS + 1)
    axes.set_ylim(len(checks) - 0.5, -0.5)
    ticks = range(0, int(_MOST_POWERS) + 1, 5)
    last = ticks[-1]
    axes.set_xticks(ticks, ["1", *(f"$10^{{-{n}}}$" for n in ticks[1:-1]), f"≤ $10^{{-{last}}}$"])
    _finish(axes, "checks: red beyond the black line", "p-value")


def _finish(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=SMALL + 1)
    axes.set_xlabel(label, fontsize=SMALL + 1)
    axes.tick_params(labelsize=SMALL)
    axes.grid(alpha=0.3, axis="x")


def _powers(p_value: float) -> float:
    return -math.log10(p_value) if p_value > 0 else math.inf


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
    told = {name: str(count) for name, count in counts.items()}
    suites = ElementTree.Element("testsuites", told)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "mdsd-opt audit", **told})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "mdsd_opt", "value": __version__})
    for case in cases:
        named = {"classname": "mdsd_opt.audit", "name": _clean(case.subject)}
        test = ElementTree.SubElement(suite, "testcase", named)
        if case.code:
            kind = "failure" if case.code == 1 else "error"
            found = ElementTree.SubElement(test, kind, {"message": _clean(case.told)})
            found.text = _clean(case.told)
        out = ElementTree.SubElement(test, "system-out")
        out.text = _clean("\n".join(f"{label}: {value}" for label, value in case.rows))
    ElementTree.indent(suites)
    with atomic_write(path) as file:
        ElementTree.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
