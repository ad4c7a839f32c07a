"""Draft objects as models of whole texts, which the target has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.decoding.draft_objects import spread, token_ids_of
from mdsd_opt.decoding.models.loading import LoadedModel
from mdsd_opt.decoding.models.tree_pass import TreeModel


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

        draft, states, told = self._draft, self._states(ids), 0
        if hasattr(draft, "begin"):
            draft.begin()
        found = np.empty((len(rows), self.vocab_size), np.float32)
        for n, row in enumerate(rows):
            if states is not None and row > told:
                draft.read(tuple(ids[told:row]), states[told:row])
                told = row
            if states is not None and not told:
                own = torch.zeros(1, self._token_ids.size)
            else:
                own = torch.as_tensor(draft.tree_logits(ids[: row + 1], [()]))
            found[n] = to_numpy(spread(own, self._token_ids, self.vocab_size))[0]
        return found

    def _states(self, ids: Sequence[int]) -> Any:
        """Hidden states of all tokens, [len(ids), F]; None if the draft does not read them."""
        if not hasattr(self._draft, "read"):
            return None
        model = TreeModel(self._target)
        model.keep_hidden_states(tuple(getattr(self._draft, "features", ())))
        model.tree_tensor(list(ids), [()])
        return model.hidden_states(list(ids))
