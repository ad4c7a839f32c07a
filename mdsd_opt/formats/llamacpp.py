"""llama.cpp: its server's log and answers, and the end of llama-speculative.

A line "draft acceptance = 0.64 (1093 accepted / 1717 generated), mean len = 2.61" is of one
request; the mean counts the target's token, over the steps that had a draft. The line "eval time"
before counts tokens with the prompt's one, so that passes are tokens - 1 - accepted. Rates by
position are shares of the steps that drafted, with as many places as were met: a lower bound of K.

Lines "statistics NAME: ..." are sums since the start of a server; the last of each name counts.
Answers have `timings`, with neither K nor steps: passes are predicted_n - 1 - draft_n_accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.checks import Field, Told, agree, at_most, counts_of, told_in, told_of
from mdsd_opt.formats.content import count, holders, lines_of
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Speed, passes_of
from mdsd_opt.formats.reading import Format

_MARKER = re.compile(r"draft acceptance(?: rate)? = |statistics .*#gen drafts|\bn_drafted\s*=")
_ACCEPTANCE = re.compile(r"draft acceptance(?: rate)? =")
_TASK = re.compile(r"\| task (-?\d+) \|")
_STATISTICS = re.compile(r"statistics\s+(\S+): ")

_TWO_PLACES = r" = *(\d+\.\d\d)\b"
_SHARES = r"\((\d\.\d{3}(?:, *\d\.\d{3})*|) *\)"
_LINE = {
    "rate": Field("draft acceptance", r" *(\d+\.\d+) *\(", _ACCEPTANCE.pattern, off=3e-5),
    "accepted": Field("accepted", r" *(\d+) accepted", r"draft acceptance[^(]*\("),
    "drafted": Field("generated", r" *(\d+) generated\)", r"accepted /"),
    "length": Field("mean len", _TWO_PLACES, r"mean (?:acceptance )?len(?:gth)?"),
    "shares": Field("acceptance rate per position", _SHARES,
                    r"acc(?:eptance rate)? per pos(?:ition)? = (?=\()"),
}  # fmt: skip
_EVAL = re.compile(r"(?<!prompt )eval time = *(\d+\.\d+) ms */ *(\d+) (?:tokens|runs)")
_WHOLE = r" = *(\d+)\b"
_SUMS = {
    "steps": Field("#gen drafts", _WHOLE, "#gen drafts"),
    "drafted": Field("#gen tokens", _WHOLE, "#gen tokens"),
    "accepted": Field("#acc tokens", _WHOLE, "#acc tokens"),
    "ms": Field("dur(b,g,a)", r" = *\d+\.\d+, *(\d+\.\d+), *\d+\.\d+ ms", r"dur\(b,g,a\)"),
    "hits": Field("#acc drafts", _WHOLE, "#acc drafts"),
    "length": Field("#mean acc len", _TWO_PLACES, "#mean acc len"),
    "shares": Field("#acc rate/pos", f" = {_SHARES}", "#acc rate/pos"),
}
_END = {
    **{
        field: Field(name, r"(\d+)", rf"(?m)\b{name}\s*= *(?=\d+\s*$)")
        for field, name in (
            ("depth", "n_draft"), ("tokens", "n_predict"),
            ("drafted", "n_drafted"), ("accepted", "n_accept"),
        )
    },
    "percent": Field("accept", r" *(\d+\.\d+)%", r"\baccept\s*="),
    "decoded": Field("decoded", r"(\d+)", r"\bdecoded +(?=\d+ tokens in )"),
    "seconds": Field("seconds", r"(\d+\.\d+)", r"\bdecoded +\d+ tokens in +(?=[\d.]+ seconds)"),
}  # fmt: skip


#: Where a target cannot drop rejected drafts in place, and what that does to counts.
_CHECKPOINTS = "speculative decoding will use checkpoints"
_DECODED_AGAIN = (
    "the target goes back to checkpoints: llama.cpp before August 2026 counts tokens that it then "
    "decodes again as drafts that were accepted, so that too many may be counted"
)


def of_log(text: str, source: str) -> list[AcceptedCounts | None]:
    """Counts of the log, a group for each request."""
    notes = (_DECODED_AGAIN,) if _CHECKPOINTS in text else ()
    return [x and replace(x, notes=(*x.notes, *notes)) for x in _of_log(text, source)]


def _of_log(text: str, source: str) -> list[AcceptedCounts | None]:
    if re.search(r"\bn_drafted\s*=", text) and not _ACCEPTANCE.search(text):
        return [_of_example(text, source)]
    requests: list[tuple[str, dict[str, Told]]] = []
    last: dict[str, dict[str, Told]] = {}
    evals: dict[str, dict[str, Told]] = {}
    sums: dict[str, tuple[str, dict[str, Told]]] = {}
    ended = []  # sums of servers that were started again
    for where, line in lines_of(text, source):
        task = _TASK.search(line)
        name = task[1] if task else ""
        if match := _EVAL.search(line):
            names = {"ms": "eval time", "tokens": "tokens of eval time"}
            evals[name] = {
                x: Told(names[x], float(y)) for x, y in zip(names, match.groups(), strict=True)
            }
        if match := _STATISTICS.search(line):
            if "#gen drafts" in line:
                needed = [*_SUMS][: 4 if "(b,g,a)" in line else 3]  # at first without durations
                numbers = told_in(line, _SUMS, where, "llama.cpp's statistics", needed)
                if match[1] in sums and _anew(where, numbers, sums[match[1]][1]):
                    ended.append(sums[match[1]])
                sums[match[1]] = where, numbers
        elif _ACCEPTANCE.search(line):
            numbers = told_in(line, _LINE, where, "llama.cpp's draft acceptance", [*_LINE][:3])
            last[name] = {**numbers, **evals.pop(name, {})}
            requests.append((where, last[name]))
        elif name in last:  # rates in a line of their own
            shares = {"shares": _LINE["shares"]}
            last[name] |= told_in(line, shares, where, "llama.cpp's rates by position")
    whole = [x for at, row in (*ended, *sums.values()) if (x := _of_sums(at, row)) is not None]
    parts = [x for at, row in requests if (x := _of_request(at, row)) is not None]
    if not parts:
        return [*whole]
    more = {}
    for name in ("accepted", "drafted") if whole else ():
        one, other = (sum(x.sum(name) for x in side) for side in (parts, whole))
        more[name] = other - one
        at_most(source, Told(f"{name} of all requests", one),
                Told(f"{name} of the last statistics", other))  # fmt: skip
    drafting = Measured(drafting=sum((x.measured.drafting for x in whole), ()))
    first = parts[0].with_measured(drafting)
    if more.get("drafted") and not more["accepted"]:  # of the same requests
        of = "drafts are in the statistics and in no request: dropped, or refused and not counted"
        first = replace(first, notes=(*first.notes, f"{more['drafted']:g} {of}"))
    return [first, *parts[1:]]


def speeds_of_log(text: str, source: str) -> Iterator[Speed]:
    """Tokens behind the prompt's one, and seconds, of each request."""
    for ms, tokens in _EVAL.findall(text):
        if float(ms) and int(tokens) > 1:
            yield Speed(1.0, float(tokens) - 1.0, float(ms) / 1000.0)


def _of_request(
    where: str, numbers: dict[str, Told], is_log: bool = True, depth: Told | None = None
) -> AcceptedCounts | None:
    """Counts of a request: a pass is a step that drafted, as far as the rounded means tell."""
    accepted, drafted, shares = numbers["accepted"], numbers["drafted"], numbers.get("shares")
    tokens, ms, passes = numbers.pop("tokens", None), numbers.pop("ms", None), None
    steps = told = numbers.pop("steps", None)
    means = [numbers["length"] - 1.0] if "length" in numbers else []
    means += [shares.total] if shares is not None and shares.value else []
    if tokens is not None:
        at_most(where, accepted, tokens - 1.0)
        passes = told or tokens - 1.0 - accepted
        if 0 < passes.value <= drafted.value and all(
            abs(accepted.value / passes.value - x.value) <= x.off for x in means
        ):
            steps = passes
    of = "the log does" if is_log else "llama.cpp's answers do"
    note = f"passes are taken for steps that drafted: {of} not tell them apart"
    number = passes and passes.value
    timed = passes_of(None, number, ms and ms.value)
    counts = counts_of(
        where, **numbers, steps=steps, depth=depth or _depth(shares, drafted, steps),
        notes=() if means or told or steps is None else (note,),
        measured=Measured(tokens and tokens.value, passes=timed) if is_log
        else Measured(rounds=number, passes=timed),
    )  # fmt: skip
    if counts is None or counts.steps is None or number is None:
        return counts
    return replace(counts, undrafted=np.maximum(number - counts.steps, 0.0))


def _depth(shares: Told | None, drafted: Told, steps: Told | None) -> Told | None:
    """K where positions are told for all that was drafted."""
    k = shares.number if shares is not None and shares.value else None
    too_few = k and steps is not None and drafted.value > k.value * steps.value + 0.5
    return None if too_few else k


def _anew(where: str, numbers: dict[str, Told], before: dict[str, Told]) -> bool:
    """Whether sums are those of a server that was started again: none grew, and one fell."""
    sums = [(before[x], numbers[x]) for x in ("steps", "drafted", "accepted")]
    falls = [(old, new) for old, new in sums if new.value < old.value]
    grows = [new.name for old, new in sums if new.value > old.value]
    if falls and grows:
        old, new = falls[0]
        raise UnreadableFile(
            f"{where} contradicts itself: {old.name} fell from {old.value:g} to {new.value:g}, and "
            f"{grows[0]} grew: give the log of one server"
        )
    return bool(falls)


def _of_sums(where: str, numbers: dict[str, Told]) -> AcceptedCounts | None:
    steps, shares, ms = numbers["steps"], numbers.get("shares"), numbers.get("ms")
    return counts_of(
        where, **numbers, depth=_depth(shares, numbers["drafted"], steps), unit="runs",
        measured=Measured(drafting=passes_of(None, steps.value, ms and ms.value)),
    )  # fmt: skip


def _of_example(text: str, source: str) -> AcceptedCounts | None:
    """Counts of llama-speculative and llama-speculative-simple, which are of one run."""
    needed = ("tokens", "drafted", "accepted", "percent")
    numbers = told_in(text, _END, source, "the end of llama-speculative", needed)
    tokens, accepted, seconds = numbers["tokens"], numbers["accepted"], numbers.get("seconds")
    at_most(source, accepted, tokens)
    if not numbers.get("depth", tokens).value:
        del numbers["depth"]
    passes = tokens - accepted
    steps = passes if 0 < passes.value <= numbers["drafted"].value else None
    timed = passes_of(None, passes.value, 1000.0 * seconds.value if seconds else None)
    measured = Measured(rounds=passes.value, passes=timed)
    return counts_of(source, **numbers, steps=steps, unit="runs", measured=measured)


# --- answers ---

_TIMINGS = {
    "drafted": "draft_n",
    "accepted": "draft_n_accepted",
    "tokens": "predicted_n",
    "ms": "predicted_ms",
    "steps": "draft_rounds",  # of mlx-vlm, which has the others' names
}


def of_record(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each answer; a pass with or without a draft counts as a step."""
    timings = holders(record, "draft_n")
    limits = [x["speculative.n_max"] for x in holders(record, "speculative.n_max")]
    limit = limits[0] if limits and limits == limits[:1] * len(limits) else None
    depth = Told("speculative.n_max", float(limit)) if type(limit) is int and limit > 0 else None
    usage = holders(record, "completion_tokens")
    for each in timings:
        numbers = told_of(each, _TIMINGS, where, ("drafted", "accepted"))
        if len(timings) == len(usage) == 1 and "tokens" in numbers:
            whole = Told("completion_tokens", count(usage[0], "completion_tokens", where))
            agree(where, numbers["tokens"], whole)
        yield _of_request(where, numbers, False, depth) if numbers["drafted"].value else None


def answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """Texts of the own API with n_probs: ids, none for the drawn token."""
    for answer in holders(record, "completion_probabilities", "probs"):
        entries = answer.get("completion_probabilities", answer.get("probs"))
        if not isinstance(entries, list):
            continue
        numbers = told_of(answer.get("timings") or {}, _TIMINGS, where)
        is_processed = any("top_probs" in x for x in entries)
        rows: list[Any] = [
            [(int(e["id"]), math.log(e["prob"])) for e in x["top_probs"] if e["prob"] > 0]
            if is_processed
            else [(int(e["id"]), e["logprob"]) for e in x.get("top_logprobs") or ()]
            for x in entries
        ]
        yield answer_of(
            where, [int(x["id"]) for x in entries], rows,
            own=None if is_processed else [x.get("logprob") for x in entries],
            fields=("top_probs", "prob") if is_processed else ("top_logprobs", "logprob"),
            is_processed=is_processed,
            **{name: numbers[name].value for name in ("drafted", "accepted") if name in numbers},
        )  # fmt: skip


FORMATS = (
    Format(
        "llama.cpp's log", "lines with 'draft acceptance = ... accepted / ... generated'", _MARKER,
        of_log, speeds=speeds_of_log,
        forced=re.compile(r"(?:simulated|synthetic|forced) (?:draft )?acceptance"),
    ),
    Format(
        "llama.cpp's answers", "JSON with 'draft_n' and 'draft_n_accepted'", of_record=of_record,
        answers=answers,
    ),
)  # fmt: skip
