"""Draft objects as models of whole texts, which the target has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.decoding.draft_objects import token_ids_of, unfit
from mdsd_opt.decoding.models.loading import LoadedModel
from mdsd_opt.decoding.models.tree_pass import TreeModel


class ReadDraft:
    """What a draft says after each token of a text, as while it decodes: for captures.

    Where it reads the target's hidden states, it is told those of all tokens but the last; after a
    text of one token, where it would not be asked yet, it says nothing: all its tokens are alike.
    """

    def __init__(self, target: LoadedModel, draft: Any, name: str) -> None:
        self.vocab_size, self.context_length = target.vocab_size, target.context_length
        self.identity = {"model": name}
        self._target, self._draft, self._token_ids = target, draft, token_ids_of(draft)

    def logits(self, ids: Sequence[int], rows: Sequence[int]) -> NDArray[Any]:
        """Logits after each of the prefixes that end at `rows`, ascending; [len(rows), V]."""
        draft, states, told = self._draft, self._states(ids), 0
        if hasattr(draft, "begin"):
            draft.begin()
        found = np.full((len(rows), self.vocab_size), -np.inf, np.float32)
        for n, row in enumerate(rows):
            if states is not None and row > told:
                draft.read(tuple(ids[told:row]), states[told:row])
                told = row
            if states is not None and not told:
                own = np.zeros(self.vocab_size if self._token_ids is None else len(self._token_ids))
            else:
                (own,) = to_numpy(draft.tree_logits(ids[: row + 1], [()]), "logits")
            self._put(found[n], own)
        return found

    def _states(self, ids: Sequence[int]) -> Any:
        """Hidden states of all tokens, [len(ids), F]; None where nobody reads them."""
        if not hasattr(self._draft, "read"):
            return None
        model = TreeModel(self._target)
        model.keep_hidden_states(tuple(getattr(self._draft, "features", ())))
        model.tree_tensor(list(ids), [()])
        return model.hidden_states(list(ids))

    def _put(self, row: NDArray[Any], own: NDArray[Any]) -> None:
        ids = np.arange(row.size) if self._token_ids is None else self._token_ids
        if own.size != ids.size or ids.max() >= row.size:
            raise unfit(own.size, ids, row.size)
        row[ids] = own
