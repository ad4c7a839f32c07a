"""Children of nodes as arrays, in the order of siblings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdsd_opt.serving.arguments import DraftTrees, Laws


@dataclass(frozen=True, slots=True, eq=False)
class Children:
    """Children of one node per request, [bs, C]; where `exists` is false there is none."""

    nodes: Any
    exists: Any
    tokens: Any
    rows: Any  # of drafts, -1 where certain


def all_children(trees: DraftTrees) -> Any:
    """Children of every node, [bs, N, C], with -1 after the last."""
    import torch

    found, child = [], trees.first_child
    for _ in range(max(trees.tokens.shape[1] - 1, 1)):
        found.append(child)
        sibling = trees.next_sibling.gather(1, child.clamp(min=0))
        child = torch.where(child >= 0, sibling, -1)
    return torch.stack(found, -1)


def children_of(node: Any, children: Any, trees: DraftTrees, laws: Laws) -> Children:
    """Children of one node per request, `node` of shape [bs]."""
    import torch

    bs, num_nodes = trees.tokens.shape
    request = torch.arange(bs, device=node.device)
    nodes = children[request, node]
    exists = nodes >= 0
    tokens = trees.tokens.gather(1, nodes.clamp(min=0))
    if laws.rows is None:
        rows = (request * num_nodes + node)[:, None].expand_as(nodes)
    else:
        rows = laws.rows.gather(1, nodes.clamp(min=0))
    return Children(nodes, exists, tokens, torch.where(exists, rows, -1))
