"""Batches of drafted trees as serving engines hold them, and what was decided read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from mdsd_opt.decoding import Node
from mdsd_opt.drafts import GreedyDrafts
from mdsd_opt.serving import verify_tree_of_draws
from mdsd_opt.verifiers import without


@dataclass(frozen=True)
class Served:
    """Trees of one size: arrays [bs, N], laws [bs, N, V]; q is [R, V] where `rows` are given."""

    tokens: Any
    first_child: Any
    next_sibling: Any
    p: Any
    q: Any
    coins: Any
    last_coins: Any
    depth: int
    rows: Any | None = None
    levels: Any | None = None

    def call(self, verify: Callable[..., None], **options: Any) -> list[list[int]]:
        """Texts by an operation with the signature of the engines."""
        (bs, num_nodes), outputs = self.tokens.shape, self.outputs()
        index = torch.arange(bs * num_nodes).view(bs, num_nodes)
        links = [torch.tensor(x) for x in (self.tokens, self.first_child, self.next_sibling)]
        arrays = (self.coins, self.last_coins, self.p, self.q)
        floats = [torch.tensor(np.ascontiguousarray(x, np.float32)) for x in arrays]
        if self.rows is not None:
            options["draft_rows"] = torch.tensor(self.rows)
        if self.levels is not None:
            levels = np.ascontiguousarray(self.levels, np.float32)
            options["uniform_samples_for_selection"] = torch.tensor(levels)
        verify(*outputs, links[0], index, *links[1:], *floats, **options)
        return self.texts(*outputs)

    def outputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What an engine hands over to be written."""
        bs, num_nodes = self.tokens.shape
        predicts = torch.full((bs * num_nodes,), -7, dtype=torch.int32)
        accept_index = torch.full((bs, self.depth), -1, dtype=torch.int32)
        return predicts, accept_index, torch.full((bs,), -7, dtype=torch.int32)

    def texts(self, predicts: Any, accept_index: Any, num: Any) -> list[list[int]]:
        """Accepted tokens and the one behind them; nothing else may have been written."""
        texts = []
        for b, accepted in enumerate(num.tolist()):
            path = accept_index[b, : accepted + 1].tolist()
            assert accept_index[b, accepted + 1 :].eq(-1).all()
            assert path[0] == b * self.tokens.shape[1]
            texts.append([int(predicts[place]) for place in path])
        assert int((predicts != -7).sum()) == sum(map(len, texts))
        return texts

    def shared(self) -> Served:
        """The same with the rows in one heap, backwards, and -1 for what is certain."""
        bs, num_nodes = self.tokens.shape
        rows = np.full((bs, num_nodes), -1)
        for b, node in np.ndindex(bs, num_nodes):
            below = children(self, b, node)
            drawn = [child for child in below if self.q[b, node, self.tokens[b, child]] > 0.0]
            rows[b, drawn] = bs * num_nodes - 1 - (b * num_nodes + node)
        heap = self.q.reshape(bs * num_nodes, -1)[::-1].copy()
        return replace(self, q=heap, rows=rows)


def children(served: Served, request: int, node: int) -> list[int]:
    """Nodes in the order of siblings."""
    found, child = [], int(served.first_child[request, node])
    while child >= 0:
        found.append(child)
        child = int(served.next_sibling[request, child])
    return found


def links_of(parents: list[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node; a parent comes before its children."""
    first, following = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        following[node] = first[parents[node]]
        first[parents[node]] = node
    return first, following


def served(root: Node, coins: Any, last_coin: Any, num_drawn: int = 1) -> Served:
    """A drawn tree as a batch of one; draws that coincide are nodes of their own, leaves.

    Draws without replacement count as certain, but for the last `num_drawn`.
    """
    nodes: list[Node | None] = [root]
    tokens, parents, depths = [0], [-1], [0]
    laws = np.zeros((0, root.target.size))
    p = q = laws
    place = 0
    while place < len(nodes):
        node = nodes[place]
        law, drawn = np.zeros(root.target.size), np.zeros(root.target.size)
        if node is None:
            law[0] = 1.0
        else:
            law = node.target
            if isinstance(node.drafts, GreedyDrafts):
                drawn = node.drafts.last_draw
            elif node.drafts is not None and node.drafts.scheme == "without_replacement":
                drawn = without(node.drafts.q, node.draws[:-num_drawn])
            elif node.drafts is not None and node.drafts.scheme != "top_k":
                drawn = node.drafts.q
            seen: set[int] = set()
            for token in (x for x in node.draws.tolist() if x >= 0):
                nodes.append(None if token in seen else node.children[token])
                tokens.append(token)
                parents.append(place)
                depths.append(depths[place] + 1)
                seen.add(token)
        p, q = np.vstack([p, law]), np.vstack([q, drawn])
        place += 1
    first, following = (np.array([x]) for x in links_of(parents))
    coin_row = np.asarray(coins)[None, : len(nodes)]
    return Served(
        np.array([tokens]), first, following, p[None], q[None], coin_row, np.asarray(last_coin),
        max(depths) + 1,
    )  # fmt: skip


def verifier_of(operation: Callable[..., None], num_drawn: int = 1) -> Callable[..., list[int]]:
    """For audits: the text of a drawn tree, with coins from PyTorch.

    The audit answers all calls of PyTorch; once the coins are drawn there is nothing to answer, and
    the operation runs without it.
    """

    def verify(root: Node, rng: Any) -> list[int]:
        num_nodes = 1 + sum(int((node.draws >= 0).sum()) for node in root.walk())
        coins, last = torch.rand(num_nodes), torch.rand(1)
        levels = torch.rand(num_nodes) if operation is verify_tree_of_draws else None
        with _disable_current_modes():
            tree = served(root, coins.numpy(), last.numpy(), num_drawn)
            if levels is not None:
                tree = replace(tree, levels=levels.numpy()[None])
            options = {"num_drawn": num_drawn} if num_drawn > 1 else {}
            return tree.call(operation, **options)[0]

    return verify
