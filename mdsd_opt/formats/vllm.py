"""vLLM: its log, its answers, its prompts' log-probabilities, and the result of its benchmark.

Lines "SpecDecoding metrics" are sums over an interval of time, of requests that had a draft.
"Mean acceptance length" counts the target's token, the rates by position are shares of all steps
that drafted. Steps are not printed. How many requests ran stands in the line of `loggers.py`
beside it. LMDeploy's lines have the same fields in another order, behind the requests that run.

Answers have `metrics.speculative_decoding` with a histogram of accepted drafts of K + 1 places;
its mean counts the target's token. `vllm bench serve` prints what its run added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.checks import (
    Field,
    Told,
    at_most,
    counts_by_names,
    counts_of,
    hold,
    told_in,
    told_of,
)
from mdsd_opt.formats.content import counted, cut, holders, lines_of
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Speed, passes_of
from mdsd_opt.formats.reading import Format

_RUNNING = re.compile(r"Running: (\d+) reqs|\(running/waiting\): (\d+)")
_ENGINE = re.compile(r"Engine (\d+):")
_LENGTH = re.compile(r"num_spec(?:ulative)?_tokens['\"]?[=:] ?(\d+)")
_SPEED = r"(\d+(?:\.\d+)?) tokens/s"
_LINE = {
    "accepted": Field("Accepted", r"(\d+) tokens\b"),
    "drafted": Field("Drafted", r"(\d+) tokens\b"),
    "length": Field("Mean acceptance length", r"(\d+\.\d\d)\b"),
    "percent": Field("Draft acceptance rate", r"(\d+(?:\.\d+)?)%"),
    "shares": Field("Per-position acceptance rate", r"(\d\.\d{3}(?:, \d\.\d{3})*)(?=$|\s|,)"),
    "accepted_speed": Field("Accepted throughput", _SPEED),
    "drafted_speed": Field("Drafted throughput", _SPEED),
}


def of_log(text: str, source: str) -> list[AcceptedCounts | None]:
    """Counts of the log, a group for each line."""
    groups: list[AcceptedCounts | None] = []
    running: dict[str, float] = {}
    engine, settings = "", None
    for where, line in lines_of(text, source):
        if match := _ENGINE.search(line):
            engine = match[1]
        if match := _RUNNING.search(line):
            running[engine] = float(match[1] or match[2])
        if match := _LENGTH.search(line):
            settings = Told("num_speculative_tokens", float(match[1]))
        _, marker, content = line.partition("SpecDecoding metrics:")
        if marker and not all(f"{x}: 0 tokens" in content for x in ("Accepted", "Drafted")):
            groups.append(_of_line(content, where, running.get(engine), settings))
    if len(running) > 1:  # engines that ran at the same time
        groups = [x and replace(x, measured=replace(x.measured, seconds=None)) for x in groups]
    return groups


def _of_line(
    content: str, where: str, running: float | None, settings: Told | None
) -> AcceptedCounts | None:
    needed = ("accepted", "drafted", "length", "shares")
    numbers = told_in(content, _LINE, where, "SpecDecoding metrics", needed)
    speeds = [(numbers[x], numbers.get(f"{x}_speed")) for x in ("accepted", "drafted")]
    times = [number / speed for number, speed in speeds if speed is not None and speed.value]
    seconds = min(times, key=lambda x: x.off, default=None)
    counts = counts_of(
        where, **numbers, depth=numbers["shares"].number, limit=settings, seconds=seconds,
        unit="lines of the log",
    )  # fmt: skip
    if counts is None:
        return None
    steps, ms = counts.sum("steps"), seconds and 1000.0 * seconds.value
    passes = passes_of(running, steps / running, ms) if running else ()
    return counts.with_measured(Measured(counts.sum("accepted") + steps, passes=passes))


_INTERVAL = re.compile(r"Avg generation throughput: (\d+(?:\.\d+)?) tokens/s, Running: (\d+) reqs")


def speeds_of_log(text: str, source: str) -> Iterator[Speed]:
    """Tokens a second of each interval of the log, which are all as long."""
    for speed, running in _INTERVAL.findall(text):
        if float(speed) and int(running):
            yield Speed(float(running), float(speed), 1.0)


# --- answers ---

#: Names of the object `speculative_decoding`, which AIPerf's records have, too.
REQUEST = {
    "accepted": "num_accepted_draft_tokens",
    "drafted": "num_draft_tokens",
    "steps": "num_spec_steps",
    "depth": "num_spec_tokens",
    "histogram": "acceptance_histogram",
    "length": "mean_acceptance_length",
    "rate": "draft_acceptance_rate",
}


def of_answer(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each histogram in an answer."""
    requests = [
        x
        for x in holders(record, "acceptance_histogram", without="spec_decode_acceptance")
        if "total_accepted_draft_tokens" not in x
    ]
    empty = [x for x in holders(record, "speculative_decoding", null=True)
             if x["speculative_decoding"] is None] if not requests else []  # fmt: skip
    if any(len(x["choices"]) > 1 for x in holders(record, "choices") if empty):
        raise UnreadableFile(
            f"{where}: speculative_decoding is null, as vLLM counts none of several choices: "
            "ask with n = 1, or give the server's log or metrics"
        )
    if empty:
        yield None
    usage = [counted(x, "completion_tokens", where) for x in holders(record, "completion_tokens")]
    tokens = usage[0] if len(requests) == len(usage) == 1 else None
    for each in requests:
        yield _of_request(each, where, tokens)


def _of_request(request: dict[str, Any], where: str, tokens: float | None) -> AcceptedCounts | None:
    counts = counts_by_names(request, where, REQUEST, needed=("drafted",))
    if counts is None or counts.reached is None or counts.steps is None:
        return counts
    told = told_of(request, REQUEST | _EACH, where)
    hold(where, told)
    if tokens is None:
        return counts
    # a stop cuts off accepted drafts of the last step; the rest came in steps without a draft
    brought = counts.sum("accepted") + counts.sum("steps") + 1.0
    at_most(where, Told("accepted drafts + num_spec_steps + 1", brought, counts.longest + 1.0),
            Told("completion_tokens", tokens))  # fmt: skip
    return replace(counts, undrafted=np.array([max(tokens - brought, 0.0)]))


#: Arrays of `detailed` metrics, with an entry a step.
_EACH = {"each_accepted": "per_step_accepted", "each_drafted": "per_step_drafted"}


# --- benchmarks ---

_BENCH = {
    "accepted": "spec_decode_accepted_tokens",
    "drafted": "spec_decode_draft_tokens",
    "steps": "spec_decode_num_drafts",
    "length": "spec_decode_acceptance_length",
    "percent": "spec_decode_acceptance_rate",
    "shares": "spec_decode_per_position_acceptance_rates",
    "tokens": "total_output_tokens",
    "seconds": "duration",
}


def of_benchmark(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of the whole run, which are not told by request."""
    for run in holders(record, _BENCH["steps"]):
        yield counts_by_names(run, where, _BENCH, needed=("accepted", "drafted"), unit="runs")


def _row(name: str) -> Field:
    return Field(name, r"([\d.]+)\s*$", rf"(?m)^(?:  )?{re.escape(name)}:\s+")


_RUN = {
    "tokens": _row("Total generated tokens"),
    "seconds": _row("Benchmark duration (s)"),
    "speed": _row("Output token throughput (tok/s)"),
}
_DRAFTS = {
    "accepted": _row("Accepted tokens"),
    "drafted": _row("Draft tokens"),
    "steps": _row("Drafts"),
    "length": _row("Acceptance length"),
    "percent": _row("Acceptance rate (%)"),
}
_PLACE = re.compile(r"^(?:  )?Position (\d+):\s+([\d.]+)\s*$", re.MULTILINE)
_HEAD = re.compile(r"^(?==+ Serving Benchmark Result =+\s*$)", re.MULTILINE)


def blocks(
    text: str, source: str, fields: Mapping[str, Field], of: str
) -> Iterator[tuple[str, dict[str, Told]]]:
    """Blocks of a benchmark's text, each of one run, with the numbers of each."""
    for block in _HEAD.split(text)[1:] or [text]:
        yield block, told_in(block, {**_RUN, **fields}, source, of, fields)


def of_bench_text(text: str, source: str) -> Iterator[AcceptedCounts | None]:
    """Counts of the text that `vllm bench serve` prints, a group for each run."""
    of = "the result of vllm bench"
    for block, numbers in blocks(text, source, _DRAFTS, of):
        rest = block.partition("Speculative Decoding")[2]
        places = dict(_PLACE.findall(rest))
        if [*places] != [f"{n}" for n in range(len(places))] or not re.search(r"(?m)^=+\s*$", rest):
            raise cut(source, of)
        shares = [float(x) / 100 for x in places.values()]
        numbers["shares"] = Told("Per-position acceptance", shares, 0.000051)
        depth = numbers["shares"].number if places else None
        yield counts_of(source, **numbers, depth=depth, unit="runs")


_TOGETHER = re.compile(r"(?m)^(?:Max(?:imum)? request concurrency|Concurrency): +(\d[\d.]*)\s*$")


def speeds_of_bench(text: str, source: str) -> Iterator[Speed]:
    """Tokens and seconds of each run of a benchmark, of SGLang, too."""
    for block in _HEAD.split(text)[1:]:
        numbers = told_in(block, _RUN, source, "the result of a benchmark", ["tokens", "seconds"])
        hold(source, numbers)
        tokens, seconds = numbers["tokens"].value, numbers["seconds"].value
        if (together := _TOGETHER.search(block)) and tokens and seconds:
            yield Speed(float(together[1]), tokens, seconds)


# --- log-probabilities ---


def answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """Texts of the Python class (`outputs`, `token_ids`) and scored prompts."""
    if not isinstance(record, dict):
        return
    choices = record.get("choices") or record.get("outputs") or []
    for holder in (record, *(x for x in choices if isinstance(x, dict))):
        prompt = holder.get("prompt_token_ids") or record.get("prompt_token_ids")
        if holder.get("prompt_logprobs"):
            yield _listed(holder["prompt_logprobs"], prompt, where, top, is_prompt=True,
                          fields=("prompt_logprobs", "logprob"))  # fmt: skip
        rows = holder.get("logprobs")
        if (
            isinstance(rows, list)
            and all(isinstance(x, dict | None) for x in rows)
            and not any("top_logprobs" in x or "token" in x for x in rows if x)
        ):
            yield _listed(rows, holder.get("token_ids"), where, top, prompt=prompt,
                          fields=("logprobs", "logprob"))  # fmt: skip


def _listed(rows: list[Any], tokens: Any, where: str, top: int | None, **known: Any) -> Answer:
    listed = [
        {int(i): x if isinstance(x, dict) else {"logprob": x} for i, x in (row or {}).items()}
        for row in rows
    ]
    ranks = [{i: x.get("rank") for i, x in row.items()} for row in listed]
    return answer_of(
        where, None if tokens is None else [int(i) for i in tokens],
        [[(i, x["logprob"]) for i, x in row.items()] or None for row in listed],
        ranks=None if any(None in of.values() for of in ranks) else ranks,
        folds_drawn=True, top=top, **known,
    )  # fmt: skip


_METRICS = "SpecDecoding metrics:"

FORMATS = (
    Format(
        "vLLM's log", f"lines with '{_METRICS}'", of_text=of_log, speeds=speeds_of_log,
        forced=re.compile(r"""['"]?rejection_sample_method['"]?[=:] ?['"]?synthetic['"]?"""),
        marker=re.compile(rf"^(?!.*\(running/waiting\)).*{_METRICS}", re.MULTILINE),
    ),
    Format(
        "LMDeploy's log", f"lines with 'Engine (running/waiting)' and '{_METRICS}'",
        of_text=of_log, marker=re.compile(rf"^(?=.*\(running/waiting\)).*{_METRICS}", re.MULTILINE),
    ),
    Format(
        "vLLM's answers", "JSON with 'acceptance_histogram'", of_record=of_answer, answers=answers
    ),
    Format("vllm bench", "JSON with 'spec_decode_num_drafts'", of_record=of_benchmark),
    Format(
        "vllm bench's text", "a block 'Speculative Decoding' in 'Serving Benchmark Result'",
        marker=re.compile(r"^-+Speculative Decoding-+\s*$", re.MULTILINE), of_text=of_bench_text,
        speeds=speeds_of_bench,
    ),
)  # fmt: skip
