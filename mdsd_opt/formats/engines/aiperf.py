"""AIPerf: its records of requests, and the aggregate of a run.

The aggregate's histogram is of all steps; `spec_decode_acceptance_length` is a mean of requests'
means, and the warm-up is not of the run. Histograms of llama.cpp's requests are made up by AIPerf,
as even as can be, and count the prompt's token as a step.
"""

from __future__ import annotations

from typing import Any

from mdsd_opt.formats.checks import Told, counts_by_names
from mdsd_opt.formats.content import count, counted
from mdsd_opt.formats.counts import AcceptedCounts, Measured
from mdsd_opt.formats.engines.vllm import REQUEST
from mdsd_opt.formats.format import Format

_RUN = {
    "accepted": "total_accepted_draft_tokens",
    "drafted": "total_draft_tokens",
    "steps": "total_spec_decode_steps",
    "histogram": "pooled_spec_decode_acceptance_histogram",
    "mean": "spec_decode_token_weighted_acceptance_length",
    "rate": "spec_decode_overall_draft_acceptance_rate",
}


def of_record(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of one request; those of the warm-up are left out."""
    if not isinstance(record, dict) or "spec_decode_acceptance" not in record:
        return None
    found = record["spec_decode_acceptance"]
    phase = (record.get("metadata") or {}).get("benchmark_phase", "profiling")
    if not found or phase == "warmup":
        return [None]
    if found.get("engine") != "llamacpp":
        return [counts_by_names(found, where, REQUEST, dense=False)]
    steps = count(found, "num_spec_steps", where) - 1.0
    note = "AIPerf's histograms of llama.cpp are made up, and are not read"
    names = {field: REQUEST[field] for field in ("accepted", "drafted")}
    return [counts_by_names(found, where, names, steps=Told("num_spec_steps - 1", steps),
                            notes=(note,))]  # fmt: skip


def of_aggregate(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of a run by its pooled histogram."""
    if not isinstance(record, dict) or _RUN["histogram"] not in record:
        return None
    tokens, seconds = (
        counted(record, name, where) for name in ("total_output_tokens", "benchmark_duration")
    )
    return [counts_by_names(record, where, _RUN, 100.0, dense=False, unit="runs",
                            measured=Measured(tokens, seconds))]  # fmt: skip


FORMATS = (
    Format("AIPerf's records", "JSON with 'spec_decode_acceptance'", of_record=of_record),
    Format("AIPerf's aggregate", f"JSON with '{_RUN['histogram']}'", of_record=of_aggregate),
)
