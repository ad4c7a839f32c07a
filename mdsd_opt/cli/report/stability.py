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
        lambda: plots.stability(found, new_axes(2.3)).figure,
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
