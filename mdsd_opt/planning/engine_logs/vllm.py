"""Formats of vLLM: its log, its answers, and the result of its benchmark.

Lines "SpecDecoding metrics" of the log (V1), and of LMDeploy's, are sums over an interval of time.
Steps are not printed: each drafts K tokens, K the number of positions, or their number follows from
the accepted tokens and the rates by position, which are rounded to three places.

Histograms of accepted drafts of single requests stand in `metrics.speculative_decoding` of an
answer, as a list; AIPerf's records of them (export level "records") have them in
`spec_decode_acceptance`, as an object without the zeros.

The result of `vllm bench serve` is a JSON object: sums of the whole run, and rates by position.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts, merged, of_histogram, of_totals, one
from mdsd_opt.planning.engine_logs.reader import Reader, count, cut, holder_of, needs_length

_LINE = re.compile(r"SpecDecoding metrics:(.*)")
_LENGTH = re.compile(r"Mean acceptance length: (\d+\.\d\d)\b")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens\b")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens\b")
_RATES = re.compile(r"Per-position acceptance rate: (\d\.\d{3}(?:, \d\.\d{3})*)(?=$|\s|,)")

#: Largest errors of rounding to two and to three places.
_LESS, _HIDDEN = 0.0051, 0.00051


def of_text(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    """Counts of the log, a group for each line."""
    parts = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.search(line)
        if not match:
            continue
        patterns = (_LENGTH, _ACCEPTED, _DRAFTED, _RATES)
        found = [x[1] for x in (pattern.search(match[1]) for pattern in patterns) if x]
        rates = [float(x) for x in found[-1].split(", ")] if len(found) == len(patterns) else []
        if not rates or abs(1.0 + sum(rates) - float(found[0])) > _LESS + _HIDDEN * len(rates):
            raise cut(f"line {number} of {path}", "vLLM's SpecDecoding metrics")
        parts.append(_counts(int(found[1]), int(found[2]), rates))
    return merged([x for x in parts if x is not None], f"{path} (vLLM's log)")


def _counts(accepted: int, drafted: int, rates: list[float]) -> AcceptedCounts | None:
    k, whole = len(rates), sum(rates)
    if not drafted:
        return None
    steps = drafted / k
    if drafted % k or abs(whole * steps - accepted) > _HIDDEN * k * steps + 0.5:
        steps = max(accepted / whole, drafted / k) if whole else drafted / k
    reached = np.minimum.accumulate(np.minimum(np.array(rates), 1.0)) * steps
    if accepted and whole:
        reached = np.minimum(reached * (accepted / reached.sum()), steps)
    return one(reached.sum(), drafted, steps, k, reached=reached, unit="lines of the log")


_LOG_READER = Reader(
    "vLLM's log",
    "lines with 'SpecDecoding metrics:'",
    marker=re.compile("SpecDecoding metrics:"),
    of_text=of_text,
)


def of_answer(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of one answer."""
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


_ANSWER_READER = Reader(
    "vLLM's answers or AIPerf's records",
    "JSON with 'acceptance_histogram'",
    of_record=of_answer,
)


def of_benchmark(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of the whole run, which are not told by request."""
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


_BENCHMARK_READER = Reader(
    "vllm bench", "JSON with 'spec_decode_num_drafts'", of_record=of_benchmark
)

READERS = (_LOG_READER, _ANSWER_READER, _BENCHMARK_READER)
