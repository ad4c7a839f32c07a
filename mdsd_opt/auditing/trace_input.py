"""What `audit_trace` is given, checked: steps of one token each, or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.trace_rows import ToProbabilities, probabilities_of
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.drafts.by_name import SchemeMaker
from mdsd_opt.errors import InvalidInput

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]


def one_token_a_step(rows: Any, drafts: Any, tokens: Any) -> tuple[Any, Tokens, Tokens]:
    """The arrays of steps that give one token each, checked."""
    if len(rows.shape) != 2 or 0 in rows.shape:
        raise InvalidInput(
            f"target has shape {tuple(rows.shape)}: give one row of probabilities or logits for "
            "each step, shape (N, V), or (N, M + 1, V) where a step gives several tokens"
        )
    size, vocab_size = rows.shape
    emitted = to_numpy(tokens, "tokens")
    if emitted.shape != (size,) or emitted.dtype.kind not in "iu":
        raise InvalidInput(
            f"tokens has shape {emitted.shape} and dtype {emitted.dtype}: give one token id for "
            f"each of the {size} steps"
        )
    _require_in_vocabulary(emitted, 0, vocab_size, "token")
    proposed = to_numpy(drafts, "drafts")
    if proposed.shape == (size, 0):  # none recorded
        proposed = proposed.astype(np.int64)
    if proposed.ndim != 2 or len(proposed) != size or proposed.dtype.kind not in "iu":
        raise InvalidInput(
            f"drafts has shape {proposed.shape} and dtype {proposed.dtype}: give token ids of "
            f"shape ({size}, K), padded with -1"
        )
    _require_in_vocabulary(proposed, -1, vocab_size, "draft")
    return rows, proposed.astype(np.int64), emitted.astype(np.int64)


def _require_in_vocabulary(ids: NDArray[Any], lowest: int, vocab_size: int, name: str) -> None:
    wrong = (ids < lowest) | (ids >= vocab_size)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise InvalidInput(
            f"step {int(place[0])}: {name} {int(ids[tuple(place)])} lies outside "
            f"0..{vocab_size - 1}: is this the vocabulary of the logits?"
        )


class StepTree:
    """Where the drafts of a step hang.

    Parameters
    ----------
    parents : array_like of int, shape (M,), or None
        Draft i is node i + 1, a child of the node ``parents[i]``; node 0 is the root. None for a
        chain.
    num_drafts : int
        M.

    Attributes
    ----------
    children : list of list of int
        Of each node, in draw order.
    depth : int
        Accepted drafts at most.

    Raises
    ------
    InvalidInput
    """

    def __init__(self, parents: Any, num_drafts: int) -> None:
        given = np.arange(num_drafts) if parents is None else to_numpy(parents, "parents")
        fits = given.shape == (num_drafts,) and (given.dtype.kind in "iu" or not num_drafts)
        if not (fits and ((given >= 0) & (given <= np.arange(num_drafts))).all()):
            raise InvalidInput(
                f"parents is {given.tolist()}: give the node of each of the {num_drafts} drafts "
                "after which it was drawn, 0 for the root and i + 1 for draft i, which comes first"
            )
        self.children: list[list[int]] = [[] for _ in range(num_drafts + 1)]
        levels = [0]
        for node, parent in enumerate(given.tolist(), start=1):
            self.children[parent].append(node)
            levels.append(levels[parent] + 1)
        self.depth = max(levels)

    def drafts_after(self, node: int, drafts: Tokens) -> Tokens:
        """Columns of the drafts (..., M) that were drawn after a node; none if none are known."""
        if not drafts.shape[-1]:
            return drafts
        return drafts[..., [child - 1 for child in self.children[node]]]

    def path(self, drafts: Tokens, accepted: Sequence[int]) -> list[int] | None:
        """The nodes from the root on along accepted drafts; None if they are no path.

        A token that was drawn several times is several nodes; any of them may go on.
        """
        reached, path = [0], [0]
        for token in accepted:
            reached = [c for node in reached for c in self.children[node] if drafts[c - 1] == token]
            if not reached:
                return None
            path.append(reached[0])
        return path


@dataclass(frozen=True, slots=True, eq=False)
class SeveralTokens:
    """Steps that give several tokens each.

    Attributes
    ----------
    tree : StepTree
    target : array_like, shape (N, M + 1, V)
    draft_law : array_like of the same shape, or None
    drafts : ndarray of int64, shape (N, M)
    tokens : ndarray of int64, shape (N, L)
    of_target, of_draft : callable
        From a recorded row to probabilities.
    make : callable
        From a law and a number of drafts to their scheme.
    """

    tree: StepTree
    target: Any
    draft_law: Any
    drafts: Tokens
    tokens: Tokens
    of_target: ToProbabilities
    of_draft: ToProbabilities
    make: SchemeMaker

    @property
    def first(self) -> tuple[Any, Any, Tokens, Tokens]:
        """Target, draft law, drafts and tokens of what each step gives first."""
        draft_law = None if self.draft_law is None else self.draft_law[:, 0]
        drafts = self.tree.drafts_after(0, self.drafts)
        return self.target[:, 0], draft_law, drafts, self.tokens[:, 0]

    def law(self, n: int, node: int) -> Vector:
        """p at a node of a step."""
        return probabilities_of(
            self.target[n][node], self.of_target, f"target row {node} of step {n}"
        )

    def scheme(self, n: int, node: int) -> DraftScheme | None:
        """How the drafts after a node were drawn; None if there are none, or it is not known."""
        row = self.tree.drafts_after(node, self.drafts[n])
        if self.draft_law is None or not (row >= 0).any():
            return None
        name = f"draft row {node} of step {n}"
        return self.make(probabilities_of(self.draft_law[n][node], self.of_draft, name), row.size)


def several_tokens_a_step(
    rows: Any,
    draft_law: Any,
    drafts: Any,
    tokens: Any,
    parents: Any,
    laws: tuple[ToProbabilities, ToProbabilities],
    make: SchemeMaker,
) -> SeveralTokens:
    """The arrays of steps that give several tokens, checked."""
    size, num_nodes, vocab_size = rows.shape
    if 0 in rows.shape:
        raise InvalidInput(f"target has shape {tuple(rows.shape)}: there is nothing to audit")
    proposed, emitted = to_numpy(drafts, "drafts"), to_numpy(tokens, "tokens")
    known = proposed.shape != (size, 0)
    if not known:
        proposed = proposed.astype(np.int64)
    if proposed.shape not in ((size, num_nodes - 1), (size, 0)) or proposed.dtype.kind not in "iu":
        raise InvalidInput(
            f"drafts has shape {proposed.shape} and dtype {proposed.dtype}: target has "
            f"{num_nodes} rows a step, for the root and after each draft, so give token ids of "
            f"shape ({size}, {num_nodes - 1}), padded with -1, or ({size}, 0) if they were not "
            "recorded"
        )
    tree = StepTree(parents, num_nodes - 1)
    most = tree.depth + 1
    given = emitted if emitted.ndim == 2 and emitted.dtype.kind in "iu" else np.empty((0, 0), int)
    if len(given) != size or not 1 <= given.shape[1] <= most:
        raise InvalidInput(
            f"tokens has shape {emitted.shape} and dtype {emitted.dtype}: give the accepted drafts "
            f"of each of the {size} steps and one more token, up to {most}, padded with -1"
        )
    _require_in_vocabulary(given, -1, vocab_size, "token")
    _require_in_vocabulary(proposed, -1, vocab_size, "draft")
    absent = given < 0
    gaps = np.flatnonzero(absent[:, 0] | (absent[:, :-1] & ~absent[:, 1:]).any(axis=1))
    if gaps.size:
        raise InvalidInput(
            f"step {gaps[0]}: tokens {given[gaps[0]].tolist()} have -1 before a token: pad at the "
            "end, after one token at least"
        )
    if draft_law is not None and tuple(getattr(draft_law, "shape", ())) != tuple(rows.shape):
        raise InvalidInput(
            f"draft_law has shape {tuple(getattr(draft_law, 'shape', ()))}: give an array of the "
            f"shape of the target, {tuple(rows.shape)}, or None"
        )
    return SeveralTokens(
        tree,
        rows,
        draft_law if known else None,
        proposed.astype(np.int64),
        given.astype(np.int64),
        *laws,
        make,
    )
