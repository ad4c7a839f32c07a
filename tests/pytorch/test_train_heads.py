"""What the measurement of trained heads takes for granted, on a vocabulary of forty tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import train_heads
from parallel_trees import by_position
from train_heads import HEADS, LAYERS, RULES, Heads, Laws, Sampled

from mdsd_opt import WithoutReplacement
from mdsd_opt.decoding import Node, get_rule, grow, sparse

TOKENS, WIDTH = 40, 6
OWN = torch.tensor([1, 4, 5, 9, 12, 20, 21, 33])


def heads_of(seed):
    torch.manual_seed(seed)
    embedding = torch.randn(TOKENS, WIDTH)
    return Heads(embedding, OWN, WIDTH * len(LAYERS)), torch.randn(30, WIDTH * len(LAYERS))


def test_laws_of_heads():
    heads, states = heads_of(0)
    tokens = torch.arange(30)
    logits = heads.logits(states, tokens)
    laws = train_heads.drafted(logits, 0.6)
    assert laws.shape == (30, HEADS, len(OWN) + 1)
    assert laws.sum(-1) == pytest.approx(np.ones((30, HEADS)))
    assert not laws[..., -1].any()
    again, _ = heads_of(0)
    assert np.array_equal(again.logits(states, tokens), logits)
    heads.read((3, 7), states[:2])
    asked = heads.tree_logits((3, 7, 1), [(), (4,), (4, 4, 9)])
    assert asked == pytest.approx(logits[1, [0, 1, 3]], abs=1e-5)


def test_linear_start_is_found():
    heads, states = heads_of(1)
    inputs = heads.inputs(states, torch.arange(30))
    later = [inputs @ torch.randn(inputs.shape[1], WIDTH) + 1.0 for _ in range(HEADS)]
    heads.start_at(inputs, later, ridge=1e-4)
    for layer, state in zip(heads.straight, later, strict=True):
        assert layer(inputs).detach().numpy() == pytest.approx(state.numpy(), abs=1e-3)


def test_rows_have_all_their_laws():
    text = Sampled(torch.arange(12), torch.arange(11.0)[:, None], 4)
    rows = train_heads.rows_of([text])
    assert rows == [[3, 4, 5, 6]]
    states, tokens = train_heads.inputs_of([text], rows)
    assert (states[:, 0] + 1).tolist() == tokens.tolist()
    assert train_heads.states_later([text], rows, 3)[:, 0].tolist() == [7, 8, 9, 10]


def widened(node, laws):
    """The same tree over the whole vocabulary; what no head has is put on two of its tokens."""
    wide = Node(tuple(OWN[list(node.tokens)].tolist()), node.place)
    wide.target = np.zeros(TOKENS)
    wide.target[OWN] = node.target[:-1]
    wide.target[[0, 2]] = node.target[-1] * np.array([0.25, 0.75])
    if node.drafts is not None:
        q = np.zeros(TOKENS)
        q[OWN] = laws[node.depth, :-1]
        drafts = WithoutReplacement(q, node.draws.size)
        wide.add_drafts(drafts, OWN.numpy()[node.draws], node.values)
        wide.children = {
            int(OWN[token]): widened(child, laws) for token, child in node.children.items()
        }
    return wide


@pytest.mark.parametrize("seed", range(5))
def test_other_tokens_are_one_to_a_rule(seed):
    rng = np.random.default_rng(seed)
    laws = train_heads.drafted(2.0 * rng.standard_normal((HEADS, len(OWN))), 1.0)
    logits = torch.as_tensor(2.0 * rng.standard_normal((200, TOKENS)))
    logits[:, OWN] += 3.0  # else hardly a draft is accepted
    cut = Laws(logits, OWN).cut(logits, 1.0)
    assert cut.sum(-1) == pytest.approx(np.ones(200))
    drawn = grow(by_position(laws), sparse(12), "without_replacement", rng)
    train_heads.weigh([drawn], lambda texts: cut[: len(texts)])
    wide = widened(drawn, laws)
    for rule in map(get_rule, RULES):
        expected = rule.expected_accepted(wide)
        assert rule.expected_accepted(drawn) == pytest.approx(expected, abs=1e-9)
        assert 0.0 < expected < HEADS


def test_certain_trees_accept_their_mass():
    rng = np.random.default_rng(0)
    tree = train_heads.certain_tree(rng.standard_normal((HEADS, len(OWN))), 0.6)
    assert len(tree.walk()) == train_heads.DRAFTS + 1
    laws = rng.dirichlet(np.ones(len(OWN) + 1), 40)
    train_heads.weigh([tree], lambda texts: laws[: len(texts)])
    expected = get_rule("naive_target").expected_accepted(tree)
    assert train_heads.mass(tree) == pytest.approx(expected)
