"""Arguments of the tree operations: tensors of an engine, checked by shape and type alone.

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

    def children(self) -> Any:
        """Children of every node, [bs, N, C], with -1 after the last."""
        import torch

        found, child = [], self.first_child
        for _ in range(max(self.tokens.shape[1] - 1, 1)):
            found.append(child)
            sibling = self.next_sibling.gather(1, child.clamp(min=0))
            child = torch.where(child >= 0, sibling, -1)
        return torch.stack(found, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Tensors for the decisions: predicts [bs N], accept_index [bs, S], accept_token_num [bs]."""

    predicts: Any
    accept_index: Any
    accept_token_num: Any


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """Target and draft laws, and the row of each child.

    `target`, [bs, N, V], is the law after every node and `drafts`, [R, V], hold the laws of sampled
    children. `rows`, [bs, N], says of a child which row of `drafts` it was drawn from, -1 where it
    is certain; without it, the children of node i of request b have row b N + i.
    """

    target: Any
    drafts: Any
    rows: Any | None


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """Value of p from which a child is always taken, and divisor of p; 1 and 1 lose nothing."""

    single: float = 1.0
    acc: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class TreeCall:
    """One call of the operation; coins are float32, [bs, N] for nodes and [bs] for last tokens."""

    outputs: Outputs
    trees: DraftTrees
    laws: Laws
    coins: Any
    last_coins: Any
    thresholds: Thresholds
    num_drawn: int = 1


def checked_call(
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    uniform_samples: Any,
    uniform_samples_for_final_sampling: Any,
    target_probs: Any,
    draft_probs: Any,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    draft_rows: Any | None = None,
    num_drawn: int = 1,
) -> TreeCall:
    """Arguments of `verify_tree`; `InvalidInput` if one does not fit the others."""
    trees = _trees(candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    outputs = _outputs(trees, predicts, accept_index, accept_token_num)
    laws = _laws(trees, target_probs, draft_probs, draft_rows)
    (bs, num_nodes), device = candidates.shape, candidates.device
    _require("uniform_samples", uniform_samples, (bs, num_nodes), "float32", device)
    last_coins = uniform_samples_for_final_sampling
    _require("uniform_samples_for_final_sampling", last_coins, (bs,), "float32", device)
    thresholds = _thresholds(threshold_single, threshold_acc)
    if num_drawn < 1:
        raise InvalidInput(f"num_drawn is {num_drawn}: give the most drawn children of a node")
    return TreeCall(outputs, trees, laws, uniform_samples, last_coins, thresholds, num_drawn)


def checked_levels(call: TreeCall, levels: Any) -> Any:
    """Further coins for every node; `InvalidInput` unless they have the form of the first ones."""
    like = tuple(call.coins.shape), "float32", call.coins.device
    _require("uniform_samples_for_selection", levels, *like)
    return levels


def _trees(candidates: Any, index: Any, first_child: Any, next_sibling: Any) -> DraftTrees:
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
        _require(name, tensor, *like)
    return DraftTrees(candidates, index, first_child, next_sibling)


def _outputs(trees: DraftTrees, predicts: Any, accept_index: Any, num: Any) -> Outputs:
    (bs, num_nodes), device = trees.tokens.shape, trees.tokens.device
    depth = accept_index.shape[1] if getattr(accept_index, "ndim", 0) == 2 else 1
    _require("predicts", predicts, (bs * num_nodes,), "int32", device)
    _require("accept_index", accept_index, (bs, max(depth, 1)), "int32", device)
    _require("accept_token_num", num, (bs,), "int32", device)
    return Outputs(predicts, accept_index, num)


def _laws(trees: DraftTrees, target: Any, drafts: Any, rows: Any | None) -> Laws:
    (bs, num_nodes), device = trees.tokens.shape, trees.tokens.device
    vocab_size = target.shape[-1] if getattr(target, "ndim", 0) == 3 else 1
    _require("target_probs", target, (bs, num_nodes, max(vocab_size, 1)), "float32", device)
    if rows is None:
        _require("draft_probs", drafts, tuple(target.shape), "float32", device)
        return Laws(target, drafts.view(bs * num_nodes, vocab_size), None)
    num_rows = drafts.shape[0] if getattr(drafts, "ndim", 0) == 2 else 1
    _require("draft_probs", drafts, (max(num_rows, 1), vocab_size), "float32", device)
    _require("draft_rows", rows, (bs, num_nodes), "int64", device)
    return Laws(target, drafts, rows)


def _thresholds(single: float, acc: float) -> Thresholds:
    for name, value in {"threshold_single": single, "threshold_acc": acc}.items():
        if not 0.0 <= value <= 1.0:
            raise InvalidInput(f"{name} is {value}; it lies in [0, 1], and 1 is lossless")
    return Thresholds(float(single), max(float(acc), 1e-9))


def _require(name: str, tensor: Any, shape: tuple[int, ...], dtype: str, device: Any) -> None:
    """Raise `InvalidInput` unless a tensor is what the operation reads, laid out in order."""
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
