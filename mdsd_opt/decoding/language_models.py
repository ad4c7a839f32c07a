"""Laws of the next token after many continuations of one text, from any kind of model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.decoding.draft_tree import Tokens
from mdsd_opt.errors import InvalidInput

#: (text, continuations) -> logits after each, [n, V].
TreeLogits = Callable[[Sequence[int], Sequence[Tokens]], NDArray[Any]]


def tree_logits(model: Any) -> TreeLogits:
    """How to ask a model for the logits after many continuations.

    Parameters
    ----------
    model : object
        With a method ``tree_logits(ids, continuations)``, which may do it in one pass; or with
        ``logits(ids, rows)``, the logits after the prefixes that end at `rows`; or a plain function
        from token ids to the logits of the next token.

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
        return lambda ids, continuations: np.stack(
            [to_numpy(model([*ids, *tokens]), "logits") for tokens in continuations]
        )
    raise InvalidInput(
        f"{type(model).__name__} is no model: give a function from token ids to logits, or an "
        "object with a method logits(ids, rows)"
    )


def _by_paths(model: Any, ids: Sequence[int], continuations: Sequence[Tokens]) -> NDArray[Any]:
    """One pass for each continuation that no other one prolongs."""
    if not ids:
        raise InvalidInput("the text is empty: a model needs at least one token")
    found: dict[Tokens, Any] = {}
    for path in sorted(continuations, key=len, reverse=True):
        if path in found:
            continue
        wanted = [path[:n] for n in range(len(path) + 1) if path[:n] not in found]
        rows = [len(ids) - 1 + len(tokens) for tokens in wanted]
        found |= dict(zip(wanted, model.logits([*ids, *path], rows), strict=True))
    return np.stack([found[tokens] for tokens in continuations])
