"""The picture: acceptance against the number of drafts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt.base.files import atomic_write
from mdsd_opt.cli.report.pictures import check_plot_path, new_figure
from mdsd_opt.corpora.rates import RateRow
from mdsd_opt.drafts.by_name import title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vPX<>"
_STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 3)))

#: Lines that are told apart in one picture.
_MOST_LINES = 8

Lines = dict[tuple[str, str], list[RateRow]]


def save_rates_plot(rows: Sequence[RateRow], path: str | os.PathLike[str], title: str) -> None:
    """`rates_figure` under a title, as a file.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    check_plot_path(path)
    figure = rates_figure(rows)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    with atomic_write(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)


def rates_figure(rows: Sequence[RateRow]) -> Figure:
    """Draw acceptance against K, with error bars: one picture, or a panel for each scheme.

    Up to eight lines share one picture, a colour for each scheme and a line style for each
    verifier. More of them get a panel for each scheme and a colour for each verifier.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
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
