"""Ollama: its log, and the log-probabilities of its answers.

A line "speculative decode stats" counts rounds (`iterations`), those without a draft among them;
`avg_accepted` leaves the target's token out. A stream is one line a chunk of one text.
"""

from __future__ import annotations

import re
from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of, name_of
from mdsd_opt.formats.checks import Told, agree, at_most, counts_of
from mdsd_opt.formats.content import cut
from mdsd_opt.formats.counts import AcceptedCounts, Measured
from mdsd_opt.formats.format import Format

_VALUE = re.compile(r"\b(iterations|drafted|accepted|acceptance|avg_draft|max_draft|avg_accepted)="
                    r"(\d+(?:\.\d+)?)(?=\s|$)")  # fmt: skip


def of_log(text: str, source: str) -> list[AcceptedCounts]:
    """Counts of each line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if "speculative decode stats" in line:
            where = f"line {number} of {source}"
            told = {name: Told(name, float(value)) for name, value in _VALUE.findall(line)}
            if not told.keys() >= {
                "iterations",
                "drafted",
                "accepted",
                "max_draft",
                "avg_accepted",
            }:
                raise cut(where, "Ollama's speculative decode stats")
            found.append(_of_line(told, where))
    return [x for x in found if x is not None]


def _of_line(told: dict[str, Told], where: str) -> AcceptedCounts | None:
    rounds, drafted, accepted = (told[x] for x in ("iterations", "drafted", "accepted"))
    if rounds.value:
        for name, whole in (("avg_draft", drafted), ("avg_accepted", accepted)):
            if name in told:
                agree(where, Told(name, told[name].value, 0.0051),
                      Told(f"{whole.name} / iterations", whole.value / rounds.value))  # fmt: skip
    most = Told("max_draft x iterations", told["max_draft"].value * rounds.value)
    at_most(where, drafted, most)
    every = drafted.value == most.value
    rate = told.get("acceptance")
    return counts_of(
        where, accepted, drafted, rounds if every else None, told["max_draft"],
        rate=rate and Told(rate.name, rate.value, 0.0051),
        measured=Measured(rounds=rounds.value),
    )  # fmt: skip


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """Text of an answer: tokens by their bytes, none for the drawn token."""
    rows = record.get("logprobs") if isinstance(record, dict) else None
    if not isinstance(rows, list) or not any(isinstance(x, dict) and "token" in x for x in rows):
        return []
    if not any("top_logprobs" in x for x in rows if x):
        raise UnreadableFile(
            f"{where} has no lists of log-probabilities in 'logprobs': ask for top_logprobs"
        )
    return [answer_of(
        where, [name_of(x) for x in rows],
        [[(name_of(e), e["logprob"]) for e in x.get("top_logprobs") or ()] for x in rows],
        own=[x.get("logprob") for x in rows],
    )]  # fmt: skip


FORMATS = (
    Format(
        "Ollama's log", "lines with 'speculative decode stats'",
        re.compile("speculative decode stats"), of_log,
    ),
    Format("Ollama's answers", "JSON with 'logprobs' of 'top_logprobs'", answers=answers),
)  # fmt: skip
