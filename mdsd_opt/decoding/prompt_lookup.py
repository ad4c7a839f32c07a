"""A draft model that costs nothing: it repeats what followed the same tokens in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.draft_tree import Tokens
from mdsd_opt.errors import InvalidInput


class PromptLookup:
    """Drafts by prompt lookup: certain of the token that followed the text's last tokens before.

    The last occurrence counts, of as many tokens as possible; where none was there before, the last
    token is repeated. A draft that is certain is a draft law like any other: rules stay lossless.
    Trees of it are chains, "chain5" say.

    Parameters
    ----------
    vocab_size : int
        Of the target.
    max_ngram : int
        Most tokens to look up.
    """

    def __init__(self, vocab_size: int, max_ngram: int = 3) -> None:
        if vocab_size < 1 or max_ngram < 1:
            raise InvalidInput(
                f"vocab_size is {vocab_size} and max_ngram {max_ngram}: give at least 1"
            )
        self._vocab_size, self._max_ngram = vocab_size, max_ngram

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Tokens]) -> NDArray[Any]:
        """0 for the token it is certain of, -inf for the others; [n, V]."""
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
