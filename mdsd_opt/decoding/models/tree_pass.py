"""Logits of a causal language model over a tree of continuations, with a cache of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from mdsd_opt.decoding.device_laws.transfers import PromisedToken
from mdsd_opt.decoding.models.loading import LoadedModel, to_numpy_array
from mdsd_opt.decoding.models.passes import Tokens, TreeReader, with_ancestors
from mdsd_opt.errors import InvalidInput

#: Drafts that a static cache has room for behind the text.
_USUAL_DRAFTS = 128


class TreeModel:
    """Logits after many continuations of a text, in one pass where the model can do that.

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

    @property
    def context_length(self) -> int | None:
        """Tokens the model may read, if its configuration says so."""
        return self.loaded.context_length

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Tokens]) -> NDArray[Any]:
        """Logits of the next token after `ids` and each continuation, [n, V].

        Raises
        ------
        InvalidInput
            An empty text; no way to read trees gives what plain passes of the model give.
        """
        return to_numpy_array(self.tree_tensor(ids, continuations))

    def tree_tensor(self, ids: Sequence[int], continuations: Sequence[Tokens]) -> Any:
        """`tree_logits` as a tensor on the model's device."""
        import torch

        from mdsd_opt.decoding.models.self_check import reader_class

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
        with torch.inference_mode():
            found = self._readers[chosen].logits(ids, asked)
        if self._vocab_size is None or found.shape[-1] == self._vocab_size:
            return found
        missing = self._vocab_size - found.shape[-1]
        return torch.nn.functional.pad(found, (0, missing), value=-torch.inf)

    def _known(self, tokens: Sequence[Any]) -> Tokens:
        if self._vocab_size is None:
            return tuple(tokens)
        last = self.loaded.vocab_size - 1
        # what it has drawn itself it has
        capped: Any = (
            token if isinstance(token, PromisedToken) else min(token, last) for token in tokens
        )
        return tuple(capped)
