"""Interface between an audit and a server: what is requested, and what APIs answer.

A file of this room with `ADAPTERS` reads an API.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mdsd_opt.base.checked import check_function
from mdsd_opt.base.installed import loaded
from mdsd_opt.base.registry import Registry, files_that_declare
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput, ServerError, UnreadableFile
from mdsd_opt.formats import Answer, read_answers
from mdsd_opt.servers.connection import Connection, Refused
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


_PACKAGE = "mdsd_opt.servers"


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A text of a server.

    Attributes
    ----------
    tokens : list of int
    laws : list of (Law or None), or None
        Law of each token, if the answer has it.
    prompt : list of int
        The tokens before it.
    drafted, accepted : int or None
        Draft tokens, where the answer counts them.
    """

    tokens: list[int]
    laws: list[Law | None] | None
    prompt: list[int]
    drafted: int | None = None
    accepted: int | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of draft tokens since a server started; `by_position` covers `steps` steps."""

    drafted: int
    accepted: int
    steps: int = 0
    by_position: tuple[int, ...] = ()


class ServerAdapter(ABC):
    """One API of servers.

    Attributes
    ----------
    name : str
    order : int
        APIs are tried in this order where none is named.
    continues : bool
        Whether a text of token ids can be continued, so that laws after any text can be asked for.
    scores_texts : bool
        Whether `laws_along` is one request.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    continues: bool = True
    scores_texts: bool = False

    def __init__(self, connection: Connection, request: Request) -> None:
        self.connection = connection
        self.request = request

    @classmethod
    @abstractmethod
    def recognises(cls, connection: Connection) -> bool:
        """Whether a server has this API."""

    @abstractmethod
    def prompt(self, text: str) -> list[int]:
        """Tokens of a prompt, or a number that names it if the API takes no ids."""

    @abstractmethod
    def sample(self, prompt: Sequence[int], length: int) -> ServerAnswer:
        """A text of `length` tokens after a prompt, with speculation if the server has it."""

    @abstractmethod
    def one(self, prefix: Sequence[int]) -> tuple[int, Law | None]:
        """One token after a text, which is never drafted, and its law."""

    def law(self, prefix: Sequence[int]) -> Law | None:
        """Law of the token after a text."""
        return self.one(prefix)[1]

    def laws_along(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[Law | None]:
        """Laws of all tokens of a text."""
        return [self.law([*prompt, *tokens[:n]]) for n in range(len(tokens))]

    def counters(self) -> Counters | None:
        """Counts of the whole server, or None if it has none."""
        return None

    def request_for(self, prompt: Sequence[int], length: int) -> tuple[str, dict[str, Any]] | None:
        """Path and body of the request for a text, or None where it is not one POST of JSON."""
        return None

    def curl(self, prompt: Sequence[int], length: int) -> str:
        """Line for a shell that makes the request for a text; empty where it is not one POST.

        A key is not in it: it is read from the variable KEY.
        """
        if (asked := self.request_for(prompt, length)) is None:
            return ""
        key = ' -H "Authorization: Bearer $KEY"' if self.connection.has_key else ""
        head = shlex.join(["curl", "-sS", self.connection.url + asked[0]])
        kind = f"-H 'Content-Type: application/json'{key}"
        return f"{head} {kind} -d {shlex.quote(json.dumps(asked[1]))}"


def _own() -> dict[str, type[ServerAdapter]]:
    """Adapters of the package by name, in the order in which they are tried."""
    places = files_that_declare("ADAPTERS", _PACKAGE).values()
    adapters = [one for place in places for one in loaded(place)]
    return {one.name: one for one in sorted(adapters, key=lambda one: one.order)}


def _checked(adapter: Any, name: str) -> type[ServerAdapter]:
    if isinstance(adapter, type) and issubclass(adapter, ServerAdapter):
        return adapter
    raise InvalidInput(
        f"{name} is {adapter!r:.60}: give a class derived from "
        "mdsd_opt.servers.adapter.ServerAdapter"
    )


APIS: Registry[type[ServerAdapter]] = Registry(
    "API", "mdsd_opt.server_apis", _own, _checked, ("auto", "openai")
)


def connected(connection: Connection, api: str, request: Request) -> ServerAdapter:
    """Adapter of a server: the one that is named, or the first that recognises it.

    Raises `ServerError` if no server answers, or none of the APIs is its own.
    """
    if api not in ("auto", "openai"):
        return APIS.get(api)(connection, request)
    for name in APIS.names():
        if api == "auto" or name.startswith("openai"):
            adapter = APIS.get(name)
            if adapter.recognises(connection):
                return adapter(connection, request)
    raise ServerError(
        f"{connection.url} answers, but its API is none of {', '.join(APIS.names())}: name one "
        "with --api, or write an adapter of your own and give it as module:attribute"
    )


def answer_if_known(connection: Connection, path: str) -> Any:
    """Answer of a server to GET; None if it refuses the path for another reason than its key."""
    try:
        return connection.get(path)
    except Refused as error:
        if error.status in (401, 403):
            raise
        return None


def is_there(answer: Any, *keys: str) -> bool:
    """Whether an answer is a JSON object with one of some keys."""
    return isinstance(answer, dict) and any(key in answer for key in keys)
