"""Language models and drafts of any kind: what is asked of them, and a draft by lookup.

A model gives logits after many continuations of one text. A draft may be no model: a head over the
target's hidden states, or one with a small vocabulary. It is any object with a method
``tree_logits(ids, continuations)``, and may have, too,

token_ids : sequence of int
    The target's tokens that its logits are of, in their order: logits are [n, len(token_ids)], and
    the others are never drafted. A law with zeros is a law like any other: rules stay lossless.
read : callable
    ``read(tokens, features)`` is told the text as the target reads it: the tokens it was not told
    of yet, and the target's hidden states there, [len(tokens), F]. The last token of a text is one
    that the target has not read. A text's first step has no drafts, so that the prompt is read by
    the target alone, once.
features : sequence of int
    Numbers of the hidden states, side by side: 0 is the embedding, n what layer n has made, as in
    the ``hidden_states`` of the transformers library.
begin : callable
    ``begin()`` is called before the first `read` of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Text, to_numpy
from mdsd_opt.base.checked import check_counts
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.decoding.loading import LoadedModel

#: Maps (text, continuations) to the logits after each, [n, V].
TreeLogits = Callable[[Sequence[int], Sequence[Text]], NDArray[Any]]


def tree_logits(model: Any) -> TreeLogits:
    """Function that gives a model's logits after many continuations.

    Parameters
    ----------
    model : object
        Model with a method ``tree_logits(ids, continuations)``, which may do it in one pass; or
        with ``logits(ids, rows)``, the logits after the prefixes that end at `rows`; or a plain
        function from token ids to the logits of the next token.

    Raises
    ------
    InvalidInput
        None of these.
    """
    if hasattr(model, "tree_logits"):
        return model.tree_logits
    if hasattr(model, "logits"):
        return lambda ids, continuations: _by_paths(model, ids, continuations)
    if callable(model):
        return partial(_by_calls, model)
    raise InvalidInput(
        f"{type(model).__name__} is no model: give a function from token ids to logits, or an "
        "object with a method logits(ids, rows)"
    )


def _by_calls(model: Any, ids: Sequence[int], continuations: Sequence[Text]) -> NDArray[Any]:
    """Logits by one call for each continuation."""
    rows = [to_numpy(model([*ids, *tokens]), "logits") for tokens in continuations]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1 or len(shapes[0]) != 1:
        raise InvalidInput(f"the model gives logits of shapes {shapes}: give (V,) after each text")
    return np.stack(rows)


def _by_paths(model: Any, ids: Sequence[int], continuations: Sequence[Text]) -> NDArray[Any]:
    """Logits by one pass for each continuation that no other one prolongs."""
    if not ids:
        raise InvalidInput("the text is empty: a model needs at least one token")
    logits: dict[Text, Any] = {}
    for path in sorted(continuations, key=len, reverse=True):
        if path in logits:
            continue
        wanted = [path[:n] for n in range(len(path) + 1) if path[:n] not in logits]
        rows = [len(ids) - 1 + len(tokens) for tokens in wanted]
        logits |= dict(zip(wanted, model.logits([*ids, *path], rows), strict=True))
    return np.stack([logits[tokens] for tokens in continuations])


class PromptLookup:
    """Drafts by prompt lookup: certain of the token that followed the text's last tokens before.

    The last occurrence counts, of as many tokens as possible; where none was there before, the last
    token is repeated. A draft that is certain is a draft law like any other: rules stay lossless.
    Trees of it are chains, "chain5" say.

    Parameters
    ----------
    vocab_size : int
        Vocabulary size of the target.
    max_ngram : int
        Most tokens to look up.
    """

    def __init__(self, vocab_size: int, max_ngram: int = 3) -> None:
        check_counts(vocab_size=vocab_size, max_ngram=max_ngram)
        self._vocab_size, self._max_ngram = vocab_size, max_ngram

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> NDArray[Any]:
        """Logits [n, V]: 0 for the token that is certain, -inf for the others."""
        logits = np.full((len(continuations), self._vocab_size), -np.inf)
        for row, tokens in zip(logits, continuations, strict=True):
            row[self._next([*ids, *tokens])] = 0.0
        return logits

    def _next(self, text: list[int]) -> int:
        for size in range(min(self._max_ngram, len(text) - 1), 0, -1):
            wanted = text[-size:]
            for start in range(len(text) - size - 1, -1, -1):
                if text[start : start + size] == wanted:
                    return text[start + size]
        return text[-1]


def token_ids_of(draft: Any) -> Integers | None:
    """Ids of the tokens that a draft has, None for all; `InvalidInput` for what is no ids."""
    raw = getattr(draft, "token_ids", None)
    if raw is None:
        return None
    ids = np.asarray(raw)
    if ids.ndim != 1 or not ids.size or not np.issubdtype(ids.dtype, np.integer):
        raise InvalidInput(
            f"token_ids of the draft are {ids.dtype} of shape {ids.shape}: give token ids in a row"
        )
    if ids.min() < 0 or np.unique(ids).size < ids.size:
        raise InvalidInput("token_ids of the draft are negative or repeat: give different ids")
    return ids.astype(np.int64)


def spread(own: Any, token_ids: Integers | None, vocab_size: int) -> Any:
    """Logits [n, V] from a draft's own [n, len(token_ids)], -inf elsewhere; arrays or tensors.

    `InvalidInput` for rows of another length than the ids, or ids that the target does not have.
    """
    if token_ids is None:
        return own
    if own.shape[-1] != token_ids.size or token_ids.max() >= vocab_size:
        raise InvalidInput(
            f"the draft gives {own.shape[-1]:,} logits for {token_ids.size:,} token_ids up to "
            f"{token_ids.max():,}, and the target has {vocab_size:,} tokens: these must fit"
        )
    if isinstance(own, np.ndarray):
        whole = np.full((len(own), vocab_size), -np.inf, own.dtype)
        whole[:, token_ids] = own
        return whole
    import torch

    whole = own.new_full((len(own), vocab_size), -torch.inf)
    return whole.index_copy_(1, torch.as_tensor(token_ids, device=own.device), own)


class FeatureFeed:
    """Passes the target's hidden states of a text to a draft, as far as it has been read."""

    def __init__(self, target: Any, draft: Any) -> None:
        self.reads = hasattr(draft, "read")
        self.waits = self.reads or token_ids_of(draft) is not None
        if not self.reads:
            return
        if not hasattr(target, "hidden_states"):
            raise InvalidInput(
                f"the draft reads hidden states, and {type(target).__name__} shows none: give a "
                "TreeModel as target"
            )
        self._target, self._draft = target, draft
        self._num_told = self._told_of = 0
        target.keep_hidden_states(tuple(getattr(draft, "features", ())))
        if hasattr(draft, "begin"):
            draft.begin()

    def tell(self, text: Sequence[int]) -> None:
        """Let the draft read what is new, once a step, before it is asked for drafts."""
        if not self.reads or self._told_of == len(text):
            return
        self._told_of = len(text)
        states = self._target.hidden_states(text, self._num_told)
        if len(states):
            known = self._num_told + len(states)
            self._draft.read(tuple(text[self._num_told : known]), states)
            self._num_told = known


class ReadDraft:
    """Laws of a draft object after each token of a text, as while it decodes: for captures.

    Where it reads the target's hidden states, it is told those of all tokens but the last; after a
    text of one token, where it would not be asked yet, it says nothing: all its tokens are alike.
    """

    def __init__(self, target: LoadedModel, draft: Any, name: str) -> None:
        self.vocab_size, self.context_length = target.vocab_size, target.context_length
        self.identity = {"model": name}
        self._target, self._draft = target, draft
        token_ids = token_ids_of(draft)
        self._token_ids = np.arange(self.vocab_size) if token_ids is None else token_ids

    def logits(self, ids: Sequence[int], rows: Sequence[int]) -> NDArray[Any]:
        """Logits after each of the prefixes that end at `rows`, ascending; [len(rows), V]."""
        import torch

        from mdsd_opt.decoding.tree_pass import TreeModel

        model = TreeModel(self._target)
        feed = FeatureFeed(model, self._draft)
        if feed.reads:
            model.tree_tensor(list(ids), [()])
        logits = np.empty((len(rows), self.vocab_size), np.float32)
        for n, row in enumerate(rows):
            feed.tell(ids[:row])
            if feed.reads and row == 0:
                own = torch.zeros(1, self._token_ids.size)
            else:
                own = torch.as_tensor(self._draft.tree_logits(ids[: row + 1], [()]))
            logits[n] = to_numpy(spread(own, self._token_ids, self.vocab_size))[0]
        return logits
