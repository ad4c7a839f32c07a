"""llama.cpp's own API: token ids in and out, and laws after all samplers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mdsd_opt.errors import InvalidInput, ServerError
from mdsd_opt.formats import answers_of
from mdsd_opt.servers.adapter import (
    Request,
    ServerAdapter,
    ServerAnswer,
    answer_if_known,
    ids_of,
    is_there,
    laws_of,
)
from mdsd_opt.servers.connection import Connection
from mdsd_opt.servers.laws import Law

#: Number of tokens that a law lists: more than a filter leaves, and enough to see what is beyond.
_LISTED = 512


class LlamaCpp(ServerAdapter):
    """Adapter of ``/completion`` and ``/tokenize``.

    An answer with several tokens has no laws where they were drafted. A request for one token is
    never speculative, and has the law that the token was drawn from.
    """

    name = "llamacpp"
    order = 0

    def __init__(self, connection: Connection, request: Request) -> None:
        super().__init__(connection, request)
        if request.promise is not None:
            raise InvalidInput(
                "llama.cpp's server gives laws after all its samplers: leave the promise out"
            )

    @classmethod
    def recognises(cls, connection: Connection) -> bool:
        """Whether the server answers ``/props``, which others do not have."""
        answer = answer_if_known(connection, "/props")
        return is_there(answer, "default_generation_settings", "total_slots")

    def prompt(self, text: str) -> list[int]:
        """Tokens of a prompt, from ``/tokenize``."""
        answer = self.connection.post("/tokenize", {"content": text, "add_special": True})
        if not is_there(answer, "tokens"):
            raise ServerError(f"{self.connection.url}/tokenize answers without tokens")
        return [int(token) for token in answer["tokens"]]

    def _body(self, prompt: Sequence[int], length: int) -> dict[str, Any]:
        sampling = self.request.sampling
        listed: dict[str, Any] = {}
        if length == 1:
            listed = {"n_probs": _LISTED, "post_sampling_probs": True}
            if sampling.temperature == 0:
                listed = {"n_probs": 8}
        return {
            "prompt": list(prompt),
            "n_predict": length,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or 0,
            "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
            "min_p": 0.0 if sampling.min_p is None else sampling.min_p,
            "ignore_eos": True,
            "cache_prompt": True,
            "return_tokens": True,
            **listed,
        }

    def request_for(self, prompt: Sequence[int], length: int) -> tuple[str, dict[str, Any]]:
        """A POST to ``/completion``."""
        return "/completion", self._body(prompt, length)

    def sample(self, prompt: Sequence[int], length: int) -> ServerAnswer:
        answer = self.connection.post(*self.request_for(prompt, length))
        if not is_there(answer, "tokens") or not answer["tokens"]:
            raise ServerError(
                f"{self.connection.url}/completion answers without token ids: it has to know "
                "return_tokens, which llama.cpp's server has had since December 2024"
            )
        timings = answer.get("timings") or {}
        return ServerAnswer(
            [int(token) for token in answer["tokens"]],
            None,
            list(prompt),
            int(timings.get("draft_n", 0)),
            int(timings.get("draft_n_accepted", 0)),
        )

    def one(self, prefix: Sequence[int]) -> tuple[int, Law | None]:
        answer = self.connection.post(*self.request_for(prefix, 1))
        if self.request.sampling.temperature == 0:  # the likeliest token before the sampler
            written = answers_of(answer)[0]
            return ids_of(written)[0], laws_of(written, self.request)[0]
        listed = answer.get("completion_probabilities") if isinstance(answer, dict) else None
        if not listed:  # half of a character has none
            return int(answer["tokens"][0]), None
        entry = listed[0]
        pairs = [(int(x["id"]), float(x["prob"])) for x in entry["top_probs"] if x["prob"] > 0]
        if not pairs:
            return int(entry["id"]), None
        total = math.fsum(p for _, p in pairs)
        return int(entry["id"]), Law(
            [i for i, _ in pairs],
            [p for _, p in pairs],
            max(1.0 - total, 0.0) if len(pairs) >= _LISTED else 0.0,
        )


ADAPTERS = (LlamaCpp,)
