"""One pass of a causal language model over a tree of continuations, with a cache of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import InvalidInput
from mdsd_opt.models.loading import LoadedModel, to_numpy_array

Tokens = tuple[int, ...]


class TreeModel:
    """Logits after many continuations of a text in one pass, under a tree attention mask.

    Every token attends to the text and to its own ancestors only. Keys and values of the text are
    kept between calls, those of the tree are dropped: a text that grows is read once.

    Parameters
    ----------
    loaded : LoadedModel
    """

    def __init__(self, loaded: LoadedModel) -> None:
        from transformers import DynamicCache

        self.loaded = loaded
        self._cache: Any = DynamicCache(config=loaded.model.config)
        self._read: list[int] = []

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Tokens]) -> NDArray[Any]:
        """Logits of the next token after `ids` and each continuation, [n, V]."""
        import torch

        if not ids:
            raise InvalidInput("the text is empty: a model needs at least one token")
        model = self.loaded.model
        known = self._keep_common(list(ids))
        nodes = _with_ancestors(continuations)
        place = {node: i for i, node in enumerate(nodes)}  # of the text's end: -1
        rest = list(ids[known:])
        tokens = rest + [node[-1] for node in nodes]
        positions = list(range(known, len(ids))) + [len(ids) + len(n) - 1 for n in nodes]
        seen = np.zeros((len(tokens), known + len(tokens)), dtype=bool)
        seen[:, :known] = True
        seen[: len(rest), known : len(ids)] = np.tri(len(rest), dtype=bool)
        seen[len(rest) :, known : len(ids)] = True
        for i, node in enumerate(nodes):
            for n in range(1, len(node) + 1):
                seen[len(rest) + i, len(ids) + place[node[:n]]] = True
        dtype, device = model.dtype, model.device
        mask = torch.zeros(seen.shape, dtype=dtype, device=device)
        mask.masked_fill_(~torch.as_tensor(seen, device=device), torch.finfo(dtype).min)
        with torch.inference_mode():
            output = model(
                torch.as_tensor([tokens], dtype=torch.long, device=device),
                attention_mask=mask[None, None],
                position_ids=torch.as_tensor([positions], dtype=torch.long, device=device),
                past_key_values=self._cache,
                use_cache=True,
            ).logits[0]
            rows = [len(rest) + (place[node] if node else -1) for node in continuations]
            found = to_numpy_array(output[torch.as_tensor(rows, device=device)])
        self._forget(len(nodes))
        self._read = list(ids)
        return found

    def _keep_common(self, ids: list[int]) -> int:
        """Forget what the texts do not share; the last token is read again, for its logits."""
        known = 0
        for ours, theirs in zip(self._read, ids[:-1], strict=False):
            if ours != theirs:
                break
            known += 1
        self._forget(len(self._read) - known)
        self._read = self._read[:known]
        return known

    def _forget(self, count: int) -> None:
        if count > 0:
            self._cache.crop(-count)


def _with_ancestors(continuations: Sequence[Tokens]) -> list[Tokens]:
    """All continuations and what they begin with, shorter ones first."""
    nodes = {tokens[:n] for tokens in continuations for n in range(1, len(tokens) + 1)}
    return sorted(nodes, key=lambda tokens: (len(tokens), tokens))
