"""Histograms of accepted drafts of single requests: vLLM's answers, and AIPerf's records of them.

vLLM has them in `metrics.speculative_decoding` of an answer, as a list; AIPerf (export level
"records") in `spec_decode_acceptance`, as an object without the zeros.
"""

from __future__ import annotations

from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts, of_histogram
from mdsd_opt.planning.engine_logs.reader import Reader, count, holder_of


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """One group."""
    found = holder_of(record, "acceptance_histogram")
    given = found["acceptance_histogram"]
    if isinstance(given, dict):
        sparse = {int(accepted): times for accepted, times in given.items()}
        given = [sparse.get(j, 0) for j in range(max(sparse, default=0) + 1)]
    steps = sum(given)
    if not steps:
        return None
    if "num_spec_steps" in found and count(found, "num_spec_steps", where) != steps:
        raise UnreadableFile(f"{where}: acceptance_histogram does not sum to num_spec_steps")
    drafted = count(found, "num_draft_tokens", where)
    k = int(found.get("num_spec_tokens") or num_drafts or len(given) - 1)
    return of_histogram(given, drafted, k, where)


READER = Reader(
    "vLLM's answers or AIPerf's records",
    "JSON with 'acceptance_histogram'",
    of_record=of_record,
)
