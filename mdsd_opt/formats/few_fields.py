"""Engines and tools that need no reader of their own: AIPerf, guidellm, MLC-LLM, Ollama and TGI.

AIPerf writes records of requests, and the aggregate of a run, whose histogram is of all steps;
`spec_decode_acceptance_length` is a mean of requests' means, and the warm-up is not of the run.
Histograms of llama.cpp's requests are made up by it, as even as can be, and count the prompt's
token as a step. guidellm's report says nothing of drafts.

MLC-LLM has counters `spec_decode` in its engine's metrics, and in the usage of its answers: step 0
is the target's own token, which every verification accepts, the others are drafts by position.

A line "speculative decode stats" of Ollama counts rounds (`iterations`), those without a draft
among them; `avg_accepted` leaves the target's token out. Its streams are one line a chunk.

TGI's answers have log-probabilities in `details`, asked for with top_n_tokens; the drawn token
stands beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of, entries_of
from mdsd_opt.formats.checks import (
    Field,
    Told,
    agree,
    at_most,
    counts_by_names,
    counts_of,
    told_in,
    told_of,
)
from mdsd_opt.formats.content import count, holders, lines_of
from mdsd_opt.formats.counts import AcceptedCounts
from mdsd_opt.formats.reading import Format
from mdsd_opt.formats.vllm import REQUEST

# --- AIPerf and guidellm ---

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


def of_aiperf(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of one request, or of a run; those of the warm-up are left out."""
    if isinstance(record, dict) and _RUN["histogram"] in record:
        yield counts_by_names(record, where, _RUN, dense=False, unit="runs")
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


def of_guidellm(record: Any, where: str) -> tuple[()]:
    """Refuse a report of guidellm."""
    report = record if isinstance(record, dict) and "benchmarks" in record else {}
    if "guidellm_version" in str(report.get("metadata")) or "guidellm" in str(report.get("args")):
        raise UnreadableFile(
            f"{where} is a report of guidellm: the metrics of its benchmarks count no drafts. Give "
            "the log or the metrics of the server that it measured"
        )
    return ()


# --- MLC-LLM ---

_MLC = {"positions": "accept_count", "shares": "draft_count"}


def of_mlc(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of an engine since its start."""
    sums = holders(record, "completion_tokens_sum")
    tokens = told_of(sums[0], {"tokens": "completion_tokens_sum"}, where) if len(sums) == 1 else {}
    for entry in holders(record, "accept_count"):
        accepted, drafted = told_of(entry, _MLC, where, needed=_MLC).values()
        agree(where, accepted.number, drafted.number)
        if accepted.number.value < 2:
            yield None
            continue
        agree(where, accepted.at(0), drafted.at(0))
        for place in range(1, len(accepted.value)):
            at_most(where, accepted.at(place), drafted.at(place))
        yield counts_of(
            where, drafted=Told(drafted.name, float(sum(drafted.value[1:]))), steps=accepted.at(0),
            depth=accepted.number - 1.0, positions=Told(accepted.name, accepted.value[1:]),
            unit="runs", **tokens,
        )  # fmt: skip


# --- Ollama ---

_MARKER = "speculative decode stats"
_OLLAMA = {
    "rounds": "iterations",
    "drafted": "drafted",
    "accepted": "accepted",
    "depth": "max_draft",
    "mean_accepted": "avg_accepted",
    "mean_drafted": "avg_draft",
    "rate": "acceptance",
}
_LINE = {  # rounded to two places, and printed without zeros
    field: Field(name, r"(\d+(?:\.\d+)?)(?=\s|$)", rf"\b{name}=",
                 0.0051 if field[:4] in ("mean", "rate") else 0.0)
    for field, name in _OLLAMA.items()
}  # fmt: skip


def of_ollama(text: str, source: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each line."""
    for where, line in lines_of(text, source):
        if _MARKER in line:
            needed = [*_OLLAMA][:5]
            numbers = told_in(line, _LINE, where, f"Ollama's {_MARKER}", needed)
            full = numbers["depth"].value * numbers["rounds"].value
            steps = numbers["rounds"] if numbers["drafted"].value == full else None
            yield counts_of(where, **numbers, steps=steps)


def ollama_answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """Text of an answer: tokens by their bytes, none for the drawn token."""
    rows = record.get("logprobs") if isinstance(record, dict) else None
    if not isinstance(rows, list) or not any(isinstance(x, dict) and "token" in x for x in rows):
        return
    if not any("top_logprobs" in x for x in rows if x):
        raise UnreadableFile(
            f"{where} has no lists of log-probabilities in 'logprobs': ask for top_logprobs"
        )
    yield answer_of(where, **entries_of(rows))


# --- TGI ---


def tgi_answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """All texts of an answer: that of `details`, and those of `best_of_sequences`."""
    texts = holders(record, "top_tokens")
    more = [text for x in texts for text in holders(x.get("best_of_sequences"), "top_tokens")]
    for details in (*texts, *more):
        if isinstance(tokens := details.get("tokens"), list):
            rows = [[(int(e["id"]), e["logprob"]) for e in row] for row in details["top_tokens"]]
            yield answer_of(
                where, [int(x["id"]) for x in tokens], rows,
                own=[x.get("logprob") for x in tokens], fields=("top_tokens", "logprob"),
            )  # fmt: skip


FORMATS = (
    Format("AIPerf", f"JSON with 'spec_decode_acceptance' or '{_RUN['histogram']}'",
           of_record=of_aiperf),
    Format("guidellm", "", of_record=of_guidellm),
    Format("MLC's counters", "JSON with 'accept_count'", of_record=of_mlc),
    Format("Ollama's log", f"lines with '{_MARKER}'", re.compile(_MARKER), of_ollama),
    Format("Ollama's answers", "JSON with 'logprobs' of 'top_logprobs'", answers=ollama_answers),
    Format("TGI's answers", "JSON with 'details' of 'top_tokens' (top_n_tokens)",
           answers=tgi_answers),
)  # fmt: skip
