"""Toy models as PyTorch modules, with caches that hold the ids. Imported only if asked for.

A text stands behind a first token of id 0. What a cache holds in place of keys and values are the
ids themselves, so that a cache which was not cut back after a refused token gives the law after a
text that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from mdsd_opt.auditing.laws import Toy
from mdsd_opt.errors import InvalidInput

#: Value of an added mask below which a position is hidden.
_HIDDEN = -1.0


class ToyCache:
    """One layer of keys and values, shape [b, 1, n, 1], which grows in place, as a DynamicCache."""

    def __init__(self) -> None:
        self.keys: Any = torch.empty(0)

    def update(self, keys: Any, values: Any, layer: int, *rest: Any) -> tuple[Any, Any]:
        self.keys = torch.cat([self.keys, keys], dim=2) if self.keys.numel() else keys
        return self.keys, self.keys

    def crop(self, length: int) -> None:
        """Keep `length` positions; if it is negative, drop so many."""
        self.keys = self.keys[:, :, :length] if self.keys.numel() else self.keys

    def get_seq_length(self, layer: int = 0) -> int:
        return int(self.keys.shape[2]) if self.keys.numel() else 0

    def reorder_cache(self, rows: Any) -> None:
        self.keys = self.keys[rows]

    def __len__(self) -> int:
        return 1 if self.keys.numel() else 0

    def __getitem__(self, layer: int) -> tuple[Any, Any]:
        return list(self)[layer]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        yield from [(self.keys, self.keys)][: len(self)]


class Output:
    """Return value of a module, readable by name, by place, or as a tuple."""

    def __init__(self, logits: Any, past_key_values: Any) -> None:
        self.logits, self.past_key_values = logits, past_key_values

    @property
    def cache(self) -> Any:
        """Cache, under its name since transformers 5.24."""
        return self.past_key_values

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, str):
            return getattr(self, place)
        return (self.logits, self.past_key_values)[place]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.logits, self.past_key_values))


class TorchToy(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A toy as a module: ids [b, n] -> logits [b, n, V], float32, and the cache, handed back.

    A cache that is a tuple of layers is left as it is, and a longer one comes back; one with a
    method `update` grows in place. Without one, a new `ToyCache` is made. Positions that an
    attention mask hides, of shape [b, m] or [b, 1, n, m], are not part of the text.
    """

    def __init__(self, toy: Toy) -> None:
        super().__init__()
        self._toy = toy
        self._anchor = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
        self.eval()

    @property
    def device(self) -> Any:
        return self._anchor.device

    @property
    def dtype(self) -> Any:
        return self._anchor.dtype

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        past_key_values: Any = None,
        use_cache: bool = True,
        cache: Any = None,
        **others: Any,
    ) -> Output:
        """Output with logits after each of the ids; the cache may have either name."""
        own_cache = past_key_values if cache is None else cache
        past = _held(own_cache, len(input_ids))
        rows = []
        for b, new in enumerate(input_ids.tolist()):
            ids = [*past[b], *new]
            texts = [
                self._toy.checked([ids[k] for k in seen][1:])
                for seen in _seen(attention_mask, b, len(past[b]), len(new))
            ]
            shown = texts if attention_mask is not None and attention_mask.ndim == 4 else texts[-1:]
            for text in shown:
                self._toy.hear(text)
            rows.append([self._toy.row(text) for text in texts])
        longer = _longer(own_cache, input_ids) if use_cache else None
        return Output(torch.from_numpy(np.array(rows)).to(self.dtype), longer)


def _held(cache: Any, num_rows: int) -> list[list[int]]:
    """Ids that a cache holds, by row."""
    keys = None
    if isinstance(cache, (tuple, list)):
        keys = cache[0][0] if len(cache) else None
    elif cache is not None:
        layers = getattr(cache, "layers", None)
        if layers is not None:
            keys = getattr(layers[0], "keys", None) if len(layers) else None
        else:
            keys = cache[0][0] if len(cache) else None
    if keys is None or not keys.numel():
        return [[] for _ in range(num_rows)]
    return keys[:, 0, :, 0].round().long().tolist()


def _longer(cache: Any, input_ids: Any) -> Any:
    """Cache with these ids after those that it holds."""
    new = input_ids[:, None, :, None].float()
    cache = ToyCache() if cache is None else cache
    if hasattr(cache, "update"):
        cache.update(new, new, 0)
        return cache
    keys = torch.cat([cache[0][0], new], dim=2) if len(cache) else new
    return ((keys, keys),)


def _seen(mask: Any, row: int, before: int, new: int) -> list[list[int]]:
    """Positions that each new one sees, itself included."""
    if mask is None:
        return [list(range(before + n + 1)) for n in range(new)]
    if mask.ndim not in (2, 4) or mask.shape[-1] < before + new:
        raise InvalidInput(
            f"the attention mask has shape {tuple(mask.shape)}: give [b, {before + new}] or "
            f"[b, 1, {new}, {before + new}] for {new} new positions after {before}"
        )
    if mask.ndim == 2:
        shown = mask[row].bool().tolist()
        return [[k for k in range(before + n + 1) if shown[k]] for n in range(new)]
    of_row = mask[min(row, len(mask) - 1), 0, -new:]
    visible = of_row > _HIDDEN if of_row.is_floating_point() else of_row.bool()
    return [[k for k in range(before + new) if shown[k]] for shown in visible.tolist()]
