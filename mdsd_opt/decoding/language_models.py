"""Logits after many continuations of one text, from any kind of model, and a draft by lookup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Text
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.checked import check_counts
from mdsd_opt.errors import InvalidInput

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
