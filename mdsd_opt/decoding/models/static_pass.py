"""Trees of drafts in one pass, with keys and values in tensors that never move."""

from __future__ import annotations

import inspect
from typing import Any

from mdsd_opt.decoding.models.passes import Tokens, TreePass


class StaticTreePass(TreePass):
    """`TreePass` with a `StaticCache` of the transformers library.

    A cache that text and drafts outgrow is made anew, with twice the room, and both are read again.

    Raises
    ------
    NotImplementedError
        At the first pass: layers with a window hold only what they still see, so that no draft can
        be taken back.
    """

    how = "as a tree in one pass with a static cache"

    def _pass(self, rest: list[int], new: list[Tokens]) -> None:
        held = len(self._read) + len(rest) + len(self._nodes) + len(new)
        if held > self._room:
            rest, new = self._read + rest, [*self._nodes, *new]
            self._read, self._nodes, self._logits, self._cache = [], [], {}, None
            self._room = 2 * held
        super()._pass(rest, new)

    def _new_cache(self) -> Any:
        from transformers import StaticCache

        cache = StaticCache(config=self._model.config, max_cache_len=self._room)
        if any(layer.is_sliding for layer in cache.layers):
            raise NotImplementedError("a static cache of layers with a window")
        return cache

    def _width(self, held: int) -> int:
        return self._room

    def _placed(self, start: int, stop: int) -> dict[str, Any]:
        """Where keys and values go, for versions of the library whose caches do not count."""
        import torch

        if "cache_position" not in inspect.signature(type(self._model).forward).parameters:
            return {}
        return {"cache_position": torch.arange(start, stop, device=self._model.device)}

    def _crop(self, count: int) -> None:
        for layer in self._cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.sub_(count)
