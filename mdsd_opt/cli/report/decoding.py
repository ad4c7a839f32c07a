"""Decoding rules side by side: a table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.cli.report.tables import with_interval
from mdsd_opt.corpora.intervals import MeanInterval, interval_note, mean_interval
from mdsd_opt.decoding.comparison import ComparedRule
from mdsd_opt.decoding.generation import Generation, Metrics

if TYPE_CHECKING:
    from rich.table import Table


_SUBJECT = "rules on the same prompts; accept length, tokens a target call: higher is better"

_MEANINGS = (
    "acceptance rate: steps with a draft accepted; verifier's share: of the time; "
    "-: the rule was refused"
)


def prompts_table(outputs: Sequence[Generation]) -> Table:
    """One line for each prompt, by number."""
    table = metrics_table("#", "ended by")
    for n, output in enumerate(outputs, start=1):
        table.add_row(str(n), output.ended_by, *metrics_cells(output.metrics))
    return table


def metrics_table(*keys: str, title: str | None = None) -> Table:
    """Without lines; see `metrics_cells`."""
    from rich.table import Table

    table = Table(title=title)
    for key in keys:
        table.add_column(key)
    for heading in (
        "tokens",
        "target\ncalls",
        "accept\nlength",
        "acceptance\nrate",
        "ms a\ntoken",
        "verifier's\nshare",
    ):
        table.add_column(heading, justify="right")
    return table


def metrics_cells(metrics: Metrics) -> tuple[str, ...]:
    """A line of `metrics_table`."""
    return (
        str(metrics.num_tokens),
        str(metrics.num_steps),
        f"{metrics.accept_length:.2f}",
        f"{metrics.first_token_acceptance_rate:.3f}",
        f"{1e3 * metrics.seconds_per_token:.0f}",
        f"{metrics.verify_share:.1%}",
    )


def compared_document(
    rows: Sequence[ComparedRule],
    num_prompts: int,
    interrupted: bool,
    forecast: float | None = None,
) -> dict[str, Any]:
    """JSON-ready; a rule that is refused has its reason, and what it did before.

    `forecast` is of the drafts that a step accepts.
    """
    return {
        "num_prompts": num_prompts,
        "interrupted": interrupted,
        "forecast_accepted": forecast,
        "rows": [_entry(row) for row in rows],
    }


def _entry(row: ComparedRule) -> dict[str, Any]:
    entry: dict[str, Any] = {"rule": row.rule}
    if row.refusal:
        entry["refused"] = row.refusal
    if row.prompts:
        entry |= {
            "accept_length": _over_prompts(row, "accept_length").to_dict(),
            "acceptance_rate": _over_prompts(row, "first_token_acceptance_rate").to_dict(),
            "observed_accepted": _over_prompts(row, "accepted_per_step").to_dict(),
            "total": row.total.to_dict(),
        }
    return entry


def compared_table(
    rows: Sequence[ComparedRule],
    num_prompts: int,
    interrupted: bool,
    forecast: float | None = None,
) -> Table:
    """One line for each rule; why it was refused where it was."""
    from rich.table import Table

    done = max(len(row.prompts) for row in rows)
    title = f"{_count(num_prompts)}; {interval_note(done, 'prompts')}"
    if interrupted:
        title += f"; interrupted in prompt {max(done, 1)}: what is done so far"
    if forecast is not None:
        title += f"\nforecast of the accept length: {1.0 + forecast:.2f}"
    table = Table(title=f"{_SUBJECT}\n{title}", caption=_MEANINGS)
    table.add_column("rule")
    for heading in (
        "accept\nlength",
        "acceptance\nrate",
        "ms a\ntoken",
        "verifier's\nshare",
    ):
        table.add_column(heading, justify="right")
    relaxed = any(row.total.kl > 0 for row in rows)
    if relaxed:
        table.add_column("KL, nats\na token", justify="right")
    refused = any(row.refusal for row in rows)
    if refused:
        table.add_column("refused", max_width=60)
    for row in rows:
        cells = ["-"] * (5 if relaxed else 4)
        if row.prompts:
            total = row.total
            cells = [
                with_interval(_over_prompts(row, "accept_length")),
                with_interval(_over_prompts(row, "first_token_acceptance_rate")),
                f"{1e3 * total.seconds_per_token:.1f}",
                f"{total.verify_share:.1%}",
                *([f"{total.kl_per_token:.4g}"] if relaxed else []),
            ]
        table.add_row(row.rule, *cells, *([row.refusal] if refused else []))
    return table


def conclusion(rows: Sequence[ComparedRule]) -> str:
    """The rules with the longest steps, and whether others may be as good."""
    done = {row.rule: _over_prompts(row, "accept_length") for row in rows if row.prompts}
    longest = max(done.values(), key=lambda length: length.mean)
    best = [name for name, length in done.items() if length.mean == longest.mean]
    text = f"most tokens a step: {', '.join(best)}, {longest.mean:.2f}"
    if longest.num_groups == 1 and len(done) > 1:
        return f"{text}; one prompt tells no rules apart: give several"
    near = [name for name in done if name not in best and done[name].high >= longest.low]
    if near:
        them = "it" if len(best) == 1 else "them"
        text += f"; not told apart from {them} by these prompts: {', '.join(near)}"
    return text


def _over_prompts(row: ComparedRule, value: str) -> MeanInterval:
    return mean_interval(np.array([getattr(metrics, value) for metrics in row.prompts]))


def _count(num_prompts: int) -> str:
    return "1 prompt" if num_prompts == 1 else f"{num_prompts} prompts"
