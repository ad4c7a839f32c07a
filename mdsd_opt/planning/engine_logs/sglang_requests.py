"""Answers of SGLang's server: `meta_info` with `spec_verify_ct`, and a histogram of newer ones."""

from __future__ import annotations

from typing import Any

from mdsd_opt.planning.counts import AcceptedCounts, of_histogram, one
from mdsd_opt.planning.engine_logs.reader import Reader, count, holder_of, needs_length

#: Names that changed between versions, the newest first.
_ACCEPTED = ("spec_num_correct_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """One group."""
    found = holder_of(record, "spec_verify_ct")
    steps = count(found, "spec_verify_ct", where)
    if not steps:
        return None
    histogram = next((found[name] for name in _HISTOGRAM if found.get(name)), None)
    drafted = _first(found, _DRAFTED, where)
    k = num_drafts or (round(drafted / steps) if drafted else 0)
    if not k:
        raise needs_length(where, " (speculative_num_draft_tokens less one)")
    drafted = k * steps if drafted is None else drafted
    if histogram is not None:
        return of_histogram(histogram, drafted, k, where)
    accepted = _first(found, _ACCEPTED, where)
    if accepted is None:  # every step brings one token more, and so does the prompt
        accepted = max(count(found, "completion_tokens", where) - 1 - steps, 0.0)
    return one(accepted, drafted, steps, k)


def _first(found: dict[str, Any], names: tuple[str, ...], where: str) -> float | None:
    return next((count(found, name, where) for name in names if name in found), None)


READER = Reader(
    "SGLang's answers",
    "JSON with 'spec_verify_ct' in 'meta_info'",
    of_record=of_record,
)
