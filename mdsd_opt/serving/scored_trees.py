"""Trees of drafts grown level by level and pruned by scores, one at a time: the plain form.

Engines do the same in tensors of a whole batch; what they do is held against this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mdsd_opt.base.arrays import Text
from mdsd_opt.base.checked import check_counts, check_function
from mdsd_opt.errors import InvalidInput
from mdsd_opt.serving.drafting import NodeDrafts, rows_of_children

#: Maps some texts to draft laws, as a tensor [n, V].
ModelOfTexts = Callable[[Sequence[Text]], Any]

#: Maps q after n nodes, [n, V], to their children.
Children = Callable[[Any], NodeDrafts]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredTree:
    """A tree of N nodes as `mdsd_opt.serving.verify_tree` takes it, in a batch of one.

    Attributes
    ----------
    texts : tuple of tuple of int
        The drafts on the way to each node; () for the root.
    candidates, index, next_token, next_sibling : int64, shape (1, N)
        0 stands for the token of the root.
    laws : floating, shape (R, V)
        q' of the nodes that were expanded.
    rows : int64, shape (1, N)
        Index of the one from which a node was drawn, -1 if it is certain.
    """

    texts: tuple[Text, ...]
    candidates: Any
    index: Any
    next_token: Any
    next_sibling: Any
    laws: Any
    rows: Any


class _Drafted(NamedTuple):
    text: Text
    score: float
    parent: int  # its place among all that were drafted, -1 for the root


def draft_tree(model: ModelOfTexts, children: Children, depth: int, num_nodes: int) -> ScoredTree:
    """Tree of the best-scored nodes.

    The K best of each level are expanded, and the N - 1 best of all that were drafted are kept. Of
    equal scores, the first drafted counts more.

    Parameters
    ----------
    model : callable
        Function from texts (tuples of token ids) to the draft's laws, a tensor [n, V].
    children : callable
        Function from laws [n, V] to `NodeDrafts`, such as `greedy_drafts` with K and a way to draw.
    depth : int
        Levels of drafts.
    num_nodes : int
        N, the root included.

    Raises
    ------
    InvalidInput
        Fewer than N - 1 nodes are drafted.
    """
    check_function(model=model, children=children)
    check_counts(depth=depth, num_nodes=num_nodes)
    import torch

    level: list[tuple[int, _Drafted]] = [(-1, _Drafted((), 1.0, -1))]
    drafted: list[_Drafted] = []
    laws, num_drafts = [], 1
    for _ in range(depth):
        drafts = children(model([node.text for _, node in level]))
        laws.append(drafts.laws)
        num_drafts, first = drafts.tokens.shape[1], len(drafted)
        # products in the precision of the scores, as an engine has them
        parents = torch.tensor([node.score for _, node in level], dtype=drafts.scores.dtype)
        scores = (parents[:, None] * drafts.scores.cpu()).tolist()
        drafted += [
            _Drafted((*node.text, token), score, place)
            for (place, node), tokens, of_node in zip(
                level, drafts.tokens.tolist(), scores, strict=True
            )
            for token, score in zip(tokens, of_node, strict=True)
        ]
        # the first level stays in draft order: engines do not sort it
        best = _best(drafted[first:], num_drafts) if first else range(num_drafts)
        level = [(first + place, drafted[first + place]) for place in best]
    if not 1 < num_nodes <= len(drafted) + 1:
        raise InvalidInput(
            f"a tree of {num_nodes} nodes: {depth} levels of {num_drafts} drafts have from 2 to "
            f"{len(drafted) + 1}"
        )
    kept = sorted(_best(drafted, num_nodes - 1))
    node_of = {-1: 0} | {place: node for node, place in enumerate(kept, 1)}
    first_child, sibling = [-1] * num_nodes, [-1] * num_nodes
    for place in reversed(kept):
        node, parent = node_of[place], node_of[drafted[place].parent]
        sibling[node], first_child[parent] = first_child[parent], node
    all_laws = torch.cat(laws)
    device = all_laws.device

    def row(values: Sequence[int]) -> Any:
        return torch.tensor([values], dtype=torch.int64, device=device)

    texts = ((), *(drafted[place].text for place in kept))
    return ScoredTree(
        texts,
        row([0, *(text[-1] for text in texts[1:])]),
        row(range(num_nodes)),
        row(first_child),
        row(sibling),
        all_laws,
        rows_of_children(row(kept), num_drafts, len(all_laws)),
    )


def _best(nodes: list[_Drafted], num: int) -> list[int]:
    """Indices of the best scores, the first of equal ones."""
    return sorted(range(len(nodes)), key=lambda place: -nodes[place].score)[:num]
