"""Texts that servers wrote, with the laws of their tokens, from files of JSON lines.

Read are answers of vLLM (its Python class and its server), SGLang, llama.cpp and servers in the
style of OpenAI (completions and chat), one request a line, and logs of `mdsd_opt.audit_server`.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdsd_opt.auditing.servers.laws import ROUNDING, Law, law_of_logprobs
from mdsd_opt.base.files import json_lines
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput, UnreadableFile

#: Prefix of a token's name that gives its id, where servers are asked for ids.
_ID_MARK = "token_id:"

_KNOWN = (
    "'choices' with 'logprobs' (vLLM's server, OpenAI), 'outputs' or 'token_ids' with 'logprobs' "
    "(vLLM), 'meta_info' with 'output_top_logprobs' (SGLang), 'completion_probabilities' "
    "(llama.cpp) or 'kind' (a log of this audit)"
)


def id_of(name: Any) -> int:
    """Id in a name such as 'token_id:5'; for a text or bytes, a number that is always the same.

    Two servers, and a log of another day, thus mean the same token by it.
    """
    if isinstance(name, int):
        return name
    if isinstance(name, str):
        if name.startswith(_ID_MARK):
            return int(name[len(_ID_MARK) :])
        name = name.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=6).digest(), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Settings with which texts were requested, checked once.

    Attributes
    ----------
    sampling : Sampling
    model : str or None
        Name of the model, if a server has several.
    logprobs : str
        Whether a server gives log-probabilities "raw" (before its sampler) or "processed".
    top : int or None
        Tokens that are asked for in a law; None for all that are listed.
    """

    sampling: Sampling
    model: str | None = None
    logprobs: str = "raw"
    top: int | None = 20

    def __post_init__(self) -> None:
        if self.logprobs not in ("raw", "processed"):
            raise InvalidInput(f"logprobs is {self.logprobs!r}: give raw or processed")
        if self.top is not None and self.top not in range(1, 1001):
            raise InvalidInput(f"top is {self.top!r}: give a number of tokens from 1 to 1000")


@dataclass(slots=True)
class Written:
    """A text of a server, in the server's own terms.

    Attributes
    ----------
    tokens : list of int
    lists : sequence of mapping or None
        For each token's law, the listed ids and their natural logarithms.
    is_processed : bool
        Whether these were taken after the sampler, whatever the rest of the file says.
    prompt : list of int or None
    drafted, accepted : int or None
    by_id : bool
        Whether tokens have the model's ids, so that the text can be continued.
    """

    tokens: list[int]
    lists: Sequence[Mapping[int, float] | None]
    is_processed: bool = False
    prompt: list[int] | None = None
    drafted: int | None = None
    accepted: int | None = None
    by_id: bool = True

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.lists):
            raise ValueError(f"{len(self.tokens)} tokens have {len(self.lists)} laws")


def texts_of(answer: Any) -> list[Written]:
    """All texts of one answer.

    Raises `UnreadableFile` if there are none, or no laws.
    """
    try:
        found = _found(answer)
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise UnreadableFile(
            f"laws in a form that is not known ({type(error).__name__}: {error})"
        ) from error
    if not found:
        raise UnreadableFile(f"no laws of tokens: no {_KNOWN}")
    return found


def _found(answer: Any) -> list[Written]:
    if not isinstance(answer, dict):
        return []
    if "completion_probabilities" in answer or "probs" in answer:
        return [_of_llamacpp(answer)]
    if isinstance(answer.get("meta_info"), dict):
        return _of_sglang(answer["meta_info"])
    many = answer.get("choices") or answer.get("outputs") or [answer]
    prompt = answer.get("prompt_token_ids")
    return [text for one in many if (text := _of_choice(one, prompt)) is not None]


def _of_choice(choice: Mapping[str, Any], prompt: list[int] | None) -> Written | None:
    """Text of a choice of a server in the style of OpenAI, or of an output of vLLM."""
    told = choice.get("logprobs")
    ids = choice.get("token_ids")
    prompt = choice.get("prompt_token_ids") or prompt
    if isinstance(told, list):
        lists = [
            {int(i): x["logprob"] if isinstance(x, dict) else x for i, x in row.items()}
            for row in told
        ]
        return Written([int(i) for i in ids or ()], lists, prompt=prompt)
    if not isinstance(told, dict):
        return None
    if told.get("content") is not None:
        return _of_chat(told["content"], prompt)
    if not told.get("top_logprobs"):
        return None
    tokens = [id_of(name) for name in told["tokens"]]
    rows = [
        {id_of(name): x for name, x in row.items()} if row else None for row in told["top_logprobs"]
    ]
    by_id = all(str(name).startswith(_ID_MARK) for name in told["tokens"])
    return Written(tokens, rows, prompt=prompt, by_id=by_id)


def _of_chat(content: list[dict[str, Any]], prompt: list[int] | None) -> Written:
    tokens, rows = [], []
    for entry in content:
        tokens.append(_named(entry))
        listed = entry.get("top_logprobs")
        row = {_named(one): one["logprob"] for one in listed} if listed else None
        if row is not None and listed and len(row) < len(listed):
            raise ValueError("two tokens of one position have the same name")
        rows.append(row)
    return Written(tokens, rows, prompt=prompt, by_id=False)


def _named(entry: Mapping[str, Any]) -> int:
    """Token of an entry: several tokens may share a text, but not their bytes.

    An 'id' beside it is not taken: servers were met that give another token's.
    """
    name: Any = entry["token"]
    if not name.startswith(_ID_MARK) and entry.get("bytes") is not None:
        name = bytes(entry["bytes"])
    return id_of(name)


def _of_llamacpp(answer: Mapping[str, Any]) -> Written:
    """Text of an answer of llama.cpp's own API with n_probs."""
    tokens: list[int] = []
    rows: list[Mapping[int, float] | None] = []
    is_processed = False
    for entry in answer.get("completion_probabilities") or answer["probs"]:
        tokens.append(int(entry["id"]))
        if "top_probs" in entry:
            is_processed = True
            rows.append(
                {int(x["id"]): math.log(x["prob"]) for x in entry["top_probs"] if x["prob"] > 0}
            )
        else:
            listed = entry.get("top_logprobs")
            rows.append({int(x["id"]): x["logprob"] for x in listed} if listed else None)
    timings = answer.get("timings") or {}
    return Written(
        tokens,
        [row or None for row in rows],
        is_processed,
        drafted=timings.get("draft_n"),
        accepted=timings.get("draft_n_accepted"),
    )


def _of_sglang(info: Mapping[str, Any]) -> list[Written]:
    listed = info.get("output_top_logprobs")
    if not listed:
        return []
    tokens = [int(entry[1]) for entry in info["output_token_logprobs"]]
    rows = [{int(e[1]): e[0] for e in row} if row else None for row in listed]
    return [
        Written(
            tokens,
            rows,
            drafted=info.get("spec_draft_token_num"),
            accepted=info.get("spec_accept_token_num"),
        )
    ]


def laws_of(written: Written, request: Request) -> list[Law | None]:
    """Laws of a text, under the settings of a request."""
    is_raw = request.logprobs == "raw" and not written.is_processed
    return [
        None if not row else law_of_logprobs(row, request.sampling, is_raw, request.top)
        for row in written.lists
    ]


def read_texts(path: str | os.PathLike[str]) -> Iterator[Written]:
    """Texts of a file of answers, one after another."""
    for answer, where in json_lines(path):
        try:
            yield from texts_of(answer)
        except UnreadableFile as error:
            raise UnreadableFile(f"{where}: {error}") from None


def listed_tokens(path: str | os.PathLike[str]) -> int | None:
    """Number of tokens asked for at each position: the fewest of any list with something left.

    Where servers add the token that came, lists have one more; which tokens a law tells apart must
    not depend on that. None where all lists are whole.
    """
    sizes = (
        len(row)
        for text in read_texts(path)
        for row in text.lists
        if row and sum(map(math.exp, row.values())) < 1.0 - ROUNDING
    )
    return min(sizes, default=None)
