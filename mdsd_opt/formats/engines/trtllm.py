"""TensorRT-LLM: statistics of iterations, of choices of an answer, and of requests.

Iterations stand in the answer of GET /metrics, or are lines of a file: `numAcceptedTokens` leaves
the target's token out, `acceptanceLength` counts it. With attention in data parallel, rows of other
ranks repeat the counts of rank 0. What trtllm-bench prints are means over requests.
"""

from __future__ import annotations

import re
from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.checks import Told, agree, counts_by_names, counts_of
from mdsd_opt.formats.content import count, counted, holders
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Passes
from mdsd_opt.formats.format import Format

_ITERATION = ("specDecodingStats", "specDecStats", "spec_dec_stats", "specdec_stats")
_REQUEST = ("total_accepted_draft_tokens", "totalAcceptedDraftTokens")


def of_iterations(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of each iteration."""
    if isinstance(record, dict) and not any(name in record for name in _ITERATION):
        found = holders(record, *_ITERATION)
        return [_of_iteration(x, where) for x in found] or None
    return [_of_iteration(record, where)] if isinstance(record, dict) else None


def _of_iteration(found: dict[str, Any], where: str) -> AcceptedCounts | None:
    stats = next((found[name] for name in _ITERATION if found.get(name)), None)
    rank = _told(found, "attention_dp_rank", where)
    if not stats or (rank is not None and rank.value):
        return None
    drafted, accepted, steps = (
        _needed(stats, name, where)
        for name in ("num_draft_tokens", "num_accepted_tokens", "num_requests_with_draft_tokens")
    )
    if not steps.value:
        return None
    length = _told(stats, "acceptance_length", where)
    each = drafted.value / steps.value
    ms, draft_ms, share = (
        found.get("iterLatencyMS", found.get("iter_latency_ms")),
        stats.get("iterLatencyMS", stats.get("iter_latency_ms")),
        _told(stats, "draft_overhead", where),
    )
    if ms and draft_ms is not None and share is not None:
        agree(where, Told("draftOverhead", share.value, 0.0051),
              Told("iterLatencyMS of drafting / iterLatencyMS", draft_ms / ms))  # fmt: skip
    batch = found.get("inflightBatchingStats") or found.get("inflight_batching_stats") or {}
    running = _told(batch, "num_gen_requests", where) or _told(found, "num_active_requests", where)
    prefills = _told(batch, "num_context_requests", where)
    measured = Measured()
    if ms and not (prefills and prefills.value):
        measured = Measured(
            passes=(Passes(None if running is None else running.value, 1.0, float(ms)),),
            drafting=() if draft_ms is None else (Passes(None, 1.0, float(draft_ms)),),
        )
    return counts_of(
        where, accepted, drafted, steps,
        Told(f"{drafted.name} / {steps.name}", each) if each % 1 == 0 else None,
        mean=length and Told(f"{length.name} - 1", length.value - 1.0, 0.0051),
        unit="iterations", measured=measured,
    )  # fmt: skip


def _told(found: dict[str, Any], name: str, where: str) -> Told | None:
    """Number under its name in C++ or in Python."""
    first, *others = name.split("_")
    camel = first + "".join(part.capitalize() for part in others)
    key = camel if camel in found else name
    value = counted(found, key, where)
    return None if value is None else Told(key, value)


def _needed(found: dict[str, Any], name: str, where: str) -> Told:
    told = _told(found, name, where)
    return told or Told(name, count(found, name, where))


def of_requests(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of each choice of an answer, or of each request."""
    found = [x for x in holders(record, *_REQUEST) if not isinstance(x.get(_REQUEST[0]), dict)]
    means = {
        id(x.get("speculative_decoding")): {"mean": x["avg_decoded_tokens_per_iter"]}
        for x in holders(record, "avg_decoded_tokens_per_iter")
    }
    return [_of_request({**x, **means.get(id(x), {})}, where) for x in found] or None


def _of_request(found: dict[str, Any], where: str) -> AcceptedCounts | None:
    names = {
        "accepted": _REQUEST["totalAcceptedDraftTokens" in found],
        "drafted": "totalDraftTokens" if "totalDraftTokens" in found else "total_draft_tokens",
        "steps": "num_spec_steps",
        "depth": "num_spec_tokens",
        "histogram": "acceptance_histogram",
        "mean": "mean",
        "rate": "acceptance_rate",
    }
    count(found, names["drafted"], where)
    found = {name: x for name, x in found.items() if name != "acceptance_rate" or x}
    return counts_by_names(found, where, names)


def of_bench_text(text: str, source: str) -> list[AcceptedCounts]:
    """Refuse what trtllm-bench prints."""
    raise UnreadableFile(
        f"{source} is what trtllm-bench prints: [DT] AVERAGE and [AL] AVERAGE are means over "
        "requests, not over steps, and [DT] counts K drafts a step whether they were drafted or "
        "not. Give the statistics of iterations (--iteration_log, or GET /metrics)"
    )


FORMATS = (
    Format(
        "TensorRT-LLM's iterations", "JSON with 'specDecodingStats'", of_record=of_iterations
    ),
    Format(
        "TensorRT-LLM's requests", "JSON with 'total_accepted_draft_tokens'", of_record=of_requests
    ),
    Format(
        "trtllm-bench", "",
        re.compile(r"^\[(?:DT|AL)\] AVERAGE:|DECODING STATISTICS", re.MULTILINE), of_bench_text,
    ),
)  # fmt: skip
