"""Acceptance rates against the number of drafts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.base.checked import of_kind
from mdsd_opt.corpora import RateRow
from mdsd_opt.drafts import title_of
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.plots.drawing import (
    COLUMN,
    MARKERS,
    MOST_WITH_INTERVALS,
    SMALL,
    axes_of,
    draw_intervals,
    finish,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 3)))

#: Most lines that can be told apart in one picture.
_MOST_LINES = 8

#: Least numbers of drafts for lines with bands; fewer are points with bars.
_LEAST_FOR_LINES = 5

#: Most numbers of drafts that are all written under a picture.
_MOST_TICKS = 10

Lines = dict[tuple[str, str], list[RateRow]]


def rates(
    result: Sequence[RateRow] | Mapping[str, Any] | str | os.PathLike[str], ax: Axes | None = None
) -> Axes:
    """Acceptance rates against the number of drafts, with their intervals.

    Parameters
    ----------
    result : sequence of RateRow, mapping or path
        Rows of `mdsd_opt.corpora.rate_rows`, or what ``mdsd-opt rates --json`` has printed, as it
        is loaded or as the path of its file.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.

    Raises
    ------
    InvalidInput, UnreadableFile
        The result, or its file, holds no rates.
    MissingExtra
        There is no matplotlib.
    """
    document = _loaded(result) if isinstance(result, str | os.PathLike) else result
    if isinstance(document, Mapping):
        try:
            document = [RateRow.from_dict(row) for row in document["rows"]]
        except (KeyError, TypeError) as error:
            raise InvalidInput(
                f"the result has no rates (no {error}): give what mdsd-opt rates --json prints"
            ) from None
    wanted = "rows of corpora.rate_rows, or what mdsd-opt rates --json prints"
    rows = [of_kind(x, RateRow, "a row of result", wanted)
            for x in of_kind(document, Iterable, "result", wanted)]  # fmt: skip
    if not rows:
        raise InvalidInput(f"the result has no rates: give {wanted}")
    lines = _by_kind(rows)
    schemes, verifiers = _names_of(lines)
    axes: Axes = axes_of(ax)
    for number, ((scheme, verifier), line) in enumerate(lines.items()):
        look = _look(schemes.index(scheme), verifiers.index(verifier), together=True)
        has_band = len(lines) <= MOST_WITH_INTERVALS
        _draw(axes, line, _shift(number, len(lines)), look, has_band)
    _mark_counts(axes, rows)
    finish(axes, "number of drafts K", "acceptance rate")
    axes.legend(handles=_keys(schemes, verifiers, lines, together=True), fontsize=SMALL)
    return axes


def _loaded(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} is no result of mdsd-opt rates --json: {error}") from None


def rates_figure(rows: Sequence[RateRow]) -> Figure:
    """Draw acceptance against K, one column wide: one picture, or a panel for each scheme.

    Up to eight kinds share one picture, a colour for each scheme and a line style or marker for
    each verifier. More of them get a panel for each scheme and a colour for each verifier. Many K
    are lines, up to three of them with their intervals as bands; few are points with bars, side by
    side, as are lower bounds always: triangles from which the rate lies upwards. Where all are
    lines in one picture, their names stand at their ends, and top-K drafts have a panel below.
    """
    lines = _by_kind(rows)
    schemes, verifiers = _names_of(lines)
    together = len(lines) <= _MOST_LINES
    if together and all(map(_is_curve, lines.values())):
        return _figure_of_curves(lines)
    figure = new_figure()
    panels, columns = (1, 1) if together else (len(schemes), min(len(schemes), 2))
    shown = verifiers
    if together:
        shown = [*schemes, *verifiers] if len(verifiers) > 1 else schemes
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
        shift, has_band = (
            _shift(beside.index((scheme, verifier)), len(beside)),
            len(beside) <= MOST_WITH_INTERVALS,
        )
        _draw(axes, line, shift, look, has_band)
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
    heights = (2.5, 0.9)[: len(panels)]
    figure = new_figure()
    figure.set_size_inches(COLUMN, 0.5 + sum(heights))
    grid = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=heights).ravel()
    for axes, panel, height in zip(grid, panels, heights, strict=True):
        names = []
        for (scheme, verifier), line in panel.items():
            look = _look(schemes.index(scheme), verifiers.index(verifier), together=True)
            _draw(axes, line, 0.0, look, has_band=len(panel) <= MOST_WITH_INTERVALS)
            name = title_of(scheme) if len(schemes) > 1 else ""
            if len(verifiers) > 1:
                name = f"{name}, {verifier}" if name else verifier
            names.append((line[-1], name, look["color"]))
        _mark_counts(axes, [row for line in panel.values() for row in line])
        _write_at_ends(axes, names, height)
    grid[-1].set_xlabel("number of drafts K", fontsize=SMALL + 1)
    figure.supylabel("acceptance rate", fontsize=SMALL + 1)
    return figure


def _write_at_ends(axes: Axes, names: Sequence[tuple[RateRow, str, str]], inches: float) -> None:
    """Write names beside the last points, as near as they can be without touching each other.

    A thin line leads from each point to its name.
    """
    from scipy.optimize import isotonic_regression

    falling = sorted(names, key=lambda name: -name[0].acceptance.mean)
    low, high = axes.get_ylim()
    steps = 1.4 * SMALL / 72 / inches * (high - low) * np.arange(len(falling))
    ends = [row.acceptance.mean for row, _, _ in falling]
    places = isotonic_regression(ends + steps, increasing=False).x - steps
    for (row, name, color), place in zip(falling, places, strict=True):
        axes.annotate(
            name, (row.num_drafts, row.acceptance.mean), (16, place), color=color, fontsize=SMALL,
            textcoords=("offset points", "data"), va="center", annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": color, "linewidth": 0.5, "relpos": (0, 0.5),
                "shrinkA": 1, "shrinkB": 0,
            },
        )  # fmt: skip


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
    finish(axes)


def _look(s: int, v: int, together: bool) -> dict[str, Any]:
    """Colour, line and marker of a scheme and a verifier, by their numbers."""
    style, marker = _STYLES[v % len(_STYLES)], MARKERS[v % len(MARKERS)]
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
    handles = [key(title_of(scheme), color=f"C{s}") for s, scheme in enumerate(schemes)]
    if len(verifiers) > 1:
        handles += [
            key(
                _title(verifier, lines),
                **{**_shown_look(_look(0, v, True), verifier, lines), "color": "0.3"},
            )
            for v, verifier in enumerate(verifiers)
        ]
    return handles


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


def _draw(
    axes: Axes, line: Sequence[RateRow], shift: float, look: dict[str, Any], has_band: bool = True
) -> None:
    if _is_curve(line):
        counts, means = zip(*((row.num_drafts, row.acceptance.mean) for row in line), strict=True)
        axes.plot(counts, means, linewidth=1.2, **{**look, "marker": ""})
        if has_band:
            low, high = ([getattr(row.acceptance, x) for row in line] for x in ("low", "high"))
            axes.fill_between(counts, low, high, color=look["color"], alpha=0.12, linewidth=0)
        return
    marker = "^" if any(row.bound for row in line) else look["marker"]
    places = [row.num_drafts + shift for row in line]
    draw_intervals(
        axes, places, [row.acceptance for row in line], color=look["color"], marker=marker
    )


def _is_curve(line: Sequence[RateRow]) -> bool:
    return len(line) >= _LEAST_FOR_LINES and not any(row.bound for row in line)


def _is_bound(verifier: str, lines: Lines) -> bool:
    return any(line[0].bound for (_, name), line in lines.items() if name == verifier)


def _title(verifier: str, lines: Lines) -> str:
    return f"{verifier} (lower bound)" if _is_bound(verifier, lines) else verifier
