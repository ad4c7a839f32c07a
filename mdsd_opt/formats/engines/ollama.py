"""Ollama: its log, and the log-probabilities of its answers.

A line "speculative decode stats" counts rounds (`iterations`), those without a draft among them;
`avg_accepted` leaves the target's token out. A stream is one line a chunk of one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of, entries_of
from mdsd_opt.formats.checks import counts_of
from mdsd_opt.formats.content import lines_of
from mdsd_opt.formats.counts import AcceptedCounts, Measured
from mdsd_opt.formats.format import Format
from mdsd_opt.formats.told import Field, agree, at_most, told_in

_MARKER = "speculative decode stats"
_NAMES = {
    "rounds": "iterations",
    "drafted": "drafted",
    "accepted": "accepted",
    "depth": "max_draft",
    "mean accepted": "avg_accepted",
    "mean drafted": "avg_draft",
    "rate": "acceptance",
}
_LINE = {  # rounded to two places, and printed without zeros
    field: Field(name, r"(\d+(?:\.\d+)?)(?=\s|$)", rf"\b{name}=",
                 0.0051 if field[:4] in ("mean", "rate") else 0.0)
    for field, name in _NAMES.items()
}  # fmt: skip


def of_log(text: str, source: str) -> Iterator[AcceptedCounts | None]:
    """Counts of each line."""
    needed = [*_NAMES][:5]
    for where, line in lines_of(text, source):
        if _MARKER not in line:
            continue
        numbers = told_in(line, _LINE, where, f"Ollama's {_MARKER}", needed)
        rounds = numbers.pop("rounds")
        for name in ("drafted", "accepted"):
            mean = numbers.pop(f"mean {name}", None)
            if mean is not None and rounds.value:
                agree(where, mean, numbers[name] / rounds)
        most = numbers["depth"] * rounds
        at_most(where, numbers["drafted"], most)
        steps = rounds if numbers["drafted"].value == most.value else None
        yield counts_of(where, **numbers, steps=steps, measured=Measured(rounds=rounds.value))


def answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """Text of an answer: tokens by their bytes, none for the drawn token."""
    rows = record.get("logprobs") if isinstance(record, dict) else None
    if not isinstance(rows, list) or not any(isinstance(x, dict) and "token" in x for x in rows):
        return
    if not any("top_logprobs" in x for x in rows if x):
        raise UnreadableFile(
            f"{where} has no lists of log-probabilities in 'logprobs': ask for top_logprobs"
        )
    yield answer_of(where, **entries_of(rows))


FORMATS = (
    Format(
        "Ollama's log", f"lines with '{_MARKER}'",
        re.compile(_MARKER), of_log,
    ),
    Format("Ollama's answers", "JSON with 'logprobs' of 'top_logprobs'", answers=answers),
)  # fmt: skip
