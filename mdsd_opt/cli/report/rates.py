"""Views of acceptance rates: in tables, and as a picture against the number of drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.report.filters import filters_table
from mdsd_opt.cli.view import COLUMN, SMALL, Drawing, Section, View, new_figure
from mdsd_opt.corpora.intervals import MeanInterval
from mdsd_opt.corpora.rates import RateRow
from mdsd_opt.drafts.by_name import title_of
from mdsd_opt.planning.draft_choice import scheme_label
from mdsd_opt.verifiers.worst_case import WORST_CASES, worst_case

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

    from mdsd_opt.planning.draft_choice import SchemeComparison
    from mdsd_opt.planning.draft_filter import BestFilter


def rates_view(
    rows: Sequence[RateRow],
    title: str,
    refused: Mapping[str, str],
    comparison: SchemeComparison | None = None,
    filters: Sequence[BestFilter] = (),
    *,
    name: str = "",
    **known: Any,
) -> View:
    """View of a source's rates, of verifiers without, and perhaps of ranked schemes and filters.

    The title says what they are of, the name stands before it, but not above a picture, and `known`
    is what else the document says of it.
    """
    named = f"{name}: {title}" if name else title
    tables = [
        Section("Rates", table=rates_table(rows, named), keys=2, in_parts=False),
        *([Section("Left out", values=list(refused.items()), inline=True)] if refused else []),
    ]
    lines = [row.to_dict() for row in rows]
    document = {**known, "rows": lines, "refused": dict(refused)}
    if comparison is not None:
        tables.append(Section("Draft schemes", table=comparison_table(comparison)))
        document["comparison"] = comparison.to_dict()
    if filters:
        tables.append(Section("Filters of the draft", table=filters_table(filters), keys=2))
        document["filters"] = [found.to_dict() for found in filters]
    drawing = Drawing(
        partial(rates_figure, rows),
        "Mean acceptance rate against the number of drafts, with intervals; higher is better.",
        title,
    )
    heading = f"Acceptance rates of {named}"
    return View(heading, tables, [conclusion(rows)], document, drawing, rows=lines)


_SUBJECT = "acceptance rate: how often the output is one of the K drafts; higher is better"

#: Least gain in acceptance by which a further draft is worth a mention.
_LEAST_GAIN = 0.01


def rates_table(rows: Sequence[RateRow], title: str) -> Table:
    """Table with a line for each scheme and K, a column for each verifier, empty if it has none."""
    verifiers = list(dict.fromkeys(row.verifier for row in rows))
    cells = {(row.scheme, row.num_drafts, row.verifier): row for row in rows}
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    lines = sorted(
        {(row.scheme, row.num_drafts) for row in rows},
        key=lambda line: (schemes.index(line[0]), line[1]),
    )
    compared = [verifier for verifier in verifiers if _closes_some_gap(verifier, rows)]
    bounds = {row.verifier for row in rows if row.bound}
    headings = ["drafts", "K"]
    headings += [_header(name) + (" †" if name in bounds else "") for name in verifiers]
    headings += [f"gap closed,\n{_header(name)}" for name in compared]
    if "optimal" in verifiers:
        headings.append("tokens /\ntarget\ncall")

    def line(scheme: str, k: int) -> Iterator[str]:
        yield title_of(scheme)
        yield str(k)
        for verifier in verifiers:
            yield rate_cell(cells.get((scheme, k, verifier)))
        for verifier in compared:
            row = cells.get((scheme, k, verifier))
            yield "" if row is None or row.gap_closed is None else f"{row.gap_closed:.0%}"
        best = cells.get((scheme, k, "optimal"))
        if best is not None:
            yield f"{best.tokens_per_call:.3f}"

    has_empty_cells = len(cells) < len(lines) * len(verifiers)
    return make_table(
        f"{_SUBJECT}\n{title}",
        headings,
        (tuple(line(scheme, k)) for scheme, k in lines),
        caption=_footnotes(rows, bool(compared), "optimal" in verifiers, has_empty_cells),
        grouped=True,
    )


def conclusion(rows: Sequence[RateRow]) -> str:
    """Sentences about the gain of each further draft with the best scheme and verifier."""
    most = max(row.num_drafts for row in rows)
    at_most = [row for row in rows if row.num_drafts == most]
    best = max(at_most, key=lambda row: row.acceptance.mean)
    line = sorted(
        (row for row in rows if (row.scheme, row.verifier) == (best.scheme, best.verifier)),
        key=lambda row: row.num_drafts,
    )
    text = (
        f"{title_of(best.scheme)} with '{best.verifier}': {line[0].acceptance.mean:.3f} at "
        f"K = {line[0].num_drafts}"
    )
    gains = [(b, b.acceptance.mean - a.acceptance.mean) for a, b in pairwise(line)]
    worth = [row for row, gain in gains if gain >= _LEAST_GAIN]
    chosen = worth[-1] if worth else line[0]
    shown = [f"{gain:+.3f} at {row.num_drafts}" for row, gain in gains
             if row.num_drafts <= chosen.num_drafts]  # fmt: skip
    if shown:
        text += f", over the K before {', '.join(shown)}"
    if chosen is not line[-1]:
        text += f"; none beyond K = {chosen.num_drafts} gains {_LEAST_GAIN:g}"
    for row in rows:
        lost = chosen.acceptance.mean - row.acceptance.mean
        there = row.scheme, row.verifier, row.num_drafts
        if there == (best.scheme, "rrs", chosen.num_drafts) and lost > 0:
            text += f"; 'rrs' gives away {lost:.3f} at K = {chosen.num_drafts}"
    return text


def comparison_table(compared: SchemeComparison) -> Table:
    """Table of draft schemes, the best first."""
    rows = [
        (
            scheme_label(row.scheme),
            with_gap(row.acceptance, row.gap),
            "" if row is compared.rates[0] else with_gap(row.behind, row.gap),
        )
        for row in compared.rates
    ]
    left_out = f"not possible at every position: {'; '.join(compared.left_out)}"
    notes = [left_out] if compared.left_out else []
    notes += [] if compared.inclusion is None else [compared.inclusion_note]
    return make_table(
        f"draft schemes at K = {compared.num_drafts}: acceptance by the optimal verifier, "
        "higher is better;\nbehind the best: of the differences, position by position",
        ("drafts", "acceptance", "behind the best"),
        rows,
        caption="\n".join(notes) or None,
    )


def _closes_some_gap(verifier: str, rows: Sequence[RateRow]) -> bool:
    gaps = [row.gap_closed for row in rows if row.verifier == verifier]
    return verifier not in ("optimal", "rrs") and any(gap is not None and gap > 0 for gap in gaps)


def _header(verifier: str) -> str:
    return verifier.replace("_", "\n", 1)


def rate_cell(row: RateRow | None) -> str:
    """Text of a rate with its interval, and marks for a bound and for one that is simulated."""
    if row is None:
        return ""
    return f"{'≥ ' * row.bound}{row.acceptance.shown}{' ‡' * row.estimated}"


def _footnotes(
    rows: Sequence[RateRow], compares: bool, has_optimum: bool, has_empty_cells: bool
) -> str:
    notes = []
    if has_empty_cells:
        notes.append("empty: the verifier is not made for such drafts, or for so many")
    if any(row.acceptance.half_width != row.acceptance.half_width for row in rows):
        notes.append("no interval where none is shown: one group alone gives none")
    if has_optimum:
        notes.append("tokens / target call: of the optimum, with the interval of its rate")
        notes += _worst_cases(rows)
    if compares:
        notes.append("gap closed: (verifier - rrs) / (optimal - rrs), of the means; no interval")
    if any(row.estimated for row in rows):
        notes.append("‡ estimated by simulation at every position; the interval holds that error")
    if any(row.bound for row in rows):
        notes.append("† a lower bound of the acceptance rate")
    return "\n".join(notes)


def _worst_cases(rows: Sequence[RateRow]) -> list[str]:
    """Sentence about what the verifiers of the table lose at most on any logits, where proven."""
    most = max(row.num_drafts for row in rows)
    lost = []
    for row in rows:
        if row.num_drafts == most > 1 and (row.verifier, row.scheme) in WORST_CASES:
            case = worst_case(row.verifier, most, row.scheme)
            if case.proven and 0 < case.gap < 1:
                lost.append(f"{row.verifier!r} {case.gap:.3f} ({title_of(row.scheme)})")
    return [f"at most lost on any logits, K = {most}: {', '.join(lost)}"] if lost else []


def with_gap(value: MeanInterval, gap: float) -> str:
    """Text of a mean and its largest error, if that is not zero."""
    return value.shown + (f" (gap {gap:.0e})" if gap > 0 else "")


_MARKERS = "osDPXv<>*"
_STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 3)))

#: Most lines that can be told apart in one picture.
_MOST_LINES = 8

#: Least numbers of drafts for lines with bands; fewer are points with bars.
_LEAST_FOR_LINES = 5

#: Most numbers of drafts that are all written under a picture.
_MOST_TICKS = 10

Lines = dict[tuple[str, str], list[RateRow]]


def rates_figure(rows: Sequence[RateRow]) -> Figure:
    """Draw acceptance against K, one column wide: one picture, or a panel for each scheme.

    Up to eight kinds share one picture, a colour for each scheme and a line style or marker for
    each verifier. More of them get a panel for each scheme and a colour for each verifier. Many K
    are lines with their intervals as bands; few are points with bars, side by side, as are lower
    bounds always: triangles from which the rate lies upwards. Where all are lines in one picture,
    their names stand at their ends, and top-K drafts have a panel below the others.
    """
    lines = _by_kind(rows)
    schemes, verifiers = _names_of(lines)
    together = len(lines) <= _MOST_LINES
    if together and all(map(_is_curve, lines.values())):
        return _figure_of_curves(lines)
    figure = new_figure()
    panels, columns = (1, 1) if together else (len(schemes), min(len(schemes), 2))
    shown = schemes + verifiers * (len(verifiers) > 1) if together else verifiers
    height = 2.3 if together else 1.55 * -(-panels // columns)
    figure.set_size_inches(COLUMN, height + 0.17 * -(-len(shown) // 2))
    grid = figure.subplots(
        -(-panels // columns), columns, sharex=True, sharey=True, squeeze=False
    ).ravel()
    for unused in grid[panels:]:
        unused.set_axis_off()
    for (scheme, verifier), line in lines.items():
        s, v = schemes.index(scheme), verifiers.index(verifier)
        axes = grid[0 if together else s]
        beside = [*lines] if together else [key for key in lines if key[0] == scheme]
        look = _look(s, v, together)
        _draw(axes, line, _shift(beside.index((scheme, verifier)), len(beside)), look)
    if not together:
        for axes, scheme in zip(grid, schemes, strict=False):
            axes.set_title(title_of(scheme), fontsize=SMALL + 1)
    for axes in grid[:panels]:
        _mark_counts(axes, rows)
    for axes in grid[max(panels - columns, 0) : panels]:
        axes.set_xlabel("number of drafts K", fontsize=SMALL + 1)
    figure.supylabel("acceptance rate", fontsize=SMALL + 1)
    figure.legend(
        handles=_keys(schemes, verifiers, lines, together),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=SMALL,
        columnspacing=1.2,
    )
    return figure


def _figure_of_curves(lines: Lines) -> Figure:
    schemes, verifiers = _names_of(lines)
    panels = [
        {key: line for key, line in lines.items() if (key[0] == "top_k") == is_top_k}
        for is_top_k in (False, True)
    ]
    panels = [panel for panel in panels if panel]
    heights = (2.1, 0.9)[: len(panels)]
    figure = new_figure()
    figure.set_size_inches(COLUMN, 0.5 + sum(heights))
    grid = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=heights).ravel()
    for axes, panel, height in zip(grid, panels, heights, strict=True):
        names = []
        for (scheme, verifier), line in panel.items():
            look = _look(schemes.index(scheme), verifiers.index(verifier), together=True)
            _draw(axes, line, 0.0, look)
            parts = [title_of(scheme)] * (len(schemes) > 1) + [verifier] * (len(verifiers) > 1)
            names.append((line[-1], ", ".join(parts), look["color"]))
        _mark_counts(axes, [row for line in panel.values() for row in line])
        _write_at_ends(axes, names, height)
    grid[-1].set_xlabel("number of drafts K", fontsize=SMALL + 1)
    figure.supylabel("acceptance rate", fontsize=SMALL + 1)
    return figure


def _write_at_ends(axes: Axes, names: Sequence[tuple[RateRow, str, str]], inches: float) -> None:
    """Write names beside the last points, as near as they can be without touching each other."""
    from scipy.optimize import isotonic_regression

    falling = sorted(names, key=lambda name: -name[0].acceptance.mean)
    low, high = axes.get_ylim()
    steps = 1.25 * SMALL / 72 / inches * (high - low) * np.arange(len(falling))
    ends = [row.acceptance.mean for row, _, _ in falling]
    places = isotonic_regression(ends + steps, increasing=False).x - steps
    for (row, name, color), place in zip(falling, places, strict=True):
        axes.annotate(
            name, (row.num_drafts, place), (8, 0), textcoords="offset points", color=color,
            fontsize=SMALL, va="center", annotation_clip=False,
        )  # fmt: skip


def draw_rates(axes: Axes, rows: Sequence[RateRow]) -> None:
    """Draw acceptance against K on one pair of axes, with its legend inside, as `rates_figure`."""
    lines = _by_kind(rows)
    schemes, verifiers = _names_of(lines)
    for number, ((scheme, verifier), line) in enumerate(lines.items()):
        look = _look(schemes.index(scheme), verifiers.index(verifier), together=True)
        _draw(axes, line, _shift(number, len(lines)), look)
    _mark_counts(axes, rows)
    axes.set_xlabel("number of drafts K", fontsize=SMALL + 1)
    axes.set_ylabel("acceptance rate", fontsize=SMALL + 1)
    axes.legend(handles=_keys(schemes, verifiers, lines, together=True), fontsize=SMALL)


def _by_kind(rows: Sequence[RateRow]) -> Lines:
    lines: Lines = {}
    for row in rows:
        lines.setdefault((row.scheme, row.verifier), []).append(row)
    return lines


def _names_of(lines: Lines) -> tuple[list[str], list[str]]:
    """Schemes and verifiers of the lines, each once."""
    return list(dict.fromkeys(s for s, _ in lines)), list(dict.fromkeys(v for _, v in lines))


def _mark_counts(axes: Axes, rows: Sequence[RateRow]) -> None:
    """Put numbers of drafts under the axes, as many as there is room for."""
    ticks = sorted({row.num_drafts for row in rows})
    axes.set_xticks(ticks if len(ticks) <= _MOST_TICKS else ticks[:: -(-len(ticks) // 8)])
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=SMALL)


def _look(s: int, v: int, together: bool) -> dict[str, Any]:
    """Colour, line and marker of a scheme and a verifier, by their numbers."""
    style, marker = _STYLES[v % len(_STYLES)], _MARKERS[v % len(_MARKERS)]
    return {"color": f"C{s if together else v}", "linestyle": style, "marker": marker}


def _keys(
    schemes: Sequence[str], verifiers: Sequence[str], lines: Lines, together: bool
) -> list[Any]:
    """Entries of the legend: colours of schemes and looks of verifiers, or the latter alone."""
    from matplotlib.lines import Line2D

    def key(label: str, **look: Any) -> Any:
        return Line2D([], [], markersize=3.5, linewidth=1.2, label=label, **look)

    if not together:
        return [
            key(_title(verifier, lines), **_shown_look(_look(0, v, False), verifier, lines))
            for v, verifier in enumerate(verifiers)
        ]
    found = [key(title_of(scheme), color=f"C{s}") for s, scheme in enumerate(schemes)]
    if len(verifiers) > 1:
        found += [
            key(
                _title(verifier, lines),
                **{**_shown_look(_look(0, v, True), verifier, lines), "color": "0.3"},
            )
            for v, verifier in enumerate(verifiers)
        ]
    return found


def _shown_look(look: dict[str, Any], verifier: str, lines: Lines) -> dict[str, Any]:
    """Look without its hidden parts: points have no line, lines no points."""
    if _is_bound(verifier, lines):
        return {**look, "marker": "^", "linestyle": ""}
    most = max(len(line) for (_, name), line in lines.items() if name == verifier)
    hidden = {"marker": ""} if most >= _LEAST_FOR_LINES else {"linestyle": ""}
    return {**look, **hidden}


def _shift(number: int, count: int) -> float:
    """Offset of points between two values of K, so that no error bars lie on each other."""
    return min(0.6 / count, 0.1) * (number - (count - 1) / 2)


def _draw(axes: Axes, line: Sequence[RateRow], shift: float, look: dict[str, Any]) -> None:
    counts = [row.num_drafts for row in line]
    means = [row.acceptance.mean for row in line]
    low, high = ([getattr(row.acceptance, end) for row in line] for end in ("low", "high"))
    bound = any(row.bound for row in line)
    if _is_curve(line):
        axes.plot(counts, means, linewidth=1.2, **{**look, "marker": ""})
        axes.fill_between(counts, low, high, color=look["color"], alpha=0.12, linewidth=0)
        return
    points = {**look, "linestyle": "", **({"marker": "^"} if bound else {})}
    axes.errorbar(
        [count + shift for count in counts],
        means,
        yerr=[
            [m - x for m, x in zip(means, low, strict=True)],
            [x - m for m, x in zip(means, high, strict=True)],
        ],
        markersize=3.5,
        elinewidth=0.7,
        capsize=1.5,
        **points,
    )


def _is_curve(line: Sequence[RateRow]) -> bool:
    return len(line) >= _LEAST_FOR_LINES and not any(row.bound for row in line)


def _is_bound(verifier: str, lines: Lines) -> bool:
    return any(line[0].bound for (_, name), line in lines.items() if name == verifier)


def _title(verifier: str, lines: Lines) -> str:
    return f"{verifier} (lower bound)" if _is_bound(verifier, lines) else verifier
