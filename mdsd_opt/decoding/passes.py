"""Ways to compute a causal language model's logits after many continuations of one text.

The first is the fastest, the last asks least of the model; `tree_pass` finds which of them gives
what plain passes give. All keep what they can of a text between calls, and forget the drafts.

Names of the cache of what a model has read, which differ by version and family.
"""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Text
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import known as settled
from mdsd_opt.trees import on_device, token_ids

#: Names in arguments and outputs, the present one first: older versions of the transformers library
#: have one for attention and one for recurrent layers.
CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


def cache_of(output: Any) -> Any:
    """Cache in a model's output, or among named arguments; None if there is none."""
    get = output.get if isinstance(output, dict) else functools.partial(getattr, output)
    return next((cache for name in CACHE_NAMES if (cache := get(name, None)) is not None), None)


def cache_name(model: Any) -> str:
    """Name of a model's argument for the cache; to be asked once, not at every pass."""
    for forward in (type(model).forward, model.forward):  # the own one may be wrapped by anything
        parameters = inspect.signature(forward).parameters
        for name in CACHE_NAMES:
            if name in parameters:
                return name
    return "past_key_values"


def holds_text(cache: Any) -> bool:
    """Whether a cache has anything in it; one of recurrent layers alone counts no tokens."""
    try:
        if cache.get_seq_length() > 0:
            return True
    except (AttributeError, ValueError):
        pass
    states = (getattr(layer, "has_previous_state", None) for layer in getattr(cache, "layers", ()))
    return any(any(state.values()) for state in states if isinstance(state, dict))


class TreeReader(ABC):
    """Reads continuations of a text with one model; `how` names the way, for a remark.

    Those that make room beforehand make it for so many tokens of text and drafts.
    """

    how: ClassVar[str]

    def __init__(self, model: Any, room: int = 1) -> None:
        self._model, self._room = model, room
        self._device = model.device  # once: the model looks at its weights
        self._cache_name = cache_name(model)
        self.cache: Any = None
        self._read: list[int] = []

    @abstractmethod
    def logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        """Logits of the next token after `ids` and each continuation, on the device; [n, V]."""

    def keep_hidden_states(self, layers: tuple[int, ...]) -> None:
        """Keep the hidden states of these layers; `InvalidInput` if that is impossible."""
        if layers:
            raise InvalidInput(
                f"{type(self._model).__name__} reads drafts {self.how}, and its hidden states are "
                "kept only where it reads them as a tree: take a draft that reads none"
            )

    def hidden_states(self, ids: list[int], start: int) -> Any:
        """Hidden states of a text's tokens from `start` on, as far as they are known; [m, F]."""
        raise NotImplementedError

    def _ids(self, rows: Sequence[Sequence[int]]) -> Any:
        # a promised draft of which none was left is read as any other, and left out later
        return token_ids(rows, self._device).clamp_(min=0)


class TreePass(TreeReader):
    """Pass over the text's new tokens and all drafts at once, under a tree attention mask.

    Every token attends to the text and to its own ancestors only. Keys and values of drafts stay
    where they are as long as the text does, so that no token of a tree that grows level by level
    is read twice; those of drafts that the text goes on with become the text's.
    """

    how = "as a tree in one pass"

    def __init__(self, model: Any, room: int = 1) -> None:
        super().__init__(model, room)
        self._dtype = model.dtype
        self._nodes: list[Text] = []  # behind the text in the cache
        self._logits: dict[Text, Any] = {}  # after the text and each node
        self._layers: tuple[int, ...] = ()
        self._states: list[Any] = []  # hidden states of the text's tokens
        self._of_nodes: dict[Text, Any] = {}

    def keep_hidden_states(self, layers: tuple[int, ...]) -> None:
        self._layers = layers

    def hidden_states(self, ids: list[int], start: int) -> Any:
        import torch

        rest = ids[len(self._read) :] if ids[: len(self._read)] == self._read else []
        rows = self._states[start : len(ids)] + self._states_along(tuple(rest))
        return torch.stack(rows) if rows else torch.empty(0)

    def _states_along(self, path: Text) -> list[Any]:
        """Hidden states of the nodes on a path, as far as there are nodes."""
        of_nodes = {settled(node): state for node, state in self._of_nodes.items()}
        beginnings = (path[: n + 1] for n in range(len(path)))
        return [of_nodes[node] for node in takewhile(of_nodes.__contains__, beginnings)]

    def logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        import torch

        if self.cache is None:  # nothing read yet, or a pass was interrupted
            self._start_anew()
        self._go_to(list(ids))
        rest = list(ids[len(self._read) :])
        new = [node for node in with_ancestors(continuations) if node not in self._logits]
        if rest or new:
            self._pass(rest, new)
        return torch.stack([self._logits[node] for node in continuations])

    def _start_anew(self) -> None:
        self._read, self._nodes, self._logits = [], [], {}
        self._states, self._of_nodes = [], {}

    def _go_to(self, ids: list[int]) -> None:
        """Keep the text's beginning in the cache, and drafts after it if it is the whole text."""
        if ids == self._read:
            return
        self._nodes = [settled(node) for node in self._nodes]
        self._logits = {settled(node): logits for node, logits in self._logits.items()}
        known = sum(takewhile(bool, map(eq, self._read, ids)))
        if known < len(self._read):
            known = min(known, len(ids) - 1)  # whose last token is read again for its logits
            self._forget(len(self._nodes) + len(self._read) - known)
            self._read, self._nodes, self._logits = ids[:known], [], {}
            self._states, self._of_nodes = self._states[:known], {}
            return
        rest = tuple(ids[known:])
        row_of = {node: i for i, node in enumerate(self._nodes)}
        count = next((n for n in range(len(rest)) if rest[: n + 1] not in row_of), len(rest))
        if count and not self.move([row_of[rest[: n + 1]] for n in range(count)]):
            count = 0
        self._forget(len(self._nodes) - count)
        self._logits = {(): self._logits[rest]} if count == len(rest) else {}
        self._states += self._states_along(rest[:count])
        self._of_nodes = {}
        self._read, self._nodes = ids[: known + count], []

    def move(self, path: list[int]) -> bool:
        """Move keys and values of some nodes to the end of the text, if the cache shows them."""
        if path == list(range(len(path))):
            return True
        start, width = len(self._read), self._width(len(self._read) + len(self._nodes))
        layers = [x for x in getattr(self.cache, "layers", ()) if getattr(x, "is_initialized", 1)]
        states: list[Any] = [getattr(x, name, None) for x in layers for name in ("keys", "values")]
        if not states or any(x is None or x.shape[-2] != width for x in states):
            return False
        places = on_device(path, self._device) + start
        for x in states:
            x[..., start : start + len(path), :] = x.index_select(-2, places.to(x.device))
        return True

    def _pass(self, rest: list[int], new: list[Text]) -> None:
        import torch

        model = self._model
        cache = self._new_cache() if self.cache is None else self.cache
        self.cache = None  # should the pass be interrupted
        text, nodes = self._read + rest, [*self._nodes, *new]
        known = len(text) - len(rest) + len(nodes) - len(new)
        # there are drafts in the cache only if the whole text is
        place = {node: len(text) + i for i, node in enumerate(nodes)}
        tokens = rest + [node[-1] for node in new]
        positions = list(range(len(text) - len(rest), len(text)))
        positions += [len(text) + len(node) - 1 for node in new]
        stop = known + len(tokens)
        hidden = np.ones((len(tokens), self._width(stop)), dtype=bool)
        for i, position in enumerate(positions[: len(rest)]):
            hidden[i, : position + 1] = False
        hidden[len(rest) :, : len(text)] = False
        for i, node in enumerate(new, start=len(rest)):
            hidden[i, [place[node[:n]] for n in range(1, len(node) + 1)]] = False
        mask = on_device(hidden, self._device).to(self._dtype).mul_(torch.finfo(self._dtype).min)
        input_ids, position_ids = self._ids([tokens, positions]).split(1)
        output = model(
            input_ids,
            attention_mask=mask[None, None],
            position_ids=position_ids,
            use_cache=True,
            **{self._cache_name: cache},
            **({"output_hidden_states": True} if self._layers else {}),
            **self._placed(known, stop),
        )
        if self._layers:
            parts = [output.hidden_states[layer][0] for layer in self._layers]
            states = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
            self._states += states[: len(rest)].clone().unbind()
            self._of_nodes |= dict(zip(new, states[len(rest) :], strict=True))
        output = output.logits[0]
        first = max(len(rest) - 1, 0)
        logits = output[first:].clone() if first else output  # not all of a long prompt
        asked = [(), *new] if rest else new
        self._logits |= dict(zip(asked, logits, strict=True))
        self._read, self._nodes, self.cache = text, nodes, cache

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._model.config)

    def _width(self, held: int) -> int:
        """Length of keys and values in a cache that holds so many tokens."""
        return held

    def _placed(self, start: int, stop: int) -> dict[str, Any]:
        """Arguments that say where keys and values go, if the cache does not know."""
        return {}

    def _forget(self, count: int) -> None:
        if count > 0:
            self._crop(count)

    def _crop(self, count: int) -> None:
        """Remove so many tokens from the end of the cache."""
        self.cache.crop(-count)


class CachedPaths(TreeReader):
    """Pass over the paths of the tree as a batch, each after a copy of the text's cache.

    Nothing is ever taken out of a cache: it is copied for the drafts, and made anew for a text
    that does not prolong the last one.
    """

    how = "path by path in a batch"

    def __init__(self, model: Any, room: int = 1) -> None:
        super().__init__(model, room)
        self._last: Any = None  # logits after the text

    def logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        import torch

        self._read_text(list(ids))
        rows, where = _as_batch(continuations)
        if not rows[0]:
            return self._last.expand(len(continuations), -1)
        cache = copy.deepcopy(self.cache)
        cache.reorder_cache(torch.zeros(len(rows), dtype=torch.long, device=self._device))
        output, _ = self._pass(rows, cache)
        return torch.stack(
            [output[where[path]] if path else self._last[0] for path in continuations]
        )

    def _read_text(self, ids: list[int]) -> None:
        known = len(self._read)
        if ids == self._read:
            return
        if self.cache is None or ids[:known] != self._read:
            self.cache, known = None, 0
        self._read = []  # should the pass be interrupted
        output, self.cache = self._pass([ids[known:]], self.cache)
        self._last = output[:, -1]
        self._read = ids

    def _pass(self, rows: Sequence[Sequence[int]], cache: Any) -> tuple[Any, Any]:
        past = {} if cache is None else {self._cache_name: cache}
        output = self._model(self._ids(rows), use_cache=True, **past)
        return output.logits, cache_of(output)


class WholePaths(TreeReader):
    """Pass over the text with each path of the tree after it, as a batch, without a cache."""

    how = "path by path in a batch, each with the whole text"

    def logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        import torch

        rows, where = _as_batch(continuations)
        output = self._model(self._ids([[*ids, *row] for row in rows]), use_cache=False).logits
        places = [(where[path][0], len(ids) + where[path][1]) for path in continuations]
        return torch.stack([output[place] for place in places])


#: All ways, from the fastest to the one that needs least of a model.
READERS: tuple[type[TreeReader], ...] = (TreePass, CachedPaths, WholePaths)


def with_ancestors(continuations: Sequence[Text]) -> list[Text]:
    """All continuations and their beginnings, shorter ones first."""
    nodes = {tokens[:n] for tokens in continuations for n in range(1, len(tokens) + 1)}
    return sorted(nodes, key=lambda tokens: (len(tokens), tokens))


def _as_batch(continuations: Sequence[Text]) -> tuple[list[list[int]], dict[Text, tuple[int, int]]]:
    """Rows of one length that begin with all continuations, and where each of these ends.

    One row is empty where nothing else is asked for. Tokens after the end of a path are not seen
    from it.
    """
    inner = {tokens[:n] for tokens in continuations for n in range(len(tokens))}
    paths = sorted({tokens for tokens in continuations if tokens and tokens not in inner}) or [()]
    longest = max(map(len, paths))
    rows = [[*path, *[0] * (longest - len(path))] for path in paths]
    where = {path[:n]: (i, n - 1) for i, path in enumerate(paths) for n in range(len(path) + 1)}
    return rows, where


class StaticTreePass(TreePass):
    """Same as `TreePass` with a `StaticCache` of the transformers library.

    A cache that text and drafts outgrow is made anew, with twice the room, and both are read again.
    Layers with a window hold only what they still see, so that no draft can be taken back: the
    first pass raises `NotImplementedError`.
    """

    how = "as a tree in one pass with a static cache"

    def _pass(self, rest: list[int], new: list[Text]) -> None:
        held = len(self._read) + len(rest) + len(self._nodes) + len(new)
        if held > self._room:
            rest, new = self._read + rest, [*self._nodes, *new]
            self._start_anew()
            self.cache = None
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
        """Arguments that say where keys and values go, for versions whose caches do not count."""
        import torch

        if "cache_position" not in inspect.signature(type(self._model).forward).parameters:
            return {}
        return {"cache_position": torch.arange(start, stop, device=self._device)}

    def _crop(self, count: int) -> None:
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.sub_(count)


def shortest_window(config: Any) -> int | None:
    """Number of tokens that the layer with the shortest view attends to; None if all see the text.

    A shorter text is read alike with and without windows.
    """
    config = config.get_text_config()
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    known = [int(size) for size in sizes if size]  # 0: windows are switched off
    return min(known, default=None)
