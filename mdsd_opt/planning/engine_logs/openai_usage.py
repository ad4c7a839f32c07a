"""Answers in OpenAI's style, and AIPerf's records of them: accepted and rejected predictions."""

from __future__ import annotations

from typing import Any

from mdsd_opt.planning.counts import AcceptedCounts, one
from mdsd_opt.planning.engine_logs.reader import Reader, count, holder_of, needs_length

_NAMES = ("accepted_prediction_tokens", "rejected_prediction_tokens")


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of one answer."""
    found = holder_of(record, _NAMES[0], f"usage_{_NAMES[0]}")
    accepted, rejected = (_value(found, name, where) for name in _NAMES)
    if not accepted + rejected:
        return None
    if num_drafts is None:
        raise needs_length(where, "")
    drafted = accepted + rejected
    return one(accepted, drafted, drafted / num_drafts, num_drafts)


def _value(found: dict[str, Any], name: str, where: str) -> float:
    """Count under a name, or in AIPerf's object of its value and unit."""
    for key in (name, f"usage_{name}"):
        if isinstance(found.get(key), dict):
            return count(found[key], "value", f"{where}, {key}")
        if key in found:
            return count(found, key, where)
    return count(found, name, where)


READERS = (
    Reader(
        "usage in OpenAI's style",
        "JSON with 'accepted_prediction_tokens'",
        of_record=of_record,
    ),
)
