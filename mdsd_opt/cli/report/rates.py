"""Acceptance rates: as a view, in tables, and as a picture against the number of drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import Drawing, Section, View, new_figure
from mdsd_opt.corpora.intervals import MeanInterval
from mdsd_opt.corpora.rates import RateRow
from mdsd_opt.drafts.by_name import title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

    from mdsd_opt.corpora.draft_choice import SchemeComparison


def rates_view(
    rows: Sequence[RateRow],
    title: str,
    refused: Mapping[str, str],
    comparison: SchemeComparison | None = None,
    **known: Any,
) -> View:
    """The rates of a source, why a verifier has none, and perhaps draft schemes ranked.

    The title says what they are of, and `known` is what else the document says of it.
    """
    tables = [
        Section("Rates", table=rates_table(rows, title), keys=2),
        *([Section("Left out", values=list(refused.items()), inline=True)] if refused else []),
    ]
    lines = [row.to_dict() for row in rows]
    document = {**known, "rows": lines, "refused": dict(refused)}
    if comparison is not None:
        tables.append(Section("Draft schemes", table=comparison_table(comparison)))
        document["comparison"] = comparison.to_dict()
    drawing = Drawing(
        partial(rates_figure, rows),
        "Mean acceptance rate against the number of drafts, with intervals; higher is better.",
        title,
    )
    heading = f"Acceptance rates of {title}"
    return View(heading, tables, [conclusion(rows)], document, drawing, rows=lines)


_SUBJECT = "acceptance rate: how often the output is one of the K drafts; higher is better"

#: Number of drafts that a conclusion is about, where it is among those in question.
_USUAL_DRAFTS = 4


def rates_table(rows: Sequence[RateRow], title: str) -> Table:
    """One line for each scheme and K, one column for each verifier; empty where none applies."""
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
    """The best scheme and verifier at one K, and what recursive rejection gives away there."""
    counts = {row.num_drafts for row in rows}
    count = _USUAL_DRAFTS if _USUAL_DRAFTS in counts else max(counts)
    here = [row for row in rows if row.num_drafts == count]
    best = max(here, key=lambda row: row.acceptance.mean)
    text = (
        f"at K = {count}: {title_of(best.scheme)} with "
        f"'{best.verifier}', {best.acceptance.mean:.3f}"
    )
    for row in here:
        lost = best.acceptance.mean - row.acceptance.mean
        if (row.scheme, row.verifier) == (best.scheme, "rrs") and lost > 0:
            text += f"; 'rrs' gives away {lost:.3f}"
    return text


def comparison_table(compared: SchemeComparison) -> Table:
    """Draft schemes, the best first."""
    rows = [
        (
            row.scheme.replace("_", " ").replace("top k", "top-K"),
            with_gap(row.acceptance, row.gap),
            "" if row is compared.rates[0] else with_gap(row.behind, row.gap),
        )
        for row in compared.rates
    ]
    left_out = f"not possible at every position: {'; '.join(compared.left_out)}"
    return make_table(
        f"draft schemes at K = {compared.num_drafts}: acceptance by the optimal verifier, "
        "higher is better;\nbehind the best: of the differences, position by position",
        ("drafts", "acceptance", "behind the best"),
        rows,
        caption=left_out if compared.left_out else None,
    )


def _closes_some_gap(verifier: str, rows: Sequence[RateRow]) -> bool:
    gaps = [row.gap_closed for row in rows if row.verifier == verifier]
    return verifier not in ("optimal", "rrs") and any(gap is not None and gap > 0 for gap in gaps)


def _header(verifier: str) -> str:
    return verifier.replace("_", "\n", 1)


def rate_cell(row: RateRow | None) -> str:
    """A rate with its interval, and marks for a bound and for one that is simulated."""
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
    if compares:
        notes.append("gap closed: (verifier - rrs) / (optimal - rrs), of the means; no interval")
    if any(row.estimated for row in rows):
        notes.append("‡ estimated by simulation at every position; the interval holds that error")
    if any(row.bound for row in rows):
        notes.append("† a lower bound of the acceptance rate")
    return "\n".join(notes)


def with_gap(value: MeanInterval, gap: float) -> str:
    """A mean, and how far it may be from what is asked, if that is not zero."""
    return value.shown + (f" (gap {gap:.0e})" if gap > 0 else "")


_MARKERS = "osD^vPX<>"
_STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 3)))

#: Lines that are told apart in one picture.
_MOST_LINES = 8

Lines = dict[tuple[str, str], list[RateRow]]


def rates_figure(rows: Sequence[RateRow]) -> Figure:
    """Draw acceptance against K, with error bars: one picture, or a panel for each scheme.

    Up to eight lines share one picture, a colour for each scheme and a line style for each
    verifier. More of them get a panel for each scheme and a colour for each verifier.
    """
    figure = new_figure()
    lines: dict[tuple[str, str], list[RateRow]] = {}
    for row in rows:
        lines.setdefault((row.scheme, row.verifier), []).append(row)
    if len(lines) <= _MOST_LINES:
        _draw_together(figure, lines)
    else:
        _draw_panels(figure, lines)
    ticks = sorted({row.num_drafts for row in rows})
    for axes in figure.axes:
        axes.set_xticks(ticks)
        axes.grid(alpha=0.3)
    return figure


def _draw_together(figure: Figure, lines: Lines) -> None:
    from matplotlib.lines import Line2D

    figure.set_size_inches(7.4, 4.6)
    axes = figure.add_subplot()
    schemes = list(dict.fromkeys(scheme for scheme, _ in lines))
    verifiers = list(dict.fromkeys(verifier for _, verifier in lines))
    for i, ((scheme, verifier), line) in enumerate(lines.items()):
        s, v = schemes.index(scheme), verifiers.index(verifier)
        look = {"linestyle": _STYLES[v], "marker": _MARKERS[s]}
        _draw(axes, line, _shift(i, len(lines)), color=f"C{s}", **look)
    axes.set(xlabel="number of drafts K", ylabel="acceptance rate")
    handles = [
        Line2D(
            [],
            [],
            color=f"C{s}",
            marker=_MARKERS[s],
            markersize=4,
            label=title_of(scheme),
        )
        for s, scheme in enumerate(schemes)
    ]
    if len(verifiers) > 1:
        handles += [
            Line2D([], [], color="0.3", linestyle=_STYLES[v], label=_title(verifier, lines))
            for v, verifier in enumerate(verifiers)
        ]
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)


def _draw_panels(figure: Figure, lines: Lines) -> None:
    schemes = list(dict.fromkeys(scheme for scheme, _ in lines))
    verifiers = list(dict.fromkeys(verifier for _, verifier in lines))
    columns = min(len(schemes), 2)
    count = -(-len(schemes) // columns)
    figure.set_size_inches(4.2 * columns + 1.2, 3.2 * count + 0.4)
    panels = figure.subplots(count, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for unused in panels[len(schemes) :]:
        unused.set_axis_off()
    shown = {}
    for (scheme, verifier), line in lines.items():
        v = verifiers.index(verifier)
        look = {"linestyle": _STYLES[v % len(_STYLES)], "marker": _MARKERS[v % len(_MARKERS)]}
        panel = panels[schemes.index(scheme)]
        beside = [name for other, name in lines if other == scheme]
        shift = _shift(beside.index(verifier), len(beside))
        shown[verifier] = _draw(panel, line, shift, color=f"C{v}", **look)
    for axes, scheme in zip(panels, schemes, strict=False):
        axes.set_title(title_of(scheme), fontsize=10)
    figure.supxlabel("number of drafts K", fontsize=10)
    figure.supylabel("acceptance rate", fontsize=10)
    figure.legend(
        [shown[verifier] for verifier in verifiers],
        [_title(verifier, lines) for verifier in verifiers],
        loc="outside right center",
        frameon=False,
        fontsize=9,
    )


def _shift(number: int, count: int) -> float:
    """Where a line stands between two values of K, so that no error bars lie on each other."""
    return min(0.6 / count, 0.1) * (number - (count - 1) / 2)


def _draw(axes: Axes, line: Sequence[RateRow], shift: float, **look: Any) -> Any:
    return axes.errorbar(
        [row.num_drafts + shift for row in line],
        [row.acceptance.mean for row in line],
        yerr=[row.acceptance.half_width for row in line],
        markersize=4,
        linewidth=1.4,
        elinewidth=0.8,
        capsize=2,
        **look,
    )


def _title(verifier: str, lines: Lines) -> str:
    is_bound = any(line[0].bound for (_, name), line in lines.items() if name == verifier)
    return f"{verifier} (lower bound)" if is_bound else verifier
