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
from dataclasses import replace
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.checks import Told, agree, at_most, counts_of
from mdsd_opt.formats.content import count, counted, cut, holders
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Passes
from mdsd_opt.formats.format import Format

_MARKER = re.compile(r"draft acceptance(?: rate)? = |statistics .*#gen drafts|\bn_drafted\s*=")
_BEGINS = re.compile(r"draft acceptance(?: rate)? =")
_LINE = re.compile(
    r"draft acceptance(?: rate)? = *(\d+\.\d+) *\( *(\d+) accepted / *(\d+) generated\)"
    r"(?:, mean (?:acceptance )?len(?:gth)? = *(\d+\.\d\d)\b)?"
)
_MEAN = re.compile(r"mean (?:acceptance )?len(?:gth)? =")
_PLACES = re.compile(r"(?:acc(?:eptance rate)? per pos(?:ition)?) = \(([^)]*)(\)?)")
_EVAL = re.compile(r"(?<!prompt )eval time = *(\d+\.\d+) ms */ *(\d+) (?:tokens|runs)")
_TASK = re.compile(r"\| task (-?\d+) \|")
_STATISTICS = re.compile(r"statistics\s+(\S+): ")
_STATISTIC = re.compile(r"#(gen drafts|acc drafts|gen tokens|acc tokens) = *(\d+)\b")
_STATISTIC_PLACES = re.compile(r"#acc rate/pos = \(([^)]*)\)")
_STATISTIC_MEAN = re.compile(r"#mean acc len = *(\d+\.\d\d)\b")
_DURATION = re.compile(r"dur\(b,g,a\) = *\d+\.\d+, *(\d+\.\d+), *\d+\.\d+ ms")


def of_log(text: str, source: str) -> list[AcceptedCounts]:
    """Counts of the log, a group for each request."""
    if re.search(r"\bn_drafted\s*=", text) and not _BEGINS.search(text):
        return _of_example(text, source)
    requests: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    evals: dict[str, tuple[float, float]] = {}
    statistics: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"line {number} of {source}"
        task = _TASK.search(line)
        name = task[1] if task else ""
        if match := _EVAL.search(line):
            evals[name] = float(match[1]), float(match[2])
        if match := _STATISTICS.search(line):
            if "#gen drafts" in line:
                statistics.append((match[1], _statistic(line, where)))
            continue
        places = _places(line, where)
        if _BEGINS.search(line):
            match = _LINE.search(line)
            if not match or (_MEAN.search(line) and not match[4]):
                raise cut(where, "llama.cpp's draft acceptance")
            told = {"line": match, "places": places, "eval": evals.pop(name, (None, None))}
            requests.append({"where": where, **told})
            last[name] = requests[-1]
        elif places is not None and name in last:  # in a line of its own
            last[name]["places"] = places
    whole = _sums(statistics, source)
    parts = [x for x in map(_of_request, requests) if x is not None]
    if not requests or not parts:
        return whole
    for name in ("accepted", "drafted") if whole else ():
        one, other = (sum(x.sum(name) for x in given) for given in (parts, whole))
        at_most(source, Told(f"{name} of all requests", one),
                Told(f"{name} of the last statistics", other))  # fmt: skip
    drafting = Measured(drafting=sum((x.measured.drafting for x in whole), ()))
    return [parts[0].with_measured(drafting), *parts[1:]]


def _places(line: str, where: str) -> list[float] | None:
    match = _PLACES.search(line)
    if match is None:
        return None
    if not match[2]:
        raise cut(where, "llama.cpp's rates by position")
    return _numbers(match[1], where)


def _numbers(text: str, where: str) -> list[float]:
    values = [x.strip() for x in text.split(",") if x.strip()]
    if not all(re.fullmatch(r"\d\.\d{3}", x) for x in values):
        raise cut(where, "llama.cpp's rates by position")
    return [float(x) for x in values]


def _of_request(told: dict[str, Any]) -> AcceptedCounts | None:
    where, match, places = told["where"], told["line"], told["places"]
    accepted, drafted = Told("accepted", float(match[2])), Told("generated", float(match[3]))
    mean = Told("mean len - 1", float(match[4]) - 1.0, 0.00501) if match[4] else None
    shares = Told("acceptance rate per position", places, 0.00051) if places else None
    ms, tokens = told["eval"]
    passes = None
    if tokens is not None:
        at_most(where, accepted, Told("tokens of eval time - 1", tokens - 1.0))
        passes = tokens - 1.0 - accepted.value
    steps = None
    if (
        passes
        and passes <= drafted.value
        and all(
            abs(accepted.value / passes - value) <= off
            for value, off in (
                *([] if mean is None else [(mean.value, mean.off)]),
                *([] if shares is None else [(sum(places), shares.off * len(places))]),
            )
        )
    ):  # every pass drafted, as far as the rounded means tell
        steps = Told("tokens - 1 - accepted", passes)
    note = "passes are taken for steps that drafted: the log does not tell them apart"
    timed = () if not passes or ms is None else (Passes(None, passes, ms),)
    counts = counts_of(
        where, accepted, drafted, steps, _depth(places, drafted, steps), shares=shares, mean=mean,
        rate=Told("draft acceptance", float(match[1]), 3e-5),
        notes=(note,) if mean is shares is None and steps is not None else (),
        measured=Measured(tokens, passes=timed),
    )  # fmt: skip
    if counts is None or counts.steps is None or passes is None:
        return counts
    return replace(counts, undrafted=np.maximum(passes - counts.steps, 0.0))


def _depth(places: list[float] | None, drafted: Told, steps: Told | None) -> Told | None:
    """K where positions are told for all that was drafted."""
    if not places or (steps is not None and drafted.value > len(places) * steps.value + 0.5):
        return None
    return Told("the number of positions", float(len(places)))


def _statistic(line: str, where: str) -> dict[str, Any]:
    told: dict[str, Any] = {name: float(x) for name, x in _STATISTIC.findall(line)}
    places, mean = _STATISTIC_PLACES.search(line), _STATISTIC_MEAN.search(line)
    duration = _DURATION.search(line)
    begun = (("#acc rate/pos", places), ("#mean acc len", mean))
    is_whole = told.keys() >= {"gen drafts", "gen tokens", "acc tokens"} and duration is not None
    if not is_whole or any(name in line and x is None for name, x in begun):
        raise cut(where, "llama.cpp's statistics")
    told["places"] = _numbers(places[1], where) if places else None
    told["mean"] = float(mean[1]) if mean else None
    told["ms"] = float(duration[1]) if duration else 0.0
    told["where"] = where
    return told


def _sums(statistics: list[tuple[str, dict[str, Any]]], source: str) -> list[AcceptedCounts]:
    """Counts of the last line of each name, and of the last before each start of the server."""
    last: dict[str, dict[str, Any]] = {}
    ended = []
    for name, told in statistics:
        before = last.get(name)
        if before is not None:
            falls = [x for x in ("gen drafts", "gen tokens", "acc tokens") if told[x] < before[x]]
            grows = [x for x in ("gen drafts", "gen tokens", "acc tokens") if told[x] > before[x]]
            if falls and grows:
                raise UnreadableFile(
                    f"{told['where']} contradicts itself: #{falls[0]} fell from "
                    f"{before[falls[0]]:g} to {told[falls[0]]:g}, and #{grows[0]} grew: give the "
                    "log of one server"
                )
            if falls:
                ended.append(before)
        last[name] = told
    found = (_of_statistic(x) for x in (*ended, *last.values()))
    return [x for x in found if x is not None]


def _of_statistic(told: dict[str, Any]) -> AcceptedCounts | None:
    steps, drafted, accepted = (
        Told(f"#{name}", told[name]) for name in ("gen drafts", "gen tokens", "acc tokens")
    )
    shares = None if not told["places"] else Told("#acc rate/pos", told["places"], 0.00051)
    if shares is not None and "acc drafts" in told and steps.value:
        agree(told["where"], Told("#acc rate/pos [0]", shares.value[0], 0.00051),
              Told("#acc drafts / #gen drafts", told["acc drafts"] / steps.value))  # fmt: skip
    return counts_of(
        told["where"], accepted, drafted, steps, _depth(told["places"], drafted, steps),
        shares=shares,
        mean=None if told["mean"] is None
        else Told("#mean acc len - 1", told["mean"] - 1.0, 0.00501),
        unit="runs",
        measured=Measured(drafting=(Passes(None, steps.value, told["ms"]),)),
    )  # fmt: skip


_TOTAL = re.compile(r"\bn_(draft|predict|drafted|accept)\s*= *(\d+)\s*$", re.MULTILINE)
_SHARE = re.compile(r"\baccept\s*= *(\d+\.\d+)%")
_DECODED = re.compile(r"\bdecoded +(\d+) tokens in +(\d+\.\d+) seconds")


def _of_example(text: str, source: str) -> list[AcceptedCounts]:
    """Counts of llama-speculative and llama-speculative-simple, which are of one run."""
    told: dict[str, float] = {}
    for name, value in _TOTAL.findall(text):
        agree(source, Told(f"n_{name}", float(value)),
              Told(f"n_{name} once more", told.setdefault(name, float(value))))  # fmt: skip
    share, decoded = _SHARE.search(text), _DECODED.search(text)
    if not told.keys() >= {"predict", "drafted", "accept"} or not share:
        raise cut(source, "the end of llama-speculative")
    predicted, accepted = Told("n_predict", told["predict"]), Told("n_accept", told["accept"])
    drafted = Told("n_drafted", told["drafted"])
    passes = predicted.value - accepted.value
    seconds = None
    if decoded:
        seconds = float(decoded[2])
        agree(source, predicted, Told("decoded", float(decoded[1])))
    at_most(source, accepted, predicted)
    depth = Told("n_draft", told["draft"]) if told.get("draft") else None
    steps = Told("n_predict - n_accept", passes) if 0 < passes <= drafted.value else None
    counts = counts_of(
        source, accepted, drafted, steps, depth,
        rate=Told("accept", float(share[1]) / 100, 0.000006), unit="runs",
        measured=Measured(predicted.value, seconds, passes, () if not passes or not seconds
                          else (Passes(None, passes, 1000.0 * seconds),)),
    )  # fmt: skip
    return [] if counts is None else [counts]


# --- answers ---


def of_record(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of each answer; a pass with or without a draft counts as a step."""
    found = holders(record, "draft_n")
    if not found:
        return None
    limits = [x["speculative.n_max"] for x in holders(record, "speculative.n_max")]
    usage = holders(record, "completion_tokens")
    if len(found) == 1 and len(usage) == 1 and "predicted_n" in found[0]:
        agree(where, Told("predicted_n", count(found[0], "predicted_n", where)),
              Told("completion_tokens", count(usage[0], "completion_tokens", where)))  # fmt: skip
    return [_of_timings(x, limits[0] if len(set(limits)) == 1 else None, where) for x in found]


def _of_timings(found: dict[str, Any], limit: Any, where: str) -> AcceptedCounts | None:
    drafted, accepted = (
        Told(name, count(found, name, where)) for name in ("draft_n", "draft_n_accepted")
    )
    tokens, ms = counted(found, "predicted_n", where), counted(found, "predicted_ms", where)
    if not drafted.value:
        return None
    depth = Told("speculative.n_max", float(limit)) if type(limit) is int and limit > 0 else None
    passes = None
    if tokens is not None:
        passes = tokens - 1.0 - accepted.value
        at_most(where, accepted, Told("predicted_n - 1", tokens - 1.0))
    steps = None
    if passes and passes <= drafted.value:
        steps = Told("predicted_n - 1 - draft_n_accepted", passes)
    timed = () if not passes or ms is None else (Passes(None, passes, ms),)
    note = "passes are taken for steps that drafted: llama.cpp's answers do not tell them apart"
    return counts_of(
        where, accepted, drafted, steps, depth, notes=() if steps is None else (note,),
        measured=Measured(rounds=passes, passes=timed),
    )  # fmt: skip


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """Texts of the own API with n_probs: ids, none for the drawn token."""
    return [_listed(x, where) for x in holders(record, "completion_probabilities", "probs")
            if isinstance(x.get("completion_probabilities", x.get("probs")), list)]  # fmt: skip


def _listed(answer: dict[str, Any], where: str) -> Answer:
    entries = answer.get("completion_probabilities") or answer.get("probs") or []
    is_processed = any("top_probs" in x for x in entries)
    rows: list[Any] = [
        [(int(e["id"]), math.log(e["prob"])) for e in x["top_probs"] if e["prob"] > 0]
        if is_processed
        else [(int(e["id"]), e["logprob"]) for e in x.get("top_logprobs") or ()]
        for x in entries
    ]
    timings = answer.get("timings") or {}
    return answer_of(
        where, [int(x["id"]) for x in entries], rows,
        own=None if is_processed else [x.get("logprob") for x in entries],
        fields=("top_probs", "prob") if is_processed else ("top_logprobs", "logprob"),
        is_processed=is_processed, drafted=counted(timings, "draft_n", where),
        accepted=counted(timings, "draft_n_accepted", where),
    )  # fmt: skip


FORMATS = (
    Format(
        "llama.cpp's log",
        "lines with 'draft acceptance = ... accepted / ... generated'",
        marker=_MARKER,
        of_text=of_log,
    ),
    Format(
        "llama.cpp's answers", "JSON with 'draft_n' and 'draft_n_accepted'", of_record=of_record,
        answers=answers,
    ),
)  # fmt: skip
