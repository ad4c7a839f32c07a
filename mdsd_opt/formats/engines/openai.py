"""Answers in OpenAI's style: usage with accepted and rejected predictions, and log-probabilities.

The usage of vLLM counts drafts by OpenAI's names for predicted outputs; chunks of a stream have
sums so far. Neither K nor steps are told. Completions list the drawn token on top of the likeliest
if it is none of them, chats list the likeliest alone.
"""

from __future__ import annotations

from typing import Any

from mdsd_opt.formats.answer import Answer, answer_of, name_of, named
from mdsd_opt.formats.checks import Told, agree, counts_of
from mdsd_opt.formats.content import counted, holders
from mdsd_opt.formats.counts import AcceptedCounts
from mdsd_opt.formats.format import Format

_NAMES = ("accepted_prediction_tokens", "rejected_prediction_tokens")


def of_record(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of each answer, and of AIPerf's records of them."""
    for prefix in ("", "usage_"):
        names = [prefix + name for name in _NAMES]
        found = [x for x in holders(record, *names, null=True) if x.keys() >= {*names}]
        if found:
            return [_of_usage(x, names, where) for x in found]
    return None


def _of_usage(found: dict[str, Any], names: list[str], where: str) -> AcceptedCounts | None:
    accepted, rejected = (counted(found, name, where) or 0.0 for name in names)
    return counts_of(where, Told(names[0], accepted), Told(" + ".join(names), accepted + rejected))


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """All texts of completions or chats."""
    choices = record.get("choices") if isinstance(record, dict) else None
    found = []
    for choice in choices if isinstance(choices, list) else ():
        told = choice.get("logprobs") if isinstance(choice, dict) else None
        if not isinstance(told, dict):
            continue
        prompt = choice.get("prompt_token_ids") or record.get("prompt_token_ids")
        if told.get("content") is not None:
            entries = told["content"]
            if any(entry.get("top_logprobs") for entry in entries):
                found.append(answer_of(
                    where, [name_of(x) for x in entries],
                    [[(name_of(e), e["logprob"]) for e in x.get("top_logprobs") or ()]
                     for x in entries],
                    own=[x.get("logprob") for x in entries], prompt=prompt,
                ))  # fmt: skip
        elif told.get("top_logprobs"):
            found.append(answer_of(
                where, [named(x) for x in told["tokens"]],
                [row and [(named(name), x) for name, x in row.items()]
                 for row in told["top_logprobs"]],
                own=told.get("token_logprobs"), folds_drawn=True, top=top, prompt=prompt,
            ))  # fmt: skip
    if len(found) == 1 and isinstance(record.get("usage"), dict):
        _of_all(found[0], record["usage"], where)
    return found


def _of_all(answer: Answer, usage: dict[str, Any], where: str) -> None:
    """Hold the number of tokens against the usage; a completion with `echo` has the prompt, too."""
    told, given = (counted(usage, f"{x}_tokens", where) for x in ("completion", "prompt"))
    size = float(len(answer.lists))
    if told is not None and size not in (told, told + (given or 0.0)):
        agree(where, Told("the tokens in logprobs", size), Told("completion_tokens", told))


FORMATS = (
    Format(
        "usage in OpenAI's style", "JSON with 'accepted_prediction_tokens'", of_record=of_record,
        beside=True,
    ),
    Format(
        "answers in OpenAI's style", "JSON with 'choices' with 'logprobs' of 'top_logprobs'",
        answers=answers,
    ),
)  # fmt: skip
