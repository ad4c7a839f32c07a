"""Chat completions in the style of OpenAI, for servers that give no token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mdsd_opt.auditing.servers.adapter import Adapter, Answer, Request, is_there
from mdsd_opt.auditing.servers.adapters.openai_completions import (
    asked,
    first_model,
    with_laws,
)
from mdsd_opt.auditing.servers.connection import Connection, Refused
from mdsd_opt.auditing.servers.laws import Law
from mdsd_opt.auditing.servers.recorded import Reader, Written, laws_of


class OpenAIChat(Adapter):
    """Adapter of ``/v1/chat/completions``: tokens by text or bytes, laws only with texts.

    A prompt is named by a number of ours; nothing but a whole prompt can be continued.
    """

    name = "openai-chat"
    order = 2
    continues = False

    def __init__(self, connection: Connection, request: Request) -> None:
        super().__init__(connection, request)
        self.reader = Reader()
        self.model = request.model or first_model(connection)
        self._extras: dict[str, Any] = {"ignore_eos": True}
        self._prompts: list[str] = []

    @classmethod
    def recognises(cls, connection: Connection) -> bool:
        """Whether the server answers ``/v1/models`` and a request for one token."""
        model = first_model(connection, must=False)
        if model is None:
            return False
        body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}
        try:
            return is_there(connection.post("/v1/chat/completions", body), "choices")
        except Refused as error:
            if error.status in (400, 404, 405, 422):
                return False
            raise

    def prompt(self, text: str) -> list[int]:
        """Number that names a prompt."""
        if text not in self._prompts:
            self._prompts.append(text)
        return [self._prompts.index(text)]

    def _ask(self, prompt: Sequence[int], length: int) -> Written:
        sampling = self.request.sampling
        text = self._prompts[prompt[0]]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": length,
            "temperature": sampling.temperature,
            "logprobs": True,
            "top_logprobs": self.request.top,
        }
        for name in ("top_k", "top_p", "min_p"):
            value = getattr(sampling, name)
            if value is not None:
                body[name] = value
        answer = asked(self.connection, "/v1/chat/completions", body, self._extras)
        return with_laws(self.reader, answer, self.connection, self.request.top)

    def sample(self, prompt: Sequence[int], length: int) -> Answer:
        written = self._ask(prompt, length)
        return Answer(written.tokens, laws_of(written, self.request), list(prompt))

    def one(self, prefix: Sequence[int]) -> tuple[int, Law | None]:
        written = self._ask(prefix, 1)
        return written.tokens[0], laws_of(written, self.request)[0]


ADAPTER = OpenAIChat
