"""Logits of a causal language model over a tree of continuations, with a cache of the text.

Which way of reading a tree gives what plain passes of the model give is tried out, once a model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Text, to_numpy
from mdsd_opt.decoding.loading import LoadedModel, num_logits
from mdsd_opt.decoding.passes import (
    READERS,
    StaticTreePass,
    TreePass,
    TreeReader,
    shortest_window,
    with_ancestors,
)
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import PromisedToken

#: Number of drafts that a static cache has room for after the text.
_USUAL_DRAFTS = 128


class TreeModel:
    """Logits after many continuations of a text, in one pass if the model can do that.

    At the first call some trees are held against plain passes. A model that does not read them
    in one pass, by its masks, positions, windows or recurrent layers, scores them path by path in
    a batch, after a warning that says so. What has been read of a text is kept between calls.

    Parameters
    ----------
    loaded : LoadedModel
    vocab_size : int, optional
        Logits to give: more than the model has are -inf, those beyond are left out, and it reads
        its last token for one that it does not have. A draft gets the target's where the two pad
        the same vocabulary differently.
    static_length : int, optional
        Keep keys and values in a static cache, with room for so many tokens of text and 128 drafts;
        it is made anew, larger, when it is outgrown. By default the cache grows.
    """

    def __init__(
        self, loaded: LoadedModel, vocab_size: int | None = None, static_length: int | None = None
    ) -> None:
        self.loaded = loaded
        self._static_length = static_length
        self._vocab_size = vocab_size
        self._readers: dict[type[TreeReader], TreeReader] = {}
        self._layers: tuple[int, ...] = ()

    @property
    def context_length(self) -> int | None:
        """Number of tokens the model may read, if its configuration says so."""
        return self.loaded.context_length

    @property
    def device(self) -> Any:
        """Device of the logits."""
        return self.loaded.model.device

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> NDArray[Any]:
        """Logits of the next token after `ids` and each continuation, [n, V].

        Raises
        ------
        InvalidInput
            An empty text; no way to read trees gives what plain passes of the model give.
        """
        return to_numpy(self.tree_tensor(ids, continuations))

    def tree_tensor(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        """Tensor of `tree_logits` on the model's device."""
        import torch

        if not ids:
            raise InvalidInput("the text is empty: a model needs at least one token")
        ids = self._known(ids)
        asked = [self._known(tokens) for tokens in continuations]
        length = len(ids) + len(with_ancestors(asked))
        model, static = self.loaded.model, self._static_length is not None
        chosen = reader_class(model, self.loaded.name, length, static)
        if chosen not in self._readers:
            room = (self._static_length or 0) + _USUAL_DRAFTS
            self._readers = {chosen: chosen(model, room)}
            self._readers[chosen].keep_hidden_states(self._layers)
        with torch.inference_mode():
            logits = self._readers[chosen].logits(ids, asked)
        if self._vocab_size is None or logits.shape[-1] == self._vocab_size:
            return logits
        missing = self._vocab_size - logits.shape[-1]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)

    def keep_hidden_states(self, layers: Sequence[int]) -> None:
        """Keep the hidden states of these layers from now on, see `hidden_states`.

        Raises
        ------
        InvalidInput
            A layer that the model does not have.
        """
        last = int(self.loaded.model.config.get_text_config().num_hidden_layers)
        if not all(layer in range(last + 1) for layer in layers):
            raise InvalidInput(
                f"features of the draft are {tuple(layers)}: give layers of "
                f"{self.loaded.name}, from 0, the embedding, to {last}"
            )
        if tuple(layers) != self._layers:
            self._layers, self._readers = tuple(layers), {}  # what has been read is read again

    def hidden_states(self, ids: Sequence[int], start: int = 0) -> Any:
        """Hidden states of the text's tokens from one on, as far as it has been read; [m, F].

        Those of the layers that are kept, side by side, at every token of the text that the last
        call of `tree_logits` was for and of its accepted drafts.
        """
        reader = next(iter(self._readers.values()), None)
        if reader is None:
            raise InvalidInput("nothing has been read yet: ask for logits first")
        return reader.hidden_states(list(self._known(ids)), start)

    def _known(self, tokens: Sequence[Any]) -> Text:
        if self._vocab_size is None:
            return tuple(tokens)
        last = self.loaded.vocab_size - 1
        # its own draws are in its vocabulary
        capped: Any = (
            token if isinstance(token, PromisedToken) else min(token, last) for token in tokens
        )
        return tuple(capped)


#: Relative distances of logits, by number type, that are attributed to rounding: the norm of the
#: difference by the norm of the logits' variation. Thirty layers in bfloat16 come to 0.11. With
#: wrong masks or positions the trees of the check, with a node after many that it must not see,
#: give far more.
_TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 0.03, "bfloat16": 0.2}

_TEXT = 12  # tokens of the check's text
_BRANCHES = 12  # drafts that a token of the tree must not see
_MOST_READ = 32  # tokens that the check keeps of text and tree at once, at most

#: Errors that a model raises on masks, positions or caches that it does not take.
_FAILURES = (
    TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError,
    AssertionError,
)  # fmt: skip

#: Of each model its `shortest_window`, which is slow to read in every step, and its readers, by
#: whether there is as much to read as the window holds, and by whether a static cache is wanted.
_checked_models: WeakKeyDictionary[
    Any, tuple[int | None, dict[tuple[bool, bool], type[TreeReader]]]
] = WeakKeyDictionary()


class PathByPath(UserWarning):
    """Drafts are scored in a slower way than was tried first, which the model does not take."""


def reader_class(model: Any, name: str, length: int, static: bool = False) -> type[TreeReader]:
    """Fastest way that gives this model's own logits; each model is checked once.

    Once more, where its layers attend to a window of the text, when text and drafts, of so many
    tokens that a cache holds at once, are as long. A static cache is tried first if it is wanted.
    Raises `InvalidInput` where no way gives what plain passes give.
    """
    if model not in _checked_models:
        _checked_models[model] = shortest_window(model.config), {}
    window, known = _checked_models[model]
    beyond = window is not None and max(length, _MOST_READ) >= window
    if (beyond, static) not in known:
        readers: list[type[TreeReader]] = [*([StaticTreePass] if static else []), *READERS]
        known[beyond, static] = _checked(model, name, window if beyond else None, readers)
    return known[beyond, static]


def _checked(
    model: Any, name: str, window: int | None, readers: Sequence[type[TreeReader]]
) -> type[TreeReader]:
    for reader in readers:
        if agrees(model, reader, window):
            if reader is not readers[0]:
                longer = "" if window is None else f" once it has {window:,} tokens"
                warnings.warn(
                    f"{name} does not read drafts {readers[0].how}{longer}: they are scored "
                    f"{reader.how}",
                    PathByPath,
                    stacklevel=2,
                )
            return reader
    if _gives_nan(model):
        raise InvalidInput(
            f"{name} gives logits that are NaN: its weights are damaged, or too large for "
            f"{model.dtype}; try another precision"
        )
    raise InvalidInput(
        f"{name} cannot score drafts: neither as a tree nor path by path in a batch does it give "
        "the logits of its plain passes, so that the text would not follow the model"
    )


def agrees(model: Any, reader: type[TreeReader], window: int | None) -> bool:
    """Whether some trees after a text that grows, and then changes, get the plain logits."""
    import torch

    if issubclass(reader, TreePass) and model.config._attn_implementation == "flex_attention":
        return False  # compiled for a CPU it writes beyond its memory when it gets a mask of a tree

    rng = np.random.default_rng(0)
    size = num_logits(model)
    tokens = rng.integers(size, size=_TEXT + 2 if window is None else window + 2).tolist()
    branches = list(dict.fromkeys(rng.integers(size, size=_BRANCHES).tolist()))
    first, last = branches[0], branches[-1]
    tree: list[Text] = [(), *((token,) for token in branches), (first, last), (last, first)]
    tree.append((last, first, last))
    few: list[Text] = [(), (last,), (last, first)]
    text = tokens[:-2]
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what is only tried
            tried = reader(model)
            return all(
                _same(tried.logits(ids, paths), _plain(model, ids, paths))
                for ids, paths in (
                    (text, few[:1]),
                    (text, tree),
                    (text, few),
                    ([*text, last, first, first], few),
                    (tokens, few),
                    ([*tokens[:-4], first], few),
                )
            )
    except _FAILURES:
        return False


def _gives_nan(model: Any) -> bool:
    import torch

    try:
        with torch.inference_mode():
            return bool(_plain(model, _TEXT * [0], [()]).isnan().any())
    except _FAILURES:
        return False


def _plain(model: Any, ids: list[int], paths: list[Text]) -> Any:
    """Logits after each path by a pass of its own, without masks, positions and caches."""
    import torch

    rows = []
    for path in paths:
        text = torch.as_tensor([[*ids, *path]], device=model.device)
        rows.append(model(text, use_cache=False).logits[0, -1])
    return torch.stack(rows)


def _same(logits: Any, plain: Any) -> bool:
    import torch

    numbers = torch.finfo(plain.dtype)
    logits, plain = (x.double() for x in (logits, plain))
    if logits.shape != plain.shape:
        return False
    varying = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1)
    distance = (logits - plain).norm(dim=-1) / varying.clamp(min=1e-30)
    # coarse numbers may choose other experts at a row or two
    share = distance.max() if numbers.bits > 16 else distance.median()
    return bool(share <= _TOLERANCE[numbers.dtype])
