"""Answers in OpenAI's style: usage with accepted and rejected predictions, and log-probabilities.

The usage of vLLM counts drafts by OpenAI's names for predicted outputs; chunks of a stream have
sums so far. Neither K nor steps are told. Completions list the drawn token on top of the likeliest
if it is none of them, chats list the likeliest alone.
"""

from __future__ import annotations

from typing import Any

from mdsd_opt.formats.answer import Answer, answer_of, entries_of, named
from mdsd_opt.formats.checks import Told, agree, counts_of
from mdsd_opt.formats.content import counted, holders
from mdsd_opt.formats.counts import AcceptedCounts
from mdsd_opt.formats.reading import Format

_NAMES = ("accepted_prediction_tokens", "rejected_prediction_tokens")


def of_record(record: Any, where: str) -> list[AcceptedCounts | None]:
    """Counts of each answer, and of AIPerf's records of them."""
    for prefix in ("", "usage_"):
        names = [prefix + name for name in _NAMES]
        usages = [x for x in holders(record, *names, null=True) if x.keys() >= {*names}]
        pairs = [[Told(name, counted(x, name, where) or 0.0) for name in names] for x in usages]
        if pairs:
            return [counts_of(where, accepted=x, drafted=x + rejected) for x, rejected in pairs]
    return []


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """All texts of completions or chats."""
    choices = record.get("choices") if isinstance(record, dict) else None
    texts = []
    for choice in choices if isinstance(choices, list) else ():
        logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
        if not isinstance(logprobs, dict):
            continue
        prompt = choice.get("prompt_token_ids") or record.get("prompt_token_ids")
        if logprobs.get("content") is not None:
            if any(entry.get("top_logprobs") for entry in logprobs["content"]):
                texts.append(answer_of(where, **entries_of(logprobs["content"]), prompt=prompt))
        elif logprobs.get("top_logprobs"):
            rows = [row and [(named(x), value) for x, value in row.items()]
                    for row in logprobs["top_logprobs"]]  # fmt: skip
            tokens, own = [named(x) for x in logprobs["tokens"]], logprobs.get("token_logprobs")
            texts.append(answer_of(where, tokens, rows, own=own, folds_drawn=True, top=top,
                                   prompt=prompt))  # fmt: skip
    usage = record.get("usage") if len(texts) == 1 else None
    if isinstance(usage, dict):  # a completion with `echo` has the prompt, too
        num_new, num_prompt = (
            counted(usage, f"{x}_tokens", where) for x in ("completion", "prompt")
        )
        size = float(len(texts[0].lists))
        if num_new is not None and size not in (num_new, num_new + (num_prompt or 0.0)):
            agree(where, Told("the tokens in logprobs", size), Told("completion_tokens", num_new))
    return texts


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
