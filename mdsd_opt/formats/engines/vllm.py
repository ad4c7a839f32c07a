"""vLLM: its log, its answers, its prompts' log-probabilities, and the result of its benchmark.

Lines "SpecDecoding metrics" are sums over an interval of time, of requests that had a draft.
"Mean acceptance length" counts the target's token, the rates by position are shares of all steps
that drafted. Steps are not printed. How many requests ran stands in the line of `loggers.py`
beside it.

Answers have `metrics.speculative_decoding` with a histogram of accepted drafts of K + 1 places;
its mean counts the target's token. `vllm bench serve` prints what its run added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.checks import Told, agree, at_most, counts_by_names, counts_of
from mdsd_opt.formats.content import count, counted, cut, holders
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Passes
from mdsd_opt.formats.format import Format

_NUMBER = r"(\d+(?:\.\d+)?)"
_RUNNING = re.compile(r"Running: (\d+) reqs|\(running/waiting\): (\d+)")
_ENGINE = re.compile(r"Engine (\d+):")
_LENGTH = re.compile(r"num_speculative_tokens['\"]?[=:] ?(\d+)")

#: Names of the fields of a line, with what follows each.
_FIELDS = {
    "Mean acceptance length": r"(\d+\.\d\d)\b",
    "Accepted": r"(\d+) tokens\b",
    "Drafted": r"(\d+) tokens\b",
    "Accepted throughput": rf"{_NUMBER} tokens/s",
    "Drafted throughput": rf"{_NUMBER} tokens/s",
    "Avg Draft acceptance rate": rf"{_NUMBER}%",
    "Draft acceptance rate": rf"{_NUMBER}%",
}
_FIELD = {name: re.compile(rf"(?:^|[,\s]){name}: {value}") for name, value in _FIELDS.items()}
_SHARES = re.compile(r"Per-position acceptance rate: (\d\.\d{3}(?:, \d\.\d{3})*)(?=$|\s|,)")
_LAST = "Per-position acceptance rate"


def of_log(text: str, source: str) -> list[AcceptedCounts]:
    """Counts of the log, a group for each line; LMDeploy's lines have the same fields."""
    found: list[AcceptedCounts | None] = []
    running: dict[str, float] = {}
    engine, settings = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _ENGINE.search(line):
            engine = match[1]
        if match := _RUNNING.search(line):
            running[engine] = float(match[1] or match[2])
        if match := _LENGTH.search(line):
            settings = Told("num_speculative_tokens", float(match[1]))
        _, marker, content = line.partition("SpecDecoding metrics:")
        if marker:
            where = f"line {number} of {source}"
            found.append(_of_line(content, where, running.get(engine), settings))
    parts = [x for x in found if x is not None]
    if len(running) > 1:  # engines that ran at the same time
        parts = [replace(x, measured=replace(x.measured, seconds=None)) for x in parts]
    return parts


def _of_line(
    content: str, where: str, running: float | None, settings: Told | None
) -> AcceptedCounts | None:
    told = {name: float(x[1]) for name, form in _FIELD.items() if (x := form.search(content))}
    rates = _SHARES.search(content)
    if told.get("Drafted") == 0 and told.get("Accepted") == 0:
        return None
    needed = ("Mean acceptance length", "Accepted", "Drafted")
    if rates is None or any(name not in told for name in needed):
        raise cut(where, "SpecDecoding metrics")
    for name in _FIELDS:  # one that has begun has to have its value
        if name not in told and re.search(rf"(?:^|[,\s]){name}:", content):
            raise cut(where, "SpecDecoding metrics")
    shares = [float(x) for x in rates[1].split(", ")]
    percent = next((told[x] for x in told if x.endswith("Draft acceptance rate")), None)
    accepted = Told("Accepted", told["Accepted"])
    mean = told["Mean acceptance length"]
    sums = Told(f"1 + the sum of {_LAST}", 1.0 + sum(shares), 0.00051 * len(shares))
    agree(where, Told("Mean acceptance length", mean, 0.0051), sums)
    if settings is not None:
        at_most(where, Told(f"the number of {_LAST}", len(shares)), settings)
    seconds = _seconds(told, where)
    counts = counts_of(
        where, accepted, Told("Drafted", told["Drafted"]),
        depth=Told(f"the number of {_LAST}", float(len(shares))),
        shares=Told(_LAST, shares, 0.00051),
        mean=Told("Mean acceptance length - 1", mean - 1.0, 0.0051),
        rate=None if percent is None else Told("Draft acceptance rate", percent / 100, 0.00051),
        unit="lines of the log",
    )  # fmt: skip
    if counts is None:
        return None
    steps = counts.sum("steps")
    passes = () if not running else (
        Passes(running, steps / running, None if seconds is None else 1000.0 * seconds),
    )  # fmt: skip
    return counts.with_measured(Measured(accepted.value + steps, seconds, passes=passes))


def _seconds(told: dict[str, float], where: str) -> float | None:
    """Seconds of an interval, by the throughput that is told most exactly."""
    found = []
    for name in ("Accepted", "Drafted"):
        speed = told.get(f"{name} throughput")
        if speed:
            value = told[name] / speed
            found.append(
                (0.0051 / speed * value + 1e-9, Told(f"{name} / {name} throughput", value))
            )
    for (off, one), (other_off, other) in pairwise(found):
        agree(where, Told(one.name, one.value, off), Told(other.name, other.value, other_off))
    return min(found, key=lambda x: x[0])[1].value if found else None


# --- answers ---

#: Names of the object `speculative_decoding`, which AIPerf's records have, too.
REQUEST = {
    "accepted": "num_accepted_draft_tokens",
    "drafted": "num_draft_tokens",
    "steps": "num_spec_steps",
    "depth": "num_spec_tokens",
    "histogram": "acceptance_histogram",
    "mean": "mean_acceptance_length",
    "rate": "draft_acceptance_rate",
}

_BENCH = {
    "accepted": "spec_decode_accepted_tokens",
    "drafted": "spec_decode_draft_tokens",
    "steps": "spec_decode_num_drafts",
    "mean": "spec_decode_acceptance_length",
    "rate": "spec_decode_acceptance_rate",
}


def of_answer(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of each histogram in an answer."""
    found = [
        x
        for x in holders(record, "acceptance_histogram", without="spec_decode_acceptance")
        if "total_accepted_draft_tokens" not in x
    ]
    if not found:
        empty = [x for x in holders(record, "speculative_decoding", null=True)
                 if x["speculative_decoding"] is None]  # fmt: skip
        if any(len(x["choices"]) > 1 for x in holders(record, "choices") if empty):
            raise UnreadableFile(
                f"{where}: speculative_decoding is null, as vLLM counts none of several choices: "
                "ask with n = 1, or give the server's log or metrics"
            )
        return [None] if empty else None
    usage = [counted(x, "completion_tokens", where) for x in holders(record, "completion_tokens")]
    tokens = usage[0] if len(found) == len(usage) == 1 else None
    return [_of_request(x, where, tokens) for x in found]


def _of_request(found: dict[str, Any], where: str, tokens: float | None) -> AcceptedCounts | None:
    count(found, "num_draft_tokens", where)
    counts = counts_by_names(found, where, REQUEST)
    if counts is None or counts.reached is None or counts.steps is None:
        return counts
    _by_step(found, where)
    brought = counts.sum("accepted") + counts.sum("steps") + 1.0
    if tokens is None:
        return counts
    # a stop cuts off accepted drafts of the last step; the rest came in steps without a draft
    at_most(where, Told("accepted drafts + num_spec_steps + 1", brought, counts.longest + 1.0),
            Told("completion_tokens", tokens))  # fmt: skip
    return replace(counts, undrafted=np.array([max(tokens - brought, 0.0)]))


def _by_step(found: dict[str, Any], where: str) -> None:
    """Hold the arrays of `detailed` metrics against the sums."""
    accepts, drafts = (found.get(f"per_step_{x}") for x in ("accepted", "drafted"))
    for name, steps in (("num_accepted_draft_tokens", accepts), ("num_draft_tokens", drafts)):
        if steps is not None:
            told = Told(f"the sum of {name.replace('num', 'per_step')}", float(sum(steps)))
            agree(where, Told(name, count(found, name, where)), told)
    accepts = accepts or []
    for j, times in enumerate(found["acceptance_histogram"] if accepts else ()):
        agree(where, Told(f"acceptance_histogram [{j}]", float(times)),
              Told(f"steps of {j} in per_step_accepted", float(accepts.count(j))))  # fmt: skip
    for a, d in zip(accepts, drafts or (), strict=False):
        at_most(where, Told("per_step_accepted", a), Told("per_step_drafted", d))


def of_benchmark(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of the whole run, which are not told by request."""
    return [_benchmark(x, where) for x in holders(record, _BENCH["steps"])] or None


def _benchmark(found: dict[str, Any], where: str) -> AcceptedCounts | None:
    for name in ("accepted", "drafted", "steps"):
        count(found, _BENCH[name], where)
    name = "spec_decode_per_position_acceptance_rates"
    tokens, seconds = (counted(found, x, where) for x in ("total_output_tokens", "duration"))
    return counts_by_names(
        found, where, _BENCH, 100.0, unit="runs", measured=Measured(tokens, seconds),
        **_positions(Told(name, [float(x) for x in found.get(name) or ()], 1e-6)),
    )  # fmt: skip


_BLOCK = re.compile(
    r"^(?:  )?(Acceptance rate \(%\)|Acceptance length|Drafts|Draft tokens|Accepted tokens|"
    r"Benchmark duration \(s\)|Total generated tokens|Position \d+|"
    r"Output token throughput \(tok/s\)):\s+([\d.]+)\s*$",
    re.MULTILINE,
)
_HEAD = re.compile(r"^=+ Serving Benchmark Result =+\s*$", re.MULTILINE)


def blocks(text: str) -> Iterator[str]:
    """Blocks of a benchmark's text, each of one run."""
    places = [match.start() for match in _HEAD.finditer(text)] or [0]
    for start, end in zip(places, [*places[1:], len(text)], strict=True):
        yield text[start:end]


def run_of(told: dict[str, float], where: str) -> Measured:
    """Tokens and seconds of a block, which stand in its throughput once more."""
    tokens, seconds = told.get("Total generated tokens"), told.get("Benchmark duration (s)")
    speed = told.get("Output token throughput (tok/s)")
    if tokens and seconds and speed:
        off = 0.0051 + speed * 0.0051 / seconds
        agree(where, Told("Output token throughput", speed, off),
              Told("Total generated tokens / Benchmark duration", tokens / seconds))  # fmt: skip
    return Measured(tokens, seconds)


def of_bench_text(text: str, source: str) -> list[AcceptedCounts]:
    """Counts of the text that `vllm bench serve` prints, a group for each run."""
    return [x for block in blocks(text) if "Speculative Decoding" in block
            if (x := _of_block(block, source)) is not None]  # fmt: skip


_TEXT = {
    "accepted": "Accepted tokens",
    "drafted": "Draft tokens",
    "steps": "Drafts",
    "mean": "Acceptance length",
    "rate": "Acceptance rate (%)",
}


def _of_block(block: str, where: str) -> AcceptedCounts | None:
    told = {name: float(value) for name, value in _BLOCK.findall(block)}
    names = [name for name in told if name.startswith("Position ")]
    is_whole = re.search(r"^=+\s*$", block.partition("Speculative Decoding")[2], re.MULTILINE)
    in_order = names == [f"Position {n}" for n in range(len(names))]
    if not (told.keys() >= {*_TEXT.values()} and in_order and is_whole):
        raise cut(where, "the result of vllm bench")
    shares = Told("Per-position acceptance", [told[x] / 100 for x in names], 0.000051)
    return counts_by_names(told, where, _TEXT, 100.0, unit="runs", measured=run_of(told, where),
                           **_positions(shares))  # fmt: skip


def _positions(shares: Told) -> dict[str, Any]:
    """Shares by position, if there are any, and K by their number."""
    size = float(len(shares.value))
    return {"shares": shares, "depth": Told("the number of positions", size)} if size else {}


# --- log-probabilities ---


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """Texts of the Python class (`outputs`, `token_ids`) and scored prompts."""
    if not isinstance(record, dict):
        return []
    choices = [
        x for x in record.get("choices") or record.get("outputs") or [] if isinstance(x, dict)
    ]
    found = []
    for holder in (record, *choices):
        prompt = holder.get("prompt_token_ids") or record.get("prompt_token_ids")
        if holder.get("prompt_logprobs"):
            fields = ("prompt_logprobs", "logprob")
            found.append(_listed(holder["prompt_logprobs"], prompt, where, top, fields=fields,
                                 is_prompt=True))  # fmt: skip
        rows = holder.get("logprobs")
        if (
            isinstance(rows, list)
            and all(isinstance(x, dict | None) for x in rows)
            and not any("top_logprobs" in x or "token" in x for x in rows if x)
        ):
            found.append(_listed(rows, holder.get("token_ids"), where, top,
                                 fields=("logprobs", "logprob"), prompt=prompt))  # fmt: skip
    return found


def _listed(rows: list[Any], tokens: Any, where: str, top: int | None, **known: Any) -> Answer:
    values = [
        None if not row else [(int(i), x["logprob"] if isinstance(x, dict) else x)
                              for i, x in row.items()]
        for row in rows
    ]  # fmt: skip
    ranks = [
        {int(i): x.get("rank") if isinstance(x, dict) else None for i, x in (row or {}).items()}
        for row in rows
    ]
    has_ranks = all(r is not None for of in ranks for r in of.values())
    return answer_of(
        where, None if tokens is None else [int(i) for i in tokens], values,
        ranks=ranks if has_ranks else None, folds_drawn=True, top=top, **known,
    )  # fmt: skip


FORMATS = (
    Format(
        "vLLM's log",
        "lines with 'SpecDecoding metrics:'",
        marker=re.compile(r"^(?!.*\(running/waiting\)).*SpecDecoding metrics:", re.MULTILINE),
        of_text=of_log,
    ),
    Format(
        "vLLM's answers", "JSON with 'acceptance_histogram'", of_record=of_answer, answers=answers
    ),
    Format("vllm bench", "JSON with 'spec_decode_num_drafts'", of_record=of_benchmark),
    Format(
        "vllm bench's text",
        "a block 'Speculative Decoding' in 'Serving Benchmark Result'",
        marker=re.compile(r"^-+Speculative Decoding-+\s*$", re.MULTILINE),
        of_text=of_bench_text,
    ),
)
