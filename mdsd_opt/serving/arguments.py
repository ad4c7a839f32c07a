"""The door of the tree operations: tensors of an engine, checked by shape and type alone.

Nothing here looks at a value, which would wait for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdsd_opt.errors import InvalidInput


@dataclass(frozen=True, slots=True, eq=False)
class DraftTrees:
    """Trees of a batch, [bs, N]: node 0 is the root, -1 is no node.

    `index` is where a node stands in `predicts`, `first_child` and `next_sibling` are nodes of the
    same request.
    """

    tokens: Any
    index: Any
    first_child: Any
    next_sibling: Any


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Where decisions are written: predicts [bs N], accept_index [bs, S], accept_token_num [bs]."""

    predicts: Any
    accept_index: Any
    accept_token_num: Any


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """What is drawn from what.

    `target`, [bs, N, V], is the law after every node and `drafts`, [R, V], hold the laws of sampled
    children. `rows`, [bs, N], says of a child which row of `drafts` it was drawn from, -1 where it
    is certain; without it, the children of node i of request b have row b N + i.
    """

    target: Any
    drafts: Any
    rows: Any | None


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """From which p a child is taken anyway, and by what p is divided; 1 and 1 lose nothing."""

    single: float = 1.0
    acc: float = 1.0


def checked_trees(candidates: Any, index: Any, first_child: Any, next_sibling: Any) -> DraftTrees:
    """The trees; `InvalidInput` unless all four are int64 [bs, N] on one device."""
    if getattr(candidates, "ndim", 0) != 2 or 0 in candidates.shape:
        raise InvalidInput(
            f"candidates have shape {_shape(candidates)}; pass a tensor [bs, N] of token ids, "
            "column 0 of which is the root"
        )
    like = (tuple(candidates.shape), "int64", candidates.device)
    for name, tensor in {
        "candidates": candidates,
        "retrive_index": index,
        "retrive_next_token": first_child,
        "retrive_next_sibling": next_sibling,
    }.items():
        require(name, tensor, *like)
    return DraftTrees(candidates, index, first_child, next_sibling)


def checked_outputs(trees: DraftTrees, predicts: Any, accept_index: Any, num: Any) -> Outputs:
    """The outputs; `InvalidInput` unless they are int32 and as large as the trees ask for."""
    (bs, num_nodes), device = trees.tokens.shape, trees.tokens.device
    depth = accept_index.shape[1] if getattr(accept_index, "ndim", 0) == 2 else 1
    require("predicts", predicts, (bs * num_nodes,), "int32", device)
    require("accept_index", accept_index, (bs, max(depth, 1)), "int32", device)
    require("accept_token_num", num, (bs,), "int32", device)
    return Outputs(predicts, accept_index, num)


def checked_laws(trees: DraftTrees, target: Any, drafts: Any, rows: Any | None) -> Laws:
    """The laws; `InvalidInput` unless they are float32 of one vocabulary."""
    (bs, num_nodes), device = trees.tokens.shape, trees.tokens.device
    vocab_size = target.shape[-1] if getattr(target, "ndim", 0) == 3 else 1
    require("target_probs", target, (bs, num_nodes, max(vocab_size, 1)), "float32", device)
    if rows is None:
        require("draft_probs", drafts, tuple(target.shape), "float32", device)
        return Laws(target, drafts.view(bs * num_nodes, vocab_size), None)
    num_rows = drafts.shape[0] if getattr(drafts, "ndim", 0) == 2 else 1
    require("draft_probs", drafts, (max(num_rows, 1), vocab_size), "float32", device)
    require("draft_rows", rows, (bs, num_nodes), "int64", device)
    return Laws(target, drafts, rows)


def checked_thresholds(single: float, acc: float) -> Thresholds:
    """The thresholds; `InvalidInput` outside [0, 1]."""
    for name, value in {"threshold_single": single, "threshold_acc": acc}.items():
        if not 0.0 <= value <= 1.0:
            raise InvalidInput(f"{name} is {value}; it lies in [0, 1], and 1 is lossless")
    return Thresholds(float(single), max(float(acc), 1e-9))


def require(name: str, tensor: Any, shape: tuple[int, ...], dtype: str, device: Any) -> None:
    """`InvalidInput` unless a tensor is what the operation reads, laid out in order."""
    wanted = f"{dtype} {list(shape)} on {device}"
    if not hasattr(tensor, "is_contiguous"):
        raise InvalidInput(f"{name} is of {type(tensor).__name__}; pass a torch tensor: {wanted}")
    given = str(tensor.dtype).removeprefix("torch.")
    if tuple(tensor.shape) != shape or given != dtype or tensor.device != device:
        raise InvalidInput(
            f"{name} is {given} {_shape(tensor)} on {tensor.device}; pass {wanted}, "
            "as candidates and target_probs have it"
        )
    if not tensor.is_contiguous():
        raise InvalidInput(f"{name} is not contiguous; pass {name}.contiguous()")


def _shape(tensor: Any) -> list[int]:
    return list(getattr(tensor, "shape", ()))
