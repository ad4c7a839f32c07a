"""mdsd-opt rates of texts of servers: two files of JSON lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mdsd_opt.cli.options import Asked
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table

    from mdsd_opt.cli.view import View
    from mdsd_opt.corpora import IntervalRow, RateIntervals

_NOT_FOR_THESE = (
    *("temperature", "pad", "plot", "executor", "kind", "out", "draft-temperature", "top-k"),
    *("top-p", "min-p", "best-temperature", "best-filter", "mask", "lift", "no-mask-draft"),
)


def takes(asked: Asked) -> bool:
    """Whether the rates are those of JSON lines."""
    return bool(asked.paths) and asked.paths[0].name.endswith((".jsonl", ".jsonl.gz"))


def view(asked: Asked) -> View:
    """View of certified intervals of the optimal acceptance rate."""
    from mdsd_opt.base.files import file_size
    from mdsd_opt.cli.view import Section, View
    from mdsd_opt.corpora import rate_intervals

    asked.refuse(
        _NOT_FOR_THESE,
        "{name} is not for log-probabilities of servers: they are what the server sampled from, "
        "or would have",
    )
    paths = asked.paths
    if len(paths) != 2:
        raise InvalidInput(f"{len(paths)} .jsonl files given: give the target's and the draft's")
    for path in paths:
        file_size(path)  # missing, or no file
    target, draft = paths
    schemes = asked.schemes
    if asked.all_schemes or asked.usual_schemes:
        schemes = ["with_replacement", "without_replacement"]
    intervals = rate_intervals(
        target, draft, schemes, asked.num_drafts, asked.vocab_size, asked.confidence, asked.progress
    )
    source = f"{target} and {draft}"
    title = (
        f"{source}: {intervals.num_positions} positions in {intervals.num_texts} texts\n"
        f"not listed on average: {intervals.target_tail:.3g} of the target, "
        f"{intervals.draft_tail:.3g} of the draft"
    )
    lines = [row.to_dict() for row in intervals.rows]
    return View(
        f"Acceptance rates of {title}",
        [Section("", table=_table(intervals, title), keys=2)],
        [_conclusion(intervals)],
        {
            "source": source,
            "num_positions": intervals.num_positions,
            "num_sequences": intervals.num_texts,
            "target_tail": intervals.target_tail,
            "draft_tail": intervals.draft_tail,
            "confidence": asked.confidence,
            "interval_over": "sequences",
            "rows": lines,
        },
        rows=lines,
    )


def _table(intervals: RateIntervals, title: str) -> Table:
    from mdsd_opt.cli.output import make_table
    from mdsd_opt.drafts import title_of

    def line(row: IntervalRow) -> tuple[str, ...]:
        sampled = (
            " .. ".join(_ends(row.lower.low, row.upper.high, 4))
            if intervals.num_texts > 1
            else "takes several texts"
        )
        certified = " .. ".join(_ends(row.lower.mean, row.upper.mean, 4))
        return title_of(row.scheme), str(row.num_drafts), certified, sampled

    return make_table(
        f"optimal acceptance rate: how often the output can be one of the K drafts\n{title}",
        ("drafts", "K", "certified", "with sampling"),
        map(line, intervals.rows),
        caption="certified: whatever the probabilities of the tokens are that are not listed\n"
        "with sampling: from the lower confidence limit of the one to the upper of the other",
        grouped=True,
    )


def _conclusion(intervals: RateIntervals) -> str:
    """Sentence about what is certain at the largest number of drafts."""
    most = max(row.num_drafts for row in intervals.rows)
    best = max(
        (row for row in intervals.rows if row.num_drafts == most), key=lambda row: row.lower.mean
    )
    low, high = _ends(best.lower.mean, best.upper.mean, 3)
    return (
        f"at K = {most}: {best.scheme.replace('_', ' ')}, at least {low} on average and at most "
        f"{high}; more tokens a list narrow it"
    )


def _ends(low: float, high: float, places: int) -> tuple[str, str]:
    """Ends of an interval, rounded outwards, so that they stay certified."""
    scale = 10.0**places
    low, high = math.floor(low * scale) / scale, math.ceil(high * scale) / scale
    return f"{low:.{places}f}", f"{high:.{places}f}"
