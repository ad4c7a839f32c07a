"""TensorRT-LLM: statistics of iterations, of choices of an answer, and of requests.

Iterations stand in the answer of GET /metrics, or are lines of a file: `numAcceptedTokens` leaves
the target's token out, `acceptanceLength` counts it. With attention in data parallel, rows of other
ranks repeat the counts of rank 0. What trtllm-bench prints are means over requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.checks import Told, counts_by_names, counts_of, told_of
from mdsd_opt.formats.content import holders
from mdsd_opt.formats.counts import AcceptedCounts, Measured, passes_of
from mdsd_opt.formats.reading import Format

_STATS = ("specDecodingStats", "specDecStats", "spec_dec_stats", "specdec_stats")

#: Names in C++ and in Python: of an iteration, its batch, and its drafts.
_ITERATION = {
    "rank": ("attentionDpRank", "attention_dp_rank"),
    "ms": ("iterLatencyMS", "iter_latency_ms"),
    "active": ("numActiveRequests", "num_active_requests"),
}
_BATCH = {
    "running": ("numGenRequests", "num_gen_requests"),
    "prefills": ("numContextRequests", "num_context_requests"),
}
_DRAFTS = {
    "accepted": ("numAcceptedTokens", "num_accepted_tokens"),
    "drafted": ("numDraftTokens", "num_draft_tokens"),
    "steps": ("numRequestsWithDraftTokens", "num_requests_with_draft_tokens"),
    "length": ("acceptanceLength", "acceptance_length"),
    "draft_ms": _ITERATION["ms"],
    "overhead": ("draftOverhead", "draft_overhead"),
}
_REQUEST = {
    "accepted": ("total_accepted_draft_tokens", "totalAcceptedDraftTokens"),
    "drafted": ("total_draft_tokens", "totalDraftTokens"),
    "steps": "num_spec_steps",
    "depth": "num_spec_tokens",
    "histogram": "acceptance_histogram",
    "length": "avg_decoded_tokens_per_iter",
    "rate": "acceptance_rate",
}


def of_iterations(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each iteration; those of other ranks repeat it."""
    for entry in holders(record, *_STATS, null=True):
        stats = next((entry[name] for name in _STATS if entry.get(name)), None)
        iteration = told_of(entry, _ITERATION, where)
        rank = iteration.get("rank")
        is_other = rank is not None and rank.value
        yield _of_iteration(iteration, entry, stats, where) if stats and not is_other else None


def _of_iteration(
    iteration: dict[str, Told], entry: dict[str, Any], stats: dict[str, Any], where: str
) -> AcceptedCounts | None:
    numbers = told_of(stats, _DRAFTS, where, ("drafted", "accepted", "steps"))
    if not numbers["steps"].value:
        return None
    if "overhead" in numbers:
        numbers["overhead"] = replace(numbers["overhead"], off=0.0051)
    batch = entry.get("inflightBatchingStats") or entry.get("inflight_batching_stats") or {}
    told = iteration | told_of(batch, _BATCH, where)
    running, ms, draft_ms = (
        x and x.value
        for x in (told.get("running", told.get("active")), told.get("ms"), numbers.get("draft_ms"))
    )
    measured = Measured()
    if ms and ("prefills" not in told or not told["prefills"].value):
        measured = Measured(passes=passes_of(running, 1.0, ms),
                            drafting=passes_of(None, 1.0, draft_ms))  # fmt: skip
    depth = numbers["drafted"] / numbers["steps"]
    return counts_of(
        where, **numbers, depth=None if depth.value % 1 else depth, ms=told.get("ms"),
        unit="iterations", measured=measured,
    )  # fmt: skip


def of_requests(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each choice of an answer, or of each request."""
    mean = "avg_decoded_tokens_per_iter"
    means = {id(x.get("speculative_decoding")): {mean: x[mean]} for x in holders(record, mean)}
    for entry in holders(record, *_REQUEST["accepted"]):
        if isinstance(entry.get("total_accepted_draft_tokens"), dict):  # AIPerf's
            continue
        rate = {} if entry.get("acceptance_rate") else {"acceptance_rate": None}
        fields = {**entry, **means.get(id(entry), {}), **rate}
        yield counts_by_names(fields, where, _REQUEST, needed=("drafted",))


def of_bench_text(text: str, source: str) -> NoReturn:
    """Refuse what trtllm-bench prints."""
    raise UnreadableFile(
        f"{source} is what trtllm-bench prints: [DT] AVERAGE and [AL] AVERAGE are means over "
        "requests, not over steps, and [DT] counts K drafts a step whether they were drafted or "
        "not. Give the statistics of iterations (--iteration_log, or GET /metrics)"
    )


FORMATS = (
    Format("TensorRT-LLM's iterations", "JSON with 'specDecodingStats'", of_record=of_iterations),
    Format(
        "TensorRT-LLM's requests", "JSON with 'total_accepted_draft_tokens'", of_record=of_requests
    ),
    Format(
        "trtllm-bench",
        "",
        re.compile(r"^\[(?:DT|AL)\] AVERAGE:|DECODING STATISTICS", re.MULTILINE),
        of_bench_text,
    ),
)
