"""Pictures of audits: tokens that deviate and the checks that see it; the distance by law."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mdsd_opt.plots.drawing import COLUMN, SMALL, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mdsd_opt.auditing import AuditReport, PortfolioReport

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


def portfolio_figure(report: PortfolioReport) -> Figure:
    """Picture of the distance on each kind of laws, in the colour of its class."""
    tried = [one for one in report.tried if one.report is not None]
    figure = new_figure(figsize=(COLUMN, 0.9 + 0.22 * len(tried)))
    axes = figure.add_subplot()
    for place, one in enumerate(tried):
        colour = _COLOURS[one.verdict_class]
        distance = max(one.report.total_variation, _SMALLEST)
        axes.plot(distance, place, "o", color=colour, markersize=4.5)
        interval = one.report.total_variation_interval
        if one.report.method == "sampling" and interval is not None:
            ends = [max(end, _SMALLEST) for end in interval]
            axes.plot(ends, [place, place], color=colour, linewidth=1.5)
    axes.set_yticks(
        range(len(tried)), [f"{x.law}, V = {x.vocab_size}" for x in tried], fontsize=SMALL
    )
    axes.set(xscale="log", xlim=(_SMALLEST / 3, 2.0), ylim=(len(tried) - 0.5, -0.5))
    finish(axes, "total variation", grid="x")
    return figure


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
    finish(axes, "probability", title="tokens that deviate most", grid="x")


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
    finish(axes, "p-value", title="checks: red beyond the black line", grid="x")


def _powers(p_value: float) -> float:
    return -math.log10(p_value) if p_value > 0 else math.inf
