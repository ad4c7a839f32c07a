"""View of how far texts may change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mdsd_opt import plots
from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.corpora import StabilityRow, TextStability
from mdsd_opt.evidence import interval_note
from mdsd_opt.plots import new_axes


def stability_view(
    result: TextStability, source: str, unit: str = "positions", confidence: float = 0.95
) -> View:
    """View of what may change; `unit` is what intervals are over."""
    greedy = result.temperature == 0
    kind = "greedy" if greedy else f"temperature {result.temperature:g}, shared Gumbel noise"
    note = interval_note(result.rows[0].may_change.num_groups, unit, confidence)
    title = f"{source}: {result.margins.size} positions\n{kind}; {note}"
    headings = ["logits move by\nat most", "may change"]
    names = [name for name in _OF_TEXTS if getattr(result.rows[0], name) is not None]
    table = make_table(
        f"how many tokens may change; lower is better\n{title}",
        [*headings, *(_OF_TEXTS[name] for name in names)],
        (_line(row, names) for row in result.rows),
        words=(),
        caption="tokens that stay: before the first that may change, mean over texts"
        if names
        else None,
    )
    document = {
        "source": source, "positions": int(result.margins.size), "confidence": confidence,
        "interval_over": unit, **result.to_dict(),
    }  # fmt: skip
    drawing = Drawing(
        lambda: plots.stability(result, new_axes(2.3)).figure,
        "Share of tokens that may change against how far logits move at most; lower is better.",
        title,
    )
    rows = [{**row.to_dict(), "unmoved": _mean(row)} for row in result.rows]
    heading = f"Stability of {source}"
    last = [_conclusion(result, result.rows[-1])]
    return View(heading, [Section("Tokens", table=table)], last, document, drawing, rows=rows)


#: Fields of a row that only whole texts have, with their headings.
_OF_TEXTS = {"unmoved": "tokens of a text\nthat stay", "whole_texts": "texts that stay"}


def _line(row: StabilityRow, names: Sequence[str]) -> tuple[str, ...]:
    of_texts = {
        "unmoved": f"{_mean(row) or 0.0:.2f}",
        "whole_texts": f"{row.whole_texts} of {0 if row.unmoved is None else row.unmoved.size}",
    }
    return f"{row.delta:.4g}", row.may_change.shown, *(of_texts[name] for name in names)


def _mean(row: StabilityRow) -> float | None:
    """Mean number of tokens that stay, over texts."""
    return None if row.unmoved is None else float(row.unmoved.mean())


def _conclusion(result: TextStability, row: StabilityRow) -> str:
    """Sentences about what was measured, or about the smallest margins."""
    least = float(result.margins.min()) / 2
    ties = int((result.margins == 0).sum())
    if result.moved is not None:
        return (
            f"logits moved by {row.delta:.4g} at most, {float(np.median(result.moved)):.4g} in the "
            f"median; {result.changed} of {result.margins.size} greedy tokens changed, where at "
            f"most {int((result.margins <= 2 * result.moved).sum())} could"
        )
    if result.temperature > 0:
        law = math.tanh(row.delta / (2 * result.temperature))
        return (
            f"the law of a token moves by at most {law:.4g} in total variation where logits move "
            f"by at most {row.delta:g}"
        )
    middle = float(np.median(result.margins)) / 2
    return (
        f"a greedy token can change where logits move by half its margin, which is {middle:.4g} in "
        f"the median and {least:.4g} at least; {ties} of {result.margins.size} are exact ties"
    )
