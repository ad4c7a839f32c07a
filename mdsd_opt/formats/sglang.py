"""SGLang: its log, its answers, `/server_info`, and the result of its benchmark.

A line "Decode batch ... accept len: 2.61, accept rate: 0.54" is a mean over the requests of some
passes (--decode-log-interval), whose number is the same for every line. "accept len" counts the
target's token. "accept rate" is a / K with a accepted drafts of a step, and was (a + 1) / (K + 1)
before April 2026. "gen throughput" tells the time of a pass, with prefills and idling in it.

Answers have `meta_info`, or `sglext.spec_tokens_details`. `spec_accept_length` is of all tokens by
verification steps: with the prompt's token, and less what a stop cut off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mdsd_opt.base.files import parse_json
from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats import vllm
from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.checks import (
    Contradiction,
    Field,
    Told,
    agree,
    at_most,
    counts_by_names,
    counts_of,
    hold,
    mean_of,
    told_in,
    told_of,
)
from mdsd_opt.formats.content import count, cut, holders, lines_of
from mdsd_opt.formats.counts import DEEPEST, AcceptedCounts, Measured, Speed, passes_of
from mdsd_opt.formats.reading import Format

_MARKER = re.compile(r"^(?=.*Decode batch).*accept len: ", re.MULTILINE)
#: A request's line of --log-requests, whose answer is written as Python writes it.
_FINISHED = re.compile(r"\bFinish: .*\bout=(?=.*'spec_verify_ct': )", re.MULTILINE)
_TWO_PLACES = r"(\d+\.\d\d)\b"
_LINE = {
    "running": Field("#running-req", r"(\d+)\b"),
    "length": Field("accept len", _TWO_PLACES),
    "rate": Field("accept rate", _TWO_PLACES),
    "speed": Field("gen throughput (token/s)", _TWO_PLACES),
}
_ARGUMENT = re.compile(
    r"\b(speculative_num_draft_tokens|speculative_num_steps|speculative_eagle_topk"
    r"|decode_log_interval)['\"]?[=:] ?(\d+)"
)
_ADAPTIVE = re.compile(r"speculative_adaptive\w*['\"]?[=:] ?[Tt]rue")

#: Number of passes between two lines by default (--decode-log-interval).
_PASSES = 40


def of_log(text: str, source: str, depth_given: int | None = None) -> list[AcceptedCounts | None]:
    """Counts of the log, a group for each line."""
    settings: dict[str, float] = {}
    is_adaptive = _ADAPTIVE.search(text)
    for name, value in _ARGUMENT.findall(text):
        if settings.setdefault(name, float(value)) != float(value) and not is_adaptive:
            other = Told(f"{name} of another start", float(value))
            raise Contradiction(source, Told(name, settings[name]), other)
    if depth_given is not None and "speculative_num_draft_tokens" not in settings:
        settings.setdefault("speculative_num_steps", float(depth_given))
    depth = _depth(settings, source)
    needed = ("running", "length", "speed")
    rows = [
        (where, told_in(line, _LINE, where, "SGLang's Decode batch", needed))
        for where, line in lines_of(text, source) if _MARKER.search(line)
    ]  # fmt: skip
    rows = [(at, row) for at, row in rows if row["running"].value and row["length"].value >= 1]
    if is_adaptive:
        depth = None
    elif rows:
        depth = _depth_by_rates(rows, depth)
    passes = settings.get("decode_log_interval")
    note = (
        f"a line of SGLang's log is taken for {passes or _PASSES:g} passes (--decode-log-interval) "
        "of the requests that ran"
    )
    lines = [
        _of_line(row, where, depth, passes or float(_PASSES), assumed=passes is None, notes=(note,))
        for where, row in rows
    ]
    requests = [
        x for where, line in lines_of(text, source) if _FINISHED.search(line)
        if (x := _of_finished(line, where)) is not None
    ]  # fmt: skip
    if not requests:
        return lines
    times = Measured(passes=sum((x.measured.passes for x in lines if x is not None), ()))
    return [requests[0].with_measured(times), *requests[1:]]  # the lines are of the same


def _of_line(
    numbers: dict[str, Told], where: str, depth: Told | None, passes: float, **known: Any
) -> AcceptedCounts | None:
    running, length, speed = (numbers[x].value for x in ("running", "length", "speed"))
    steps = numbers["running"] * passes
    if depth is not None:
        at_most(where, numbers["length"] - 1.0, depth)
        length = min(length, 1.0 + depth.value)
    ms = 1000.0 * running * length / speed * passes if speed else None
    return counts_of(
        where, accepted=Told("accept len", (length - 1.0) * steps.value),
        drafted=depth and depth * steps, steps=steps, depth=depth, unit="lines of the log",
        measured=Measured(passes=passes_of(running, passes, ms)), **known,
    )  # fmt: skip


_DECODED = re.compile(
    r"Decode batch.*#running-req: (\d+)\b(?:.*accept len: (\d+\.\d\d))?.*"
    r"gen throughput \(token/s\): (\d+\.\d\d)"
)


def speeds_of_log(text: str, source: str) -> Iterator[Speed]:
    """Tokens and seconds of each line of the log, which are of as many passes."""
    for running, length, speed in _DECODED.findall(text):
        if float(speed) and int(running):
            tokens = float(running) * float(length or 1.0) * _PASSES
            yield Speed(float(running), tokens, tokens / float(speed))


def _depth(settings: Mapping[str, float], where: str) -> Told | None:
    """K by the arguments of a server; trees are refused, whose counts do not tell of others."""
    topk = settings.get("speculative_eagle_topk", 1.0)
    name = "speculative_num_draft_tokens"
    if topk > 1:
        raise UnreadableFile(
            f"{where} is of trees (speculative_eagle_topk={topk:g}, {name}="
            f"{settings.get(name, math.nan):g}), whose counts do not tell what other trees accept: "
            "advise from logits, or run it with topk 1"
        )
    lengths = {x: Told(x, settings[x]) for x in (name, "speculative_num_steps") if settings.get(x)}
    depths = [x - 1.0 if x.name == name else x for x in lengths.values()]
    if len(depths) > 1 and depths[0].value >= 1:
        agree(where, *depths)
    return depths[-1] if depths and depths[-1].value >= 1 else None


def _depth_by_rates(rows: list[tuple[str, dict[str, Told]]], depth: Told | None) -> Told | None:
    """K that the mean lengths and the rates leave, in one of the two forms of the rate."""
    rows = [(where, row) for where, row in rows if "rate" in row]
    if not rows:
        return depth
    newer, older = (
        set.intersection(*(_depths_of(row, more) for _, row in rows)) for more in (0, 1)
    )
    either = newer | older
    if depth is not None and int(depth.value) in either:
        return depth
    where, row = rows[0]
    told = f"accept len {row['length'].value:.2f} and accept rate {row['rate'].value:.2f}"
    if depth is not None or not either:
        of = f"{depth.name} = {depth.value:g} does not give" if depth else "no K gives"
        raise UnreadableFile(
            f"{where} contradicts itself: {told}, which {of} in all lines. Give the log of one "
            "run, as the engine wrote it"
        )
    if len(either) > 1 and newer and older:
        raise UnreadableFile(
            f"{where} can be read in two ways: by {told} a step has {min(newer)} drafts, or "
            f"{min(older)} if the rate is that of SGLang before April 2026. Give depth, or the log "
            "from its start"
        )
    return Told("accept len / accept rate", float(*either)) if len(either) == 1 else None


def _depths_of(row: dict[str, Told], more: int) -> set[int]:
    """Every K by which a / K, or (a + 1) / (K + 1) with one more, is the rate that is shown."""
    accepted, rate = row["length"].value - 1.0 + more, row["rate"]
    return {k for k in range(1, DEEPEST + 1)
            if abs(accepted - rate.value * (k + more)) <= rate.off * (1.0 + k + more)}  # fmt: skip


# --- answers ---

#: Names of fields; of those that changed between versions, the newest first.
_ANSWER = {
    "steps": "spec_verify_ct",
    "accepted": ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
    "drafted": ("spec_num_proposed_drafts", "spec_draft_token_num"),
    "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram"),
    "rate": "spec_accept_rate",
    "tokens": "completion_tokens",
    "length": "spec_accept_length",
}


def of_record(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each answer, or each choice of one."""
    entries = holders(record, "spec_verify_ct")
    choices = holders(record.get("choices"), "spec_verify_ct") if isinstance(record, dict) else []
    entries = choices or entries  # the answer's own stand beside those of choices
    usage = [x for x in holders(record, "completion_tokens") if "spec_verify_ct" not in x]
    if len(entries) == len(usage) == 1:
        entries = [{"completion_tokens": usage[0]["completion_tokens"], **entries[0]}]
    for each in entries:
        yield _of_answer(each, where)


def _of_answer(answer: dict[str, Any], where: str) -> AcceptedCounts | None:
    numbers = told_of(answer, _ANSWER, where)
    names: dict[str, Any] = {x: _ANSWER[x] for x in ("accepted", "drafted", "histogram", "rate")}
    steps, accepted, drafted, tokens = (
        numbers.get(x) for x in ("steps", "accepted", "drafted", "tokens")
    )
    if steps is None or not steps.value:
        return None
    if drafted is None:
        del names["rate"]
    if tokens is not None and "length" in numbers:
        agree(where, numbers["length"], tokens / steps)
    beyond = 0.0  # tokens of passes without a draft
    if tokens is not None and accepted is not None and accepted.name != _ANSWER["accepted"][-1]:
        whole = accepted + steps + 1.0
        beyond = max(tokens.value - whole.value, 0.0)
        each = drafted.value / steps.value if drafted is not None else 0.0
        if beyond and steps.value > 2.0 * each and 0.0 <= steps.value - beyond <= each:
            raise Contradiction(where, tokens, whole)  # one a step less
    known: dict[str, Any] = {"undrafted": np.array([beyond])}
    if "histogram" not in numbers or not numbers["histogram"].value:
        if accepted is None:  # a step brings one token more
            brought = max(count(answer, "completion_tokens", where) - 1.0 - steps.value, 0.0)
            known["accepted"] = Told("completion_tokens", brought)
        if drafted is not None and drafted.value % steps.value == 0:
            known["depth"] = drafted / steps
    return counts_by_names(answer, where, names, dense=False, steps=steps, **known)


def _of_finished(line: str, where: str) -> AcceptedCounts | None:
    """Counts of a request by the line that ends it."""
    names = [x for each in _ANSWER.values() for x in ([each] if isinstance(each, str) else each)]
    content = _FINISHED.split(line)[-1]
    answer = {
        name: parse_json(found[1], where) for name in names
        if (found := re.search(rf"'{name}': (-?\d[\d.e-]*(?=[,}}])|\[[\d, ]*\])", content))
    }  # fmt: skip
    unread = [x for x in names if f"'{x}': " in content and x not in answer]
    if any(f"'{x}': None" not in content for x in unread):
        raise cut(where, "SGLang's line of a request")
    counts = _of_answer(answer, where)
    return counts and counts.with_measured(Measured(answer.get("completion_tokens")))


# --- means alone ---


def of_server_info(record: Any, where: str) -> Iterator[AcceptedCounts]:
    """Mean of `/server_info`, since the server started, of each rank."""
    name = "avg_spec_accept_length"
    means = [Told(f"internal_states [{n}] {name}", count(x, name, where))
             for n, x in enumerate(holders(record, name))]  # fmt: skip
    for length in means[1:]:  # ranks without numbers of steps have no mean over both
        agree(where, means[0], length)
    if means:
        settings = {name: x for name, x in record.items() if type(x) is int}
        yield mean_of(where, means[0], _depth(settings, where), Measured())


_ACCEPT_LENGTH = re.compile(rf"^Accept length:\s+{_TWO_PLACES}\s*$", re.MULTILINE)


_BENCH = {
    "length": "accept_length",
    "tokens": "total_output_tokens",
    "seconds": "duration",
    "speed": "output_throughput",
}


def of_bench_text(text: str, source: str) -> Iterator[AcceptedCounts]:
    """Mean of the text that bench_serving prints; several runs are not one mean."""
    fields = {"length": Field("Accept length", rf"\s+{_TWO_PLACES}\s*$", "(?m)^Accept length:")}
    for _, numbers in vllm.blocks(text, source, fields, "the result of bench_serving"):
        yield _of_run(numbers, source)


def of_benchmark(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """The same of a line of its JSON; null where the server drafts nothing."""
    if isinstance(record, dict) and record.keys() >= {*_BENCH.values()}:
        numbers = told_of(record, _BENCH, where)
        yield _of_run(numbers, where) if "length" in numbers else None


def _of_run(numbers: dict[str, Told], where: str) -> AcceptedCounts:
    hold(where, numbers)
    tokens, seconds = (numbers[x].value if x in numbers else None for x in ("tokens", "seconds"))
    return mean_of(where, numbers["length"], None, Measured(tokens, seconds))


def answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """Scored prompts and generated texts: [logarithm, id, text], none for the drawn token."""
    for info in holders(record, "input_top_logprobs", "output_top_logprobs"):
        numbers = told_of(info, {x: _ANSWER[x] for x in ("accepted", "drafted", "steps")}, where)
        for part in ("input", "output"):
            rows, own = info.get(f"{part}_top_logprobs"), info.get(f"{part}_token_logprobs")
            if rows:
                yield answer_of(
                    where, [int(entry[1]) for entry in own] if own else None,
                    [[(int(e[1]), e[0]) for e in row] if row else None for row in rows],
                    own=[entry[0] for entry in own] if own else None, is_prompt=part == "input",
                    fields=(f"{part}_top_logprobs", f"{part}_token_logprobs"),
                    **{name: number.value for name, number in numbers.items()},
                )  # fmt: skip


FORMATS = (
    Format(
        "SGLang's log", "lines with 'Decode batch' and 'accept len:', or 'Finish:' of requests",
        re.compile(f"{_MARKER.pattern}|{_FINISHED.pattern}", re.MULTILINE), of_log,
        takes_depth=True,
        forced=re.compile(r"""(?i)simulate_acc_len['"]?[=:] ?['"]?(?=[\d.]*[1-9])[\d.]+"""),
    ),
    Format("SGLang's answers", "JSON with 'spec_verify_ct'", of_record=of_record, answers=answers),
    Format("SGLang's /server_info", "JSON with 'avg_spec_accept_length'", of_record=of_server_info),
    Format(
        "SGLang's bench_serving", "a line 'Accept length:', or JSON with 'accept_length'",
        _ACCEPT_LENGTH, of_bench_text, of_benchmark,
    ),
)  # fmt: skip
