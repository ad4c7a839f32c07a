"""Output of serving engines: log-probabilities, and counts of accepted tokens.

Log-probabilities come as JSON lines, one request each: of vLLM (`prompt_logprobs` of its Python
class and of its server), SGLang (`input_top_logprobs`), TGI (`top_tokens`), Ollama and servers in
the style of OpenAI (completions and chat). Of a request that scored its prompt the positions are
those of the prompt, else those of the generated text. Counts come one step a line, or as arrays.

Tokens are named by their ids or bytes, and by their text where nothing else is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.base.files import file_size, json_lines
from mdsd_opt.base.files.arrays import checked_suffix, missing_array, read_npy, read_npz
from mdsd_opt.errors import UnreadableFile

Lists = list[dict[Any, float] | None]

_KNOWN = (
    "'prompt_logprobs' or 'logprobs' (vLLM), 'meta_info' with 'input_top_logprobs' or "
    "'output_top_logprobs' (SGLang), 'details' with 'top_tokens' (TGI, asked for with "
    "top_n_tokens), 'logprobs' with 'top_logprobs' (Ollama, asked for with top_logprobs), or "
    "'choices' with 'logprobs' (OpenAI)"
)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredText:
    """Contents of one request.

    It has the likeliest tokens of each position and their log-probabilities, None where there is
    none, as at the first token of a text; the text's tokens, if they are told; and whether tokens
    are named by their ids, or by their text.
    """

    lists: Lists
    tokens: list[Any] | None
    by_id: bool


def read_scored_texts(path: str | os.PathLike[str]) -> Iterator[ScoredText]:
    """Requests of a file, one after another.

    Raises `UnreadableFile`, which names the line, if the file is missing, or a line is no JSON or
    holds no lists of log-probabilities.
    """
    for request, where in json_lines(path):
        yield _scored(request, where)


def paired_positions(
    target: str | os.PathLike[str], draft: str | os.PathLike[str]
) -> Iterator[list[tuple[dict[Any, float], dict[Any, float]]]]:
    """Yield, for each text, the lists of both models at the positions where both have one.

    Raises `UnreadableFile` if the files do not score the same texts.
    """
    sides = read_scored_texts(target), read_scored_texts(draft)
    number = 0
    while True:
        number += 1
        p, q = (next(side, None) for side in sides)
        if p is None and q is None:
            return
        where = f"request {number} of {target} and {draft}"
        if p is None or q is None:
            raise UnreadableFile(f"{where}: one of the files has no more requests")
        if p.by_id != q.by_id:
            raise UnreadableFile(
                f"{where}: one names tokens by id, the other by text. Ask both in the same way"
            )
        if len(p.lists) != len(q.lists):
            raise UnreadableFile(
                f"{where}: {len(p.lists)} and {len(q.lists)} positions. Both models must score "
                "the same text, as a prompt"
            )
        if p.tokens is not None and q.tokens is not None and p.tokens != q.tokens:
            raise UnreadableFile(f"{where}: the texts differ. Both models must score the same one")
        yield [(a, b) for a, b in zip(p.lists, q.lists, strict=True) if a and b]


def _scored(request: Any, where: str) -> ScoredText:
    try:
        found = _found(request)
    except UnreadableFile as error:
        raise UnreadableFile(f"{where}: {error}") from None
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise UnreadableFile(
            f"{where}: lists of log-probabilities in a form that is not known "
            f"({type(error).__name__}: {error})"
        ) from error
    if found is None:
        raise UnreadableFile(f"{where} has no lists of log-probabilities: no {_KNOWN}")
    return found


def _found(request: Any) -> ScoredText | None:
    if isinstance(request, list) and len(request) == 1:  # TGI answers so
        request = request[0]
    if not isinstance(request, dict):
        return None
    if isinstance(request.get("meta_info"), dict):
        return _of_sglang(request["meta_info"])
    if isinstance(request.get("details"), dict):
        return _of_tgi(request["details"])
    of_choice = (request.get("choices") or request.get("outputs") or [{}])[0]
    for holder in (request, of_choice):
        if holder.get("prompt_logprobs"):
            tokens = request.get("prompt_token_ids") or of_choice.get("prompt_token_ids")
            return _of_vllm(holder["prompt_logprobs"], tokens)
    for holder in (request, of_choice):
        logprobs = holder.get("logprobs")
        if isinstance(logprobs, list) and any("top_logprobs" in x for x in logprobs if x):
            return _of_openai({"content": logprobs})  # Ollama
        if isinstance(logprobs, list):
            return _of_vllm(logprobs, holder.get("token_ids"))
        if isinstance(logprobs, dict):
            return _of_openai(logprobs)
    return None


def _of_sglang(info: dict[str, Any]) -> ScoredText | None:
    for part in ("input", "output"):
        lists = info.get(f"{part}_top_logprobs")
        if lists:
            tokens = info.get(f"{part}_token_logprobs")
            return ScoredText(
                [_unique((int(e[1]), e[0]) for e in entries) if entries else None
                 for entries in lists],
                [int(entry[1]) for entry in tokens] if tokens else None,
                by_id=True,
            )  # fmt: skip
    return None


def _of_tgi(details: dict[str, Any]) -> ScoredText | None:
    lists = details.get("top_tokens")
    if not lists:
        return None
    tokens = [int(token["id"]) for token in details["tokens"]]
    each = zip(lists, tokens, strict=True)
    found = [_unique((int(e["id"]), e["logprob"]) for e in entries) for entries, _ in each]
    return ScoredText([*found], tokens, by_id=True)


def _of_vllm(lists: list[Any], tokens: list[int] | None) -> ScoredText:
    found: Lists = []
    for place, entries in enumerate(lists):
        if not entries:
            found.append(None)
            continue
        bare = {int(t): x["logprob"] if isinstance(x, dict) else x for t, x in entries.items()}
        ranks: list[Any] = [
            x.get("rank") if isinstance(x, dict) else None for x in entries.values()
        ]
        if None in ranks:
            found.append(_without_the_extra(bare, tokens[place] if tokens else None))
        else:  # the token of the text comes on top, of whatever rank it is
            kept = zip(bare.items(), ranks, strict=True)
            found.append({t: x for (t, x), rank in kept if rank <= len(ranks)})
    return ScoredText(found, tokens, by_id=True)


def _of_openai(logprobs: dict[str, Any]) -> ScoredText:
    if logprobs.get("content") is not None:
        content = logprobs["content"]
        return ScoredText(
            [_unique((_name(e), e["logprob"]) for e in entry["top_logprobs"]) for entry in content],
            [_name(entry) for entry in content],
            by_id=False,
        )
    tokens = logprobs["tokens"]
    lists = [
        _without_the_extra(entries, token) if entries else None
        for entries, token in zip(logprobs["top_logprobs"], tokens, strict=True)
    ]
    return ScoredText(lists, tokens, by_id=False)


def _name(entry: dict[str, Any]) -> Any:
    """Identity of a token: its bytes, if given, as parts of characters have the same text."""
    return bytes(entry["bytes"]) if entry.get("bytes") else entry["token"]


def _unique(entries: Any) -> dict[Any, float]:
    pairs = list(entries)
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnreadableFile(
            "two tokens of one position have the same name. Ask the server for ids "
            "(return_tokens_as_token_ids) or bytes"
        )
    return found


def _without_the_extra(entries: dict[Any, float], token: Any) -> dict[Any, float]:
    """List without the token of the text if it may be there for being in the text alone.

    It would make the bound on all tokens that are not listed too small; without it, it is one of
    them, and the bound holds. Where the token is not known, the last may be it.
    """
    last = min(entries, key=lambda name: entries[name])
    if len(entries) == 1 or (token is not None and token != last):
        return entries
    return {name: x for name, x in entries.items() if name != last}


_FIELDS = ("accepted", "num_drafts", "depth", "sequence")

_FORMATS = {
    ".jsonl": "one step a line with 'accepted', 'num_drafts', perhaps 'depth' and 'sequence'",
    ".npz": "arrays of these names",
    ".npy": "'accepted' alone",
}


def read_accepted(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Contents of the file, as arguments of `mdsd_opt.accepted_rates`.

    Raises `UnreadableFile`, which names the line, if it is missing, broken, or without counts.
    """
    suffix = checked_suffix(path, _FORMATS, UnreadableFile)
    if suffix == ".npy":
        return {"accepted": read_npy(path)}
    if suffix == ".npz":
        arrays = read_npz(path)
        if "accepted" not in arrays:
            raise missing_array(str(path), "accepted", arrays)
        return {name: arrays[name] for name in _FIELDS if name in arrays}
    steps: list[dict[str, int]] = []
    file_size(path)
    for step, where in json_lines(path):
        if not isinstance(step, dict) or "accepted" not in step:
            raise UnreadableFile(f"{where} has no 'accepted': the accepted tokens of one step")
        wrong = [x for x in _FIELDS if x in step and type(step[x]) is not int]
        if wrong or (steps and step.keys() & {*_FIELDS} != steps[0].keys()):
            raise UnreadableFile(
                f"{where}: give integers, and the same of {', '.join(_FIELDS)} in every line"
            )
        steps.append({name: step[name] for name in _FIELDS if name in step})
    if not steps:
        raise UnreadableFile(f"{path} holds no step")
    return {name: np.array([step[name] for step in steps]) for name in steps[0]}
