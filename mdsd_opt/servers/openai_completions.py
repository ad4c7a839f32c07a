"""Completions, of texts and chats, in the style of OpenAI: laws come with the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mdsd_opt.errors import ServerError
from mdsd_opt.formats import Answer, answers_of, counters_in
from mdsd_opt.servers.adapter import (
    Counters,
    Request,
    ServerAdapter,
    ServerAnswer,
    answer_if_known,
    ids_of,
    is_there,
    laws_of,
)
from mdsd_opt.servers.connection import Connection, Refused
from mdsd_opt.servers.laws import Law

#: Status codes by which a server says that it does not know a path, or an option.
_UNKNOWN = (400, 404, 405, 422)


class OpenAI(ServerAdapter):
    """Adapter of an API in the style of OpenAI: a text comes with its laws.

    Attributes
    ----------
    path : str
    probe : dict
        Prompt of a request for one token, which shows whether the server has this API.
    extras : dict
        Options that only some servers know; they are left out if a server refuses them.
    """

    path: ClassVar[str]
    probe: ClassVar[dict[str, Any]]
    extras: ClassVar[dict[str, Any]] = {"ignore_eos": True}

    def __init__(self, connection: Connection, request: Request) -> None:
        super().__init__(connection, request)
        self.model = request.model or first_model(connection)
        self._extras = dict(self.extras)

    @classmethod
    def recognises(cls, connection: Connection) -> bool:
        """Whether the server answers ``/v1/models`` and a request for one token."""
        model = first_model(connection, must=False)
        if model is None:
            return False
        body = {"model": model, "max_tokens": 1, **cls.probe}
        return is_there(_posted(connection, cls.path, body), "choices")

    def _prompted(self, prompt: Sequence[int]) -> dict[str, Any]:
        """Part of a request: the prompt, and that laws are wanted."""
        raise NotImplementedError

    def _body(self, prompt: Sequence[int], length: int) -> dict[str, Any]:
        sampling = self.request.sampling
        filters = {name: getattr(sampling, name) for name in ("top_k", "top_p", "min_p")}
        return {
            "model": self.model,
            "max_tokens": length,
            "temperature": sampling.temperature,
            **self._prompted(prompt),
            **{name: value for name, value in filters.items() if value is not None},
        }

    def _ask(self, prompt: Sequence[int], length: int, **more: Any) -> Any:
        body = {**self._body(prompt, length), **more}
        return asked(self.connection, self.path, body, self._extras)

    def request_for(self, prompt: Sequence[int], length: int) -> tuple[str, dict[str, Any]]:
        """A POST to the path of completions, with the options that the server knows."""
        return self.path, {**self._body(prompt, length), **self._extras}

    def _written(self, prompt: Sequence[int], length: int) -> tuple[Answer, list[Law | None]]:
        """Text of an answer, which has to have laws, and these."""
        answer = self._ask(prompt, length)
        try:
            written = answers_of(answer, top=self.request.top)[0]
        except ValueError as error:
            raise ServerError(
                f"{self.connection.url} answers without log-probabilities ({error}): the audit "
                f"asked for the {self.request.top} likeliest tokens of each"
            ) from error
        return written, laws_of(written, self.request, prompt)

    def sample(self, prompt: Sequence[int], length: int) -> ServerAnswer:
        written, laws = self._written(prompt, length)
        self.continues = self.continues and written.by_id
        return ServerAnswer(ids_of(written), laws, list(prompt))

    def one(self, prefix: Sequence[int]) -> tuple[int, Law | None]:
        written, laws = self._written(prefix, 1)
        return ids_of(written)[0], laws[0]

    def counters(self) -> Counters | None:
        """Counts from vLLM's ``/metrics``."""
        try:
            numbers = counters_in(str(self.connection.get("/metrics")), "vllm")
        except (ServerError, ValueError):
            return None
        if "drafted" not in numbers:
            return None
        drafted, accepted, steps = (
            int(numbers[x].value) if x in numbers else 0 for x in ("drafted", "accepted", "steps")
        )
        places = numbers["positions"].value if "positions" in numbers else ()
        return Counters(drafted, accepted, steps, tuple(int(x) for x in places))


class OpenAICompletions(OpenAI):
    """Adapter of ``/v1/completions``, with token ids as prompts and in answers."""

    name = "openai-completions"
    order = 1
    scores_texts = True
    path = "/v1/completions"
    probe: ClassVar = {"prompt": "a"}
    extras: ClassVar = {
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        **OpenAI.extras,
    }

    def prompt(self, text: str) -> list[int]:
        """Tokens of a prompt, from ``/tokenize`` of vLLM and SGLang."""
        for path in ("/tokenize", "/v1/tokenize"):
            answer = _posted(self.connection, path, {"model": self.model, "prompt": text})
            if is_there(answer, "tokens"):
                if text and not answer["tokens"]:  # llama.cpp takes "content", and ignores "prompt"
                    raise ServerError(
                        f"{self.connection.url}{path} gives no tokens of a prompt: it is a server "
                        "of llama.cpp, take --api llamacpp"
                    )
                return [int(token) for token in answer["tokens"]]
        raise ServerError(
            f"{self.connection.url} has no /tokenize: give prompts of token ids, or take "
            "--api openai-chat"
        )

    def _prompted(self, prompt: Sequence[int]) -> dict[str, Any]:
        return {"prompt": list(prompt), "logprobs": self.request.top}

    def laws_along(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[Law | None]:
        """Laws of all tokens, by vLLM's `prompt_logprobs` at once, or one after another."""
        if not tokens:
            return []
        answer = self._ask([*prompt, *tokens], 1, prompt_logprobs=self.request.top)
        try:
            written = next(x for x in answers_of(answer, top=self.request.top) if x.is_prompt)
        except (StopIteration, ValueError):
            self.scores_texts = False
            return super().laws_along(prompt, tokens)
        return laws_of(written, self.request)[len(prompt) : len(prompt) + len(tokens)]


def first_model(connection: Connection, *, must: bool = True) -> str | None:
    """First of a server's models."""
    answer = answer_if_known(connection, "/v1/models")
    if is_there(answer, "data") and answer["data"]:
        return str(answer["data"][0]["id"])
    if must:
        raise ServerError(f"{connection.url}/v1/models lists no model: give its name")
    return None


def _posted(connection: Connection, path: str, body: dict[str, Any]) -> Any:
    """Answer of a server; None if it does not know the path."""
    try:
        return connection.post(path, body)
    except Refused as error:
        if error.status in _UNKNOWN:
            return None
        raise


def asked(connection: Connection, path: str, body: dict[str, Any], extras: dict[str, Any]) -> Any:
    """Answer of a server; extras that it refuses are left out from then on."""
    while True:
        sent = dict(extras)
        try:
            return connection.post(path, {**body, **sent})
        except Refused as error:
            if error.status not in (400, 422):
                raise
            if sent != extras:  # another request has left something out meanwhile
                continue
            if "logprob" in str(error).lower():
                raise ServerError(
                    f"{error}. The audit needs log-probabilities: let the server allow them "
                    f"(vLLM: --max-logprobs), or ask for fewer with --top"
                ) from error
            dropped = [name for name in extras if name in str(error)] or list(extras)[:1]
            if not dropped:
                raise
            for name in dropped:
                extras.pop(name, None)


class OpenAIChat(OpenAI):
    """Adapter of ``/v1/chat/completions``: tokens by text or bytes, laws only with texts.

    A prompt is named by a number of ours; nothing but a whole prompt can be continued.
    """

    name = "openai-chat"
    order = 2
    continues = False
    path = "/v1/chat/completions"
    probe: ClassVar = {"messages": [{"role": "user", "content": "a"}]}

    def __init__(self, connection: Connection, request: Request) -> None:
        super().__init__(connection, request)
        self._prompts: list[str] = []

    def prompt(self, text: str) -> list[int]:
        """Number that names a prompt."""
        if text not in self._prompts:
            self._prompts.append(text)
        return [self._prompts.index(text)]

    def _prompted(self, prompt: Sequence[int]) -> dict[str, Any]:
        messages = [{"role": "user", "content": self._prompts[prompt[0]]}]
        return {"messages": messages, "logprobs": True, "top_logprobs": self.request.top}


ADAPTERS = (OpenAICompletions, OpenAIChat)
