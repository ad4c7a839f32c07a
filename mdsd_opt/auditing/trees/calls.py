"""A rule for trees of drafts, called kindly, and its answers checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mdsd_opt.auditing.driving.outcomes import Failure
from mdsd_opt.auditing.subject import judged
from mdsd_opt.decoding.draft_tree import Node, Tokens

#: (root, rng) -> the accepted drafts and one more token.
TreeVerify = Callable[[Node, np.random.Generator], Any]


def answered(
    verify: TreeVerify, root: Node, rng: np.random.Generator, vocab_size: int
) -> Tokens | Failure:
    """The tokens of one call, or what is wrong with them."""
    answer = verify(root, rng)
    given: Any = getattr(answer, "tokens", answer)  # an `Accepted` of this package, too
    try:
        items = list(given)
    except TypeError:
        return Failure("not tokens", "", f"gave {given!r}, which is no sequence of token ids")
    if not items:
        return Failure("not tokens", "", "gave no token: there is always one more")
    tokens = []
    for item in items:
        kind, token, message = judged(item, vocab_size)
        if kind:
            return Failure(kind, message, f"gave {message}")
        tokens.append(token)
    node = root
    for n, token in enumerate(tokens[:-1]):
        if token not in node.children:
            accepted = tuple(tokens[: n + 1])
            message = f"gave {tuple(tokens)}, but {accepted} is no path of its drafts"
            return Failure("not a path", message, message)
        node = node.children[token]
    return tuple(tokens)


def described(root: Node) -> str:
    """The drafts of a tree, in one short line."""
    paths = [list(node.tokens) for node in root.walk() if not node.children]
    return f"drafts {', '.join(map(str, paths[:4]))}{', ...' if len(paths) > 4 else ''}"
