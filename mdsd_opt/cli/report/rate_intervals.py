"""Optimal acceptance rates of texts of which servers told the likeliest tokens: intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.base.files.engine_output import paired_positions
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.batch.top_logprobs import interval_ends
from mdsd_opt.corpora.intervals import MeanInterval, mean_interval
from mdsd_opt.errors import MdsdError, UnreadableFile

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One scheme at one K.

    Attributes
    ----------
    scheme : str
    num_drafts : int
    lower, upper : MeanInterval
        Means of the certified ends over positions, each with its confidence interval over texts.
    """

    scheme: str
    num_drafts: int
    lower: MeanInterval
    upper: MeanInterval

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; missing interval ends are None."""
        ends = {"lower": self.lower.to_dict(), "upper": self.upper.to_dict()}
        return {
            "scheme": self.scheme,
            "num_drafts": self.num_drafts,
            "verifier": "optimal",
            **{f"{end}_{name}": x for end, fields in ends.items() for name, x in fields.items()},
        }


@dataclass(frozen=True, slots=True)
class RateIntervals:
    """What the log-probabilities of two files say.

    Attributes
    ----------
    rows : tuple of IntervalRow
    num_positions, num_texts : int
    target_tail, draft_tail : float
        Mean mass of the tokens that are not listed.
    """

    rows: tuple[IntervalRow, ...]
    num_positions: int
    num_texts: int
    target_tail: float
    draft_tail: float


def rate_intervals(
    target: Path,
    draft: Path,
    schemes: Sequence[str],
    counts: Sequence[int],
    vocab_size: int | None,
    confidence: float,
    progress: bool,
) -> RateIntervals:
    """Intervals of every scheme and K from two files of JSON lines, text by text.

    A text whose lists hold the same tokens at every position and on both sides has them all.

    Raises
    ------
    UnreadableFile
        The files are broken, score different texts, or have no position with two lists.
    """
    found, texts, tails = [], [], []
    with target.open("rb") as file:
        num_lines = sum(1 for line in file if line.strip())
    with progress_bar("acceptance intervals", num_lines, progress) as advance:
        for number, positions in enumerate(paired_positions(target, draft), start=1):
            size = vocab_size or _size_if_complete(positions)
            for place, (p, q) in enumerate(positions):
                try:
                    ends = [interval_ends(p, q, counts, scheme, size) for scheme in schemes]
                except MdsdError as error:
                    raise type(error)(f"request {number}, list {place + 1}: {error}") from error
                found.append([x for x, _, _ in ends])
                tails.append([side.unlisted for side in ends[0][1:]])
                texts.append(number)
            advance(1)
    if not found:
        raise UnreadableFile(f"{target} and {draft} have no position with lists on both sides")
    values, groups = np.array(found), np.array(texts)
    rows = [
        IntervalRow(
            scheme,
            k,
            *(mean_interval(values[:, i, j, end], groups, confidence) for end in (0, 1)),
        )
        for i, scheme in enumerate(schemes)
        for j, k in enumerate(counts)
    ]
    target_tail, draft_tail = np.mean(tails, axis=0).tolist()
    return RateIntervals(tuple(rows), len(found), len(set(texts)), target_tail, draft_tail)


def _size_if_complete(positions: Sequence[tuple[dict[Any, float], dict[Any, float]]]) -> int | None:
    if len(positions) < 2:
        return None
    tokens = positions[0][0].keys()
    same = all(side.keys() == tokens for pair in positions for side in pair)
    return len(tokens) if same else None


def intervals_table(intervals: RateIntervals, title: str) -> Table:
    """One line for each scheme and K."""
    from rich.table import Table

    from mdsd_opt.drafts.by_name import title_of

    table = Table(
        title=f"optimal acceptance rate: how often the output can be one of the K drafts\n{title}",
        caption="certified: whatever the probabilities of the tokens are that are not listed\n"
        "with sampling: from the lower confidence limit of the one to the upper of the other",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("drafts")
    for header in ("K", "certified", "with sampling"):
        table.add_column(header, justify="right")
    previous = None
    for row in intervals.rows:
        if previous not in (None, row.scheme):
            table.add_section()
        name = title_of(row.scheme) if row.scheme != previous else ""
        low, high = max(row.lower.low, 0.0), min(row.upper.high, 1.0)
        sampled = (
            " .. ".join(_ends(low, high, 4)) if intervals.num_texts > 1 else "takes several texts"
        )
        certified = " .. ".join(_ends(row.lower.mean, row.upper.mean, 4))
        table.add_row(name, str(row.num_drafts), certified, sampled)
        previous = row.scheme
    return table


def intervals_conclusion(intervals: RateIntervals) -> str:
    """What is certain of the largest number of drafts."""
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
    """Rounded outwards: what is certified stays so."""
    scale = 10.0**places
    low, high = math.floor(low * scale) / scale, math.ceil(high * scale) / scale
    return f"{low:.{places}f}", f"{high:.{places}f}"
