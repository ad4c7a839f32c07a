"""Greedy drafts, and trees pruned by their scores: the law of whole texts, draw by draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support import enumerated_trees
from support.enumerated_trees import Asked, every_draw

from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.errors import InvalidInput
from mdsd_opt.serving import NodeDrafts, draft_tree, greedy_drafts, rows_of_children

Children = Callable[[Any, Any], NodeDrafts]


def first(laws: Any) -> Any:
    """The first token that could be drawn."""
    return (laws > 0).int().argmax(1)


def tempted(probs: Any, draw: Any, num_drafts: int = 2) -> NodeDrafts:
    """A drawn child in every node that has one."""
    return greedy_drafts(probs, num_drafts, draw, disagreement=0.0)


def by_own_q(probs: Any, draw: Any, num_drafts: int = 2) -> NodeDrafts:
    """The control: a drawn child is scored by its own probability."""
    drafts = tempted(probs, draw, num_drafts)
    return replace(drafts, scores=probs.gather(1, drafts.tokens).clamp(max=1 - 2.0**-23))


def distance(children: Children, models: tuple[Any, Any], shape: tuple[int, int], v: int) -> float:
    """Total variation between the law of texts, over all draws, and the target's."""
    target, draft = models
    depth, num_nodes = shape

    def model(texts: Any) -> Any:
        return torch.tensor(np.stack([draft(text) for text in texts]))

    def asked(draw: Any) -> Asked:
        tree = draft_tree(model, lambda q: children(q, draw), depth, num_nodes)
        probs = torch.tensor(np.stack([target(text) for text in tree.texts]))[None]
        return Asked(
            tree.candidates, tree.next_token, tree.next_sibling, probs, tree.laws, tree.rows
        )

    return enumerated_trees.distance(every_draw(asked), target, depth + 1, v)


SHAPES = [(3, 2, 3), (3, 2, 4), (3, 2, 5), (3, 2, 6), (4, 2, 4), (3, 3, 5)]


@pytest.mark.parametrize(("v", "depth", "num_nodes"), SHAPES)
def test_texts_after_pruned_trees_follow_the_target(v: int, depth: int, num_nodes: int) -> None:
    for seed in range(2):
        models = TableModel(v, seed), TableModel(v, 50 + seed)
        assert distance(tempted, models, (depth, num_nodes), v) < 1e-12
        usual = partial(greedy_drafts, num_drafts=2)
        chosen = lambda q, draw, usual=usual: usual(q, draw=draw)  # noqa: E731
        assert distance(chosen, models, (depth, num_nodes), v) < 1e-12


def test_texts_after_chains_of_drawn_tokens_follow_the_target() -> None:
    models = TableModel(3, 1), TableModel(3, 51)
    assert distance(partial(tempted, num_drafts=1), models, (2, 3), 3) < 1e-12
    assert distance(partial(tempted, num_drafts=1), models, (2, 2), 3) < 1e-12


def test_a_child_scored_by_its_own_probability_is_caught() -> None:
    found = [
        distance(by_own_q, (TableModel(3, seed), TableModel(3, 50 + seed)), (2, 4), 3)
        for seed in (1, 2)
    ]
    assert min(found) > 1e-2, found
    # a whole tree is drafted and nothing is pruned: then its score is not asked for
    whole = distance(by_own_q, (TableModel(3, 0), TableModel(3, 50)), (2, 7), 3)
    assert whole < 1e-12


class Fixed:
    """The same law after every text."""

    def __init__(self, *law: float) -> None:
        self.law = np.array(law)

    def __call__(self, text: Any) -> Any:
        return self.law


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ((0.2, 0.3, 0.5), (1 / 3, 1 / 3, 1 / 3)),  # ties everywhere
        ((0.2, 0.3, 0.5), (0.5, 0.25, 0.25)),
        ((0.4, 0.4, 0.2), (0.4, 0.4, 0.2)),  # p = q
        ((0.0, 0.3, 0.7), (0.6, 0.4, 0.0)),  # zeros
        ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),  # one-hot
        ((0.3, 0.3, 0.4), (0.0, 1.0, 0.0)),
    ],
)
def test_ties_zeros_and_certainties(target: Any, draft: Any) -> None:
    for num_nodes in (3, 4, 5, 7):
        models = Fixed(*target), Fixed(*draft)
        assert distance(tempted, models, (2, num_nodes), 3) < 1e-12


def test_a_vocabulary_of_one_token_and_more_drafts_than_tokens() -> None:
    one = greedy_drafts(torch.ones(2, 1), 1, first)
    assert one.tokens.tolist() == [[0], [0]]
    assert one.laws.tolist() == [[1.0], [1.0]]
    with pytest.raises(InvalidInput, match="num_drafts is 2"):
        greedy_drafts(torch.ones(2, 1), 2, first)
    with pytest.raises(InvalidInput, match="disagreement is 2"):
        greedy_drafts(torch.ones(2, 1), 1, first, disagreement=2)


def test_the_fields_of_a_node() -> None:
    drafts = greedy_drafts(torch.tensor([[0.1, 0.5, 0.15, 0.25]]), 2, first)
    assert drafts.tokens.tolist() == [[1, 0]]
    torch.testing.assert_close(drafts.laws, torch.tensor([[0.2, 0.0, 0.3, 0.5]]))
    torch.testing.assert_close(drafts.scores, torch.tensor([[0.5, 0.5]]))  # not .1
    top = greedy_drafts(
        torch.tensor([[0.1, 0.5, 0.15, 0.25]]), 2, first, may_sample=torch.tensor([False])
    )
    assert top.tokens.tolist() == [[1, 3]]
    assert top.laws.tolist() == [[0.0, 0.0, 0.0, 1.0]]
    torch.testing.assert_close(top.scores, torch.tensor([[0.5, 0.25]]))


def accepted(p: Any, drafts: NodeDrafts) -> float:
    tokens = drafts.tokens[0, :-1].tolist()
    return float(p[tokens].sum() + torch.minimum(p, drafts.laws[0]).sum())


def test_what_the_choice_between_both_is_derived_from() -> None:
    """On random laws with the target's rest within the disagreement of q', drawing never loses."""
    rng = np.random.default_rng(0)
    drawn = refused = 0
    for _ in range(3_000):
        v, delta = int(rng.integers(3, 8)), float(rng.choice([0.1, 0.3, 0.45]))
        q = torch.tensor(rng.dirichlet(np.full(v, rng.choice([0.1, 1.0]))))
        k = int(rng.integers(1, v))
        top = greedy_drafts(q[None], k, first, may_sample=torch.tensor([False]))
        both = greedy_drafts(q[None], k, first, disagreement=delta)
        if torch.equal(both.laws, top.laws):
            refused += 1
            continue
        drawn += 1
        rest = torch.tensor(rng.dirichlet(np.ones(v))) * (both.laws[0] > 0)
        rest = (1 - delta) * both.laws[0] + delta * rest / rest.sum()
        share = float(1 - q[top.tokens[0, :-1]].sum())  # of the target outside T, as q has it
        p = share * rest + 0.0
        p[top.tokens[0, :-1]] = (1 - share) / max(k - 1, 1)
        assert accepted(p, both) >= accepted(p, top) - 1e-9
    assert drawn > 500
    assert refused > 50


def test_float32_scores_fall_from_a_node_to_its_children() -> None:
    drafts = greedy_drafts(torch.tensor([[1.0, 0.0], [0.3, 0.7]]), 2, first)
    scores = torch.rand(1_000, 1) + 1e-6
    assert (scores * drafts.scores.max() < scores).all()
    assert (scores * drafts.scores.min() ** 8 > 0).all()


def test_drawn_tokens_follow_the_law_and_never_repeat_a_likely_one() -> None:
    torch.manual_seed(0)
    probs = torch.tensor([[0.3, 0.25, 0.2, 0.15, 0.1]]).repeat(20_000, 1)
    drafts = greedy_drafts(probs, 3, lambda q: torch.multinomial(q, 1)[:, 0], disagreement=0.0)
    counts = drafts.tokens[:, 2].bincount(minlength=5) / 20_000
    law = torch.tensor([0.0, 0.0, 0.2, 0.15, 0.1]) / 0.45
    torch.testing.assert_close(drafts.laws[0], law)
    assert (counts - law).abs().max() < 0.02


def test_rows_of_children() -> None:
    kept = torch.tensor([[0, 1, 3, 4], [1, 2, 3, 5]])  # two drafts of each of three nodes
    rows = rows_of_children(kept, 2, 3)
    assert rows.tolist() == [[-1, -1, 0, 1, -1], [-1, 3, -1, 4, 5]]


def test_a_tree_of_nodes_that_are_not_there() -> None:
    def model(texts: Any) -> Any:
        return torch.tensor([[0.5, 0.3, 0.2]]).repeat(len(texts), 1)

    with pytest.raises(InvalidInput, match="have from 2 to 7"):
        draft_tree(model, lambda q: greedy_drafts(q, 2, first), 2, 8)
    tree = draft_tree(model, lambda q: greedy_drafts(q, 2, first), 2, 7)
    assert tree.texts == ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))
    assert tree.next_token.tolist() == [[1, 3, 5, -1, -1, -1, -1]]
    assert tree.next_sibling.tolist() == [[-1, 2, -1, 4, -1, 6, -1]]
    assert tree.rows.tolist() == [[-1, -1, 0, -1, 1, -1, 2]]
