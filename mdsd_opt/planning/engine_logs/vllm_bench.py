"""The result of `vllm bench serve`, a JSON object: sums of the whole run, and rates by position."""

from __future__ import annotations

from typing import Any

from mdsd_opt.planning.counts import AcceptedCounts, of_totals
from mdsd_opt.planning.engine_logs.reader import Reader, count, holder_of, needs_length


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """The steps of the run, as they are not told by request."""
    found = holder_of(record, "spec_decode_num_drafts")
    steps, drafted, accepted = (
        count(found, f"spec_decode_{name}", where)
        for name in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    rates = found.get("spec_decode_per_position_acceptance_rates") or []
    k = len(rates) or num_drafts
    if not steps:
        return None
    if not k:
        raise needs_length(where, "")
    reached = [float(rate) * steps for rate in rates] or None
    return of_totals(accepted, drafted, k, reached, steps, where)


READER = Reader("vllm bench", "JSON with 'spec_decode_num_drafts'", of_record=of_record)
