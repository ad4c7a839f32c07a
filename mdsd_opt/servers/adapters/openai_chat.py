"""Chat completions in the style of OpenAI, for servers that give no token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mdsd_opt.servers.adapters.openai_completions import OpenAI
from mdsd_opt.servers.connection import Connection
from mdsd_opt.servers.request import Request


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


ADAPTER = OpenAIChat
