"""AIPerf: its records of requests, and the aggregate of a run.

The aggregate's histogram is of all steps; `spec_decode_acceptance_length` is a mean of requests'
means, and the warm-up is not of the run. Histograms of llama.cpp's requests are made up by AIPerf,
as even as can be, and count the prompt's token as a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mdsd_opt.formats.checks import counts_by_names
from mdsd_opt.formats.content import count
from mdsd_opt.formats.counts import AcceptedCounts
from mdsd_opt.formats.engines.vllm import REQUEST
from mdsd_opt.formats.format import Format
from mdsd_opt.formats.told import Told

_RUN = {
    "accepted": "total_accepted_draft_tokens",
    "drafted": "total_draft_tokens",
    "steps": "total_spec_decode_steps",
    "histogram": "pooled_spec_decode_acceptance_histogram",
    "length": "spec_decode_token_weighted_acceptance_length",
    "percent": "spec_decode_overall_draft_acceptance_rate",
    "tokens": "total_output_tokens",
    "seconds": "benchmark_duration",
}


def of_record(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of one request; those of the warm-up are left out."""
    if not isinstance(record, dict) or "spec_decode_acceptance" not in record:
        return
    counts = record["spec_decode_acceptance"]
    phase = (record.get("metadata") or {}).get("benchmark_phase", "profiling")
    if not counts or phase == "warmup":
        yield None
    elif counts.get("engine") != "llamacpp":
        yield counts_by_names(counts, where, REQUEST, dense=False)
    else:
        names = {field: REQUEST[field] for field in ("accepted", "drafted")}
        steps = Told("num_spec_steps", count(counts, "num_spec_steps", where)) - 1.0
        note = "AIPerf's histograms of llama.cpp are made up, and are not read"
        yield counts_by_names(counts, where, names, steps=steps, notes=(note,))


def of_aggregate(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of a run by its pooled histogram."""
    if isinstance(record, dict) and _RUN["histogram"] in record:
        yield counts_by_names(record, where, _RUN, dense=False, unit="runs")


FORMATS = (
    Format("AIPerf's records", "JSON with 'spec_decode_acceptance'", of_record=of_record),
    Format("AIPerf's aggregate", f"JSON with '{_RUN['histogram']}'", of_record=of_aggregate),
)
