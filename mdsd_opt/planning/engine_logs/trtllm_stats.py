"""Statistics that TensorRT-LLM writes, of iterations or of single requests.

Iterations stand in the answer of GET /metrics, or are lines of a file; requests have
`speculative_decoding` among their `perf_metrics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from mdsd_opt.planning.counts import AcceptedCounts, added_up, merged, one
from mdsd_opt.planning.engine_logs.reader import Reader, count, holder_of, needs_length

_ITERATION = ("specDecodingStats", "specDecStats", "spec_dec_stats", "specdec_stats")
_REQUEST = ("total_accepted_draft_tokens", "totalAcceptedDraftTokens")

#: Number of stretches of a run that are taken for independent.
_STRETCHES = 40


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of one iteration or of one request."""
    found = holder_of(record, *_ITERATION, *_REQUEST)
    name = next((name for name in _ITERATION if name in found), None)
    if name is None:
        accepted, drafted = (
            _either(found, f"total_{part}_tokens", where) for part in ("accepted_draft", "draft")
        )
        if not drafted:
            return None
        if num_drafts is None:
            raise needs_length(where, " (max_draft_len)")
        return one(accepted, drafted, drafted / num_drafts, num_drafts)
    stats = found[name]
    if not stats:
        return None
    drafted, accepted, steps = (
        _either(stats, part, where)
        for part in ("num_draft_tokens", "num_accepted_tokens", "num_requests_with_draft_tokens")
    )
    if not steps:
        return None
    k = max(ceil(drafted / steps), num_drafts or 1)
    return one(accepted, drafted, steps, k, unit="iterations")


def _either(found: dict[str, Any], name: str, where: str) -> float:
    """Count under its name in C++ or in Python."""
    first, *others = name.split("_")
    camel = first + "".join(part.capitalize() for part in others)
    return count(found, camel if camel in found else name, where)


def in_stretches(parts: Sequence[AcceptedCounts], source: str) -> AcceptedCounts:
    """Counts with neighbouring iterations, which are of the same requests, added up."""
    counts = merged(parts, source)
    size = counts.accepted.size
    if counts.unit != "iterations" or size <= _STRETCHES:
        return counts
    return replace(
        added_up(counts, np.arange(size) * _STRETCHES // size), unit="stretches of iterations"
    )


READERS = (
    Reader(
        "TensorRT-LLM",
        "JSON with 'specDecodingStats', or 'speculative_decoding' of requests",
        of_record=of_record,
        joined=in_stretches,
    ),
)
