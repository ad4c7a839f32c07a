"""Views of how far texts may change: as a table, as JSON and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import COLUMN, SMALL, Drawing, Section, View, new_figure
from mdsd_opt.corpora.intervals import interval_note
from mdsd_opt.corpora.stability import StabilityRow, TextStability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def stability_view(
    found: TextStability, source: str, unit: str = "positions", confidence: float = 0.95
) -> View:
    """View of what may change; `unit` is what intervals are over."""
    greedy = found.temperature == 0
    kind = "greedy" if greedy else f"temperature {found.temperature:g}, shared Gumbel noise"
    groups = found.rows[0].may_change.num_groups
    note = interval_note(groups, unit, confidence)
    title = f"{source}: {found.margins.size} positions\n{kind}; {note}"
    headings = ["logits move by\nat most", "may change"]
    told = [name for name in _OF_TEXTS if getattr(found.rows[0], name) is not None]
    table = make_table(
        f"how many tokens may change; lower is better\n{title}",
        [*headings, *(_OF_TEXTS[name] for name in told)],
        (_line(row, told) for row in found.rows),
        words=(),
        caption="tokens that stay: before the first that may change, mean over texts"
        if told
        else None,
    )
    document = {
        "source": source, "positions": int(found.margins.size), "confidence": confidence,
        "interval_over": unit, **found.to_dict(),
    }  # fmt: skip
    drawing = Drawing(
        partial(_figure, found),
        "Share of tokens that may change against how far logits move at most; lower is better.",
        title,
    )
    rows = [{**row.to_dict(), "unmoved": _mean(row)} for row in found.rows]
    heading = f"Stability of {source}"
    last = [_conclusion(found, found.rows[-1])]
    return View(heading, [Section("Tokens", table=table)], last, document, drawing, rows=rows)


#: Fields of a row that only whole texts have, with their headings.
_OF_TEXTS = {"unmoved": "tokens of a text\nthat stay", "whole_texts": "texts that stay"}


def _line(row: StabilityRow, told: Sequence[str]) -> tuple[str, ...]:
    of_texts = {
        "unmoved": f"{_mean(row) or 0.0:.2f}",
        "whole_texts": f"{row.whole_texts} of {0 if row.unmoved is None else row.unmoved.size}",
    }
    return f"{row.delta:.4g}", row.may_change.shown, *(of_texts[name] for name in told)


def _mean(row: StabilityRow) -> float | None:
    """Mean number of tokens that stay, over texts."""
    return None if row.unmoved is None else float(row.unmoved.mean())


def _conclusion(found: TextStability, row: StabilityRow) -> str:
    """Sentences about what was measured, or about the smallest margins."""
    least = float(found.margins.min()) / 2
    ties = int((found.margins == 0).sum())
    if found.moved is not None:
        return (
            f"logits moved by {row.delta:.4g} at most, {float(np.median(found.moved)):.4g} in the "
            f"median; {found.changed} of {found.margins.size} greedy tokens changed, where at most "
            f"{int((found.margins <= 2 * found.moved).sum())} could"
        )
    if found.temperature > 0:
        law = math.tanh(row.delta / (2 * found.temperature))
        return (
            f"the law of a token moves by at most {law:.4g} in total variation where logits move "
            f"by at most {row.delta:g}"
        )
    middle = float(np.median(found.margins)) / 2
    return (
        f"a greedy token can change where logits move by half its margin, which is {middle:.4g} in "
        f"the median and {least:.4g} at least; {ties} of {found.margins.size} are exact ties"
    )


def draw_stability(axes: Axes, found: TextStability) -> None:
    """Draw the share of tokens that may change against delta, both as they are computed."""
    if found.temperature == 0 and found.moved is None:
        half = np.sort(found.margins / 2.0)
        share = np.arange(1, half.size + 1) / half.size
        shown = np.isfinite(half)
        axes.step(half[shown], share[shown], where="post", linewidth=1.2, color="C0")
    xs = [row.delta for row in found.rows]
    means = [row.may_change.mean for row in found.rows]
    ends: Any = [
        [abs(row.may_change.mean - getattr(row.may_change, end)) for row in found.rows]
        for end in ("low", "high")
    ]
    axes.errorbar(
        xs, means, yerr=np.nan_to_num(ends), marker="o", linestyle="", color="C0", markersize=3.5,
        elinewidth=0.7, capsize=1.5,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("logits move by at most", fontsize=SMALL + 1)
    axes.set_ylabel("tokens that may change", fontsize=SMALL + 1)
    axes.tick_params(labelsize=SMALL)
    axes.grid(alpha=0.3)


def _figure(found: TextStability) -> Figure:
    figure: Figure = new_figure(figsize=(COLUMN, 2.3))
    draw_stability(figure.add_subplot(), found)
    return figure
