"""Settings with which texts of servers are requested, and the laws that answers state by them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mdsd_opt.base.checked import check_function
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.formats import Answer, read_answers
from mdsd_opt.servers.laws import ROUNDING, Law, law_of_logprobs


def id_of(name: Any) -> int:
    """Id of a token by its name; for a text or bytes, a number that is always the same.

    Two servers, and a log of another day, thus mean the same token by it.
    """
    if isinstance(name, int):
        return name
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=6).digest(), "little")


def ids_of(answer: Answer) -> list[int]:
    """Ids of the tokens of a text."""
    return [id_of(name) for name in answer.tokens or ()]


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
    promise : callable or None
        What the server makes of raw laws instead of `sampling`, see `mdsd_opt.audit_server`.
    """

    sampling: Sampling
    model: str | None = None
    logprobs: str = "raw"
    top: int | None = 20
    promise: Any = None

    def __post_init__(self) -> None:
        if self.promise is not None:
            check_function("a function; see sampling", promise=self.promise)
        if self.promise is not None and self.sampling.temperature == 0:
            raise InvalidInput("a promise goes with a temperature above 0: noise decides ties at 0")
        if self.logprobs not in ("raw", "processed"):
            raise InvalidInput(f"logprobs is {self.logprobs!r}: give raw or processed")
        if self.top is not None and self.top not in range(1, 1001):
            raise InvalidInput(f"top is {self.top!r}: give a number of tokens from 1 to 1000")


def laws_of(answer: Answer, request: Request, prompt: Sequence[int] = ()) -> list[Law | None]:
    """Laws of a text after a prompt, under the settings of a request."""
    is_raw = request.logprobs == "raw" and not answer.is_processed
    if request.promise is not None and not (is_raw and answer.by_id):
        raise InvalidInput(
            "a promise is held against log-probabilities before the sampler, of tokens by their "
            "ids: these are after it, or name tokens by their text. Leave the promise out"
        )
    sampling = request.sampling if request.promise is None else Sampling()
    laws = [
        None if not row else law_of_logprobs(
            {id_of(name): x for name, x in row.items()}, sampling, is_raw, request.top
        )
        for row in answer.lists
    ]  # fmt: skip
    if request.promise is None:
        return laws
    tokens = ids_of(answer)
    return [
        None if law is None else law.under(request.promise, tokens[:n], prompt)
        for n, law in enumerate(laws)
    ]


def read_texts(path: str | os.PathLike[str]) -> Iterator[Answer]:
    """Generated texts of a file of answers, one after another."""
    has_texts = False
    for text in (x for answers in read_answers(path) for x in answers if not x.is_prompt):
        has_texts = True
        if text.tokens is None:
            raise UnreadableFile(f"{path} has lists of tokens, and not those that came")
        yield text
    if not has_texts:
        raise UnreadableFile(
            f"{path} scores prompts, which no engine drew: ask for log-probabilities of the output"
        )


def listed_tokens(path: str | os.PathLike[str]) -> int | None:
    """Number of tokens asked for at each position: the fewest of any list with something left.

    Which tokens a law tells apart must not depend on the token that came. None where all lists are
    whole.
    """
    sizes = (
        len(row)
        for text in read_texts(path)
        for row in text.lists
        if row and sum(map(math.exp, row.values())) < 1.0 - ROUNDING
    )
    return min(sizes, default=None)
