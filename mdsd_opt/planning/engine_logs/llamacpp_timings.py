"""Answers of llama.cpp's server: `timings` with `draft_n` and `draft_n_accepted`."""

from __future__ import annotations

from typing import Any

from mdsd_opt.planning.counts import AcceptedCounts, one
from mdsd_opt.planning.engine_logs.reader import (
    NotThisFormat,
    Reader,
    count,
    holder_of,
    needs_length,
)


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """One group; steps that did not draft are among its steps."""
    found = holder_of(record, "draft_n")
    drafted, accepted = (count(found, name, where) for name in ("draft_n", "draft_n_accepted"))
    if not drafted:
        return None
    steps = count(found, "predicted_n", where) - 1.0 - accepted
    k = num_drafts or _length(record, drafted, steps)
    if not k:
        raise needs_length(where, " (--spec-draft-n-max, --draft-max)")
    return one(accepted, drafted, max(steps, drafted / k), k)


def _length(record: Any, drafted: float, steps: float) -> int | None:
    try:
        settings = holder_of(record, "speculative.n_max")
        return int(settings["speculative.n_max"])
    except NotThisFormat:
        per_step = drafted / steps if steps > 0 else 0.5
        return round(per_step) if per_step % 1 == 0 else None


READER = Reader(
    "llama.cpp's answers", "JSON with 'draft_n' and 'draft_n_accepted'", of_record=of_record
)
