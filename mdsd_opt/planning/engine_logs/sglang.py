"""Formats of SGLang: its log and its answers.

A line "Decode batch ... accept len: 2.61, accept rate: 0.54" of the log is a mean over the requests
of some passes, whose number is the same for every line: it weighs as much as requests ran. A mean
length counts the token of the target.

Answers have `meta_info` with `spec_verify_ct`, and those of newer servers a histogram.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning.counts import AcceptedCounts, of_histogram, one
from mdsd_opt.planning.engine_logs.reader import Reader, count, cut, holder_of, needs_length

_MARKER = re.compile(r"Decode batch.*accept len: ")
_LINE = re.compile(
    r"#running-req: (\d+),.*accept len: (\d+\.\d+), (?:accept rate: (\d+\.\d+), )?.*gen throughput"
)
_ARGUMENT = re.compile(r"speculative_(num_draft_tokens|num_steps|eagle_topk)=(\d+)")

#: Number of passes between two lines by default (--decode-log-interval).
_PASSES = 40


def of_text(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    """Counts of the log, a group for each line."""
    arguments = {name: int(value) for name, value in _ARGUMENT.findall(text)}
    if arguments.get("eagle_topk", 1) > 1:
        raise InvalidInput(
            f"{path} is of trees (speculative_eagle_topk={arguments['eagle_topk']}), whose counts "
            "do not tell what other trees accept: advise from logits, or run it with topk 1"
        )
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not _MARKER.search(line):
            continue
        match = _LINE.search(line)
        if not match:
            raise cut(f"line {number} of {path}", "SGLang's Decode batch")
        running, length, rate = int(match[1]), float(match[2]), match[3]
        if running and length >= 1.0:
            rows.append((running, length - 1.0, np.nan if rate is None else float(rate)))
    if not rows:
        raise InvalidInput(f"{path}: no step with a draft, so that nothing was accepted or not")
    running, accepted, rates = np.array(rows).T
    k = num_drafts or arguments.get("num_draft_tokens", 0) - 1
    if k < 1:
        k = arguments.get("num_steps", 0) or _length(running, accepted, rates)
    if k < 1:
        raise needs_length(path, " (speculative_num_draft_tokens less one)")
    steps = running * _PASSES
    accepted = np.minimum(accepted, k)
    return AcceptedCounts(
        *(accepted * steps, k * steps, steps),
        num_drafts=k,
        unit="lines of the log",
        source=f"{path} (SGLang's log)",
        notes=(
            f"a line of SGLang's log is taken for {_PASSES} passes (--decode-log-interval) of the "
            "requests that ran",
        ),
    )


def _length(running: np.ndarray, accepted: np.ndarray, rates: np.ndarray) -> int:
    """K by the mean lengths and rates, rounded to two places; 0 where there is no rate."""
    known = rates > 0
    if not known.any():
        return 0
    weights = running[known]
    return round(float((weights @ accepted[known]) / (weights @ rates[known])))


_LOG_READER = Reader(
    "SGLang's log",
    "lines with 'Decode batch' and 'accept len:'",
    marker=_MARKER,
    of_text=of_text,
)


#: Names that changed between versions, the newest first.
_ACCEPTED = ("spec_num_correct_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of one answer."""
    found = holder_of(record, "spec_verify_ct")
    steps = count(found, "spec_verify_ct", where)
    if not steps:
        return None
    histogram = next((found[name] for name in _HISTOGRAM if found.get(name)), None)
    drafted = _first(found, _DRAFTED, where)
    k = num_drafts or (round(drafted / steps) if drafted else 0)
    if not k:
        raise needs_length(where, " (speculative_num_draft_tokens less one)")
    drafted = k * steps if drafted is None else drafted
    if histogram is not None:
        return of_histogram(histogram, drafted, k, where)
    accepted = _first(found, _ACCEPTED, where)
    if accepted is None:  # every step brings one token more, and so does the prompt
        accepted = max(count(found, "completion_tokens", where) - 1 - steps, 0.0)
    return one(accepted, drafted, steps, k)


def _first(found: dict[str, Any], names: tuple[str, ...], where: str) -> float | None:
    return next((count(found, name, where) for name in names if name in found), None)


_ANSWER_READER = Reader(
    "SGLang's answers",
    "JSON with 'spec_verify_ct' in 'meta_info'",
    of_record=of_record,
)

READERS = (_LOG_READER, _ANSWER_READER)
