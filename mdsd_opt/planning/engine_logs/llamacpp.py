"""Formats of llama.cpp: its log and its answers.

A line "draft acceptance = 0.64 (1093 accepted / 1717 generated)" of the log is of one request. How
many tokens it had stands in the line "eval time" before: every step brings its accepted drafts and
one token, the first token comes from the prompt. "mean len" leaves out the steps without a draft,
which there are with p-min. The program llama-speculative prints n_draft, n_predict, n_drafted and
n_accept in the end. Answers have `timings` with `draft_n` and `draft_n_accepted`.
"""

from __future__ import annotations

import re
from typing import Any

from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning.counts import AcceptedCounts, merged, one
from mdsd_opt.planning.engine_logs.reader import (
    NotThisFormat,
    Reader,
    count,
    cut,
    holder_of,
    needs_length,
)

_MARKER = re.compile(r"draft acceptance(?: rate)? = |^n_drafted\s*=", re.MULTILINE)
_BEGINS = re.compile(r"draft acceptance(?: rate)? =")
_LINE = re.compile(
    r"draft acceptance(?: rate)? = *[\d.]+ *\( *(\d+) accepted / *(\d+) generated\)"
    r"(?:, mean len = *([\d.]+))?"
)
_EVAL = re.compile(r"(?<!prompt )eval time = .*?/ *(\d+) (?:tokens|runs)")
_TASK = re.compile(r"\| task (\d+) \|")
#: Largest error of rounding to two places.
_ROUNDED = 0.00501

_TOTAL = re.compile(r"^n_(draft|predict|drafted|accept)\s*= *(\d+)", re.MULTILINE)


def of_text(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    """Counts of the log, a group for each request."""
    source = f"{path} (llama.cpp's log)"
    found: list[tuple[int, int, float | None, int | None]] = []
    tokens: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        task = _TASK.search(line)
        name = task[1] if task else ""
        if match := _EVAL.search(line):
            tokens[name] = int(match[1])
        if not _BEGINS.search(line):
            continue
        match = _LINE.search(line)
        if not match:
            raise cut(f"line {number} of {path}", "llama.cpp's draft acceptance")
        mean = float(match[3]) if match[3] else None
        if int(match[2]):
            found.append((int(match[1]), int(match[2]), mean, tokens.pop(name, None)))
    if not found:
        return _of_totals(text, path, num_drafts, source)
    k = num_drafts or _length(found)
    if k is None:
        raise needs_length(path, " (--spec-draft-n-max, --draft-max)")
    return merged((_counts(*request, k) for request in found), source)


def _counts(
    accepted: int, drafted: int, mean: float | None, tokens: int | None, k: int
) -> AcceptedCounts:
    whole = None if tokens is None else float(tokens - 1 - accepted)
    full = drafted / k
    if mean is not None and drafted % k == 0 and abs(1.0 + accepted / full - mean) <= _ROUNDED:
        steps = full
    elif accepted and mean is not None and mean > 1:
        steps = max(accepted / (mean - 1.0), full)
    elif whole is not None and mean is None:
        steps = max(whole, full)
    else:
        steps = full
    undrafted = 0.0 if whole is None else max(whole - round(steps), 0.0)
    return one(accepted, drafted, steps, k, undrafted=undrafted)


def _length(found: list[tuple[int, int, float | None, int | None]]) -> int | None:
    """K where the drafts of all requests are a whole number a step; None otherwise."""
    accepted = sum(request[0] for request in found)
    drafted = sum(request[1] for request in found)
    if any(tokens is None for *_, tokens in found):
        return None
    steps = sum(tokens - 1 - request for request, _, _, tokens in found if tokens is not None)
    per_step = drafted / steps if steps > 0 else 0.0
    near = round(per_step)
    return near if near and accepted <= drafted and abs(per_step - near) < 0.02 * near else None


def _of_totals(text: str, path: str, num_drafts: int | None, source: str) -> AcceptedCounts:
    totals = {name: int(value) for name, value in _TOTAL.findall(text)}
    if not totals:
        raise InvalidInput(f"{path}: no step with a draft, so that nothing was accepted or not")
    missing = [name for name in ("predict", "drafted", "accept") if name not in totals]
    if missing:
        raise cut(path, "the end of llama-speculative")
    k = num_drafts or totals.get("draft")
    if k is None:
        raise needs_length(path, " (--draft-max)")
    steps = max(totals["predict"] - totals["accept"], totals["drafted"] / k)
    return one(totals["accept"], totals["drafted"], steps, k, unit="runs", source=source)


_LOG_READER = Reader(
    "llama.cpp's log",
    "lines with 'draft acceptance = ... accepted / ... generated'",
    marker=_MARKER,
    of_text=of_text,
)


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of one answer; steps that did not draft are among its steps."""
    found = holder_of(record, "draft_n")
    drafted, accepted = (count(found, name, where) for name in ("draft_n", "draft_n_accepted"))
    if not drafted:
        return None
    steps = count(found, "predicted_n", where) - 1.0 - accepted
    k = num_drafts or _length_of_answer(record, drafted, steps)
    if not k:
        raise needs_length(where, " (--spec-draft-n-max, --draft-max)")
    return one(accepted, drafted, max(steps, drafted / k), k)


def _length_of_answer(record: Any, drafted: float, steps: float) -> int | None:
    try:
        settings = holder_of(record, "speculative.n_max")
        return int(settings["speculative.n_max"])
    except NotThisFormat:
        per_step = drafted / steps if steps > 0 else 0.5
        return round(per_step) if per_step % 1 == 0 else None


_ANSWER_READER = Reader(
    "llama.cpp's answers", "JSON with 'draft_n' and 'draft_n_accepted'", of_record=of_record
)

READERS = (_LOG_READER, _ANSWER_READER)
