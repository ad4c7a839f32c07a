"""`verify_tree` of examples/torch_verifiers.py on trees in SGLang's layout."""

from __future__ import annotations

from itertools import count, pairwise

import numpy as np
import pytest
import torch
import torch_verifiers

SCHEMES = {"with_replacement": True, "without_replacement": False}
VOCAB = 4


@pytest.fixture(autouse=True)
def few_bins(monkeypatch):
    """Thousands of nodes are decided."""
    monkeypatch.setattr(torch_verifiers, "_BINS", 16)
    monkeypatch.setattr(torch_verifiers, "_RACE_BINS", 12)


def tree_of(num_drafts, grows):
    """Children of each node of a tree whose nodes grow K children or none."""
    children = [[]]
    for node in count():
        if node == len(children):
            return children
        if grows(node):
            children[node] = [*range(len(children), len(children) + num_drafts)]
            children += [[] for _ in range(num_drafts)]


def drawn_trees(trees, target, draft, replacement, generator):
    """Tokens drawn down the trees, [bs, N], and the laws behind each node, [bs, N, V].

    `target` and `draft`, [V + 1, V], are laws by the token before, the last one behind the root.
    """
    tokens = torch.full((len(trees), len(trees[0])), VOCAB)
    for b, tree in enumerate(trees):
        for node, children in enumerate(tree):
            if children:
                law = draft[tokens[b, node]]
                drawn = torch.multinomial(law, len(children), replacement, generator=generator)
                tokens[b, children] = drawn
    return tokens, target[tokens], draft[tokens]


def laws(generator):
    rows = torch.rand(2, VOCAB + 1, VOCAB, generator=generator, dtype=torch.float64) ** 3
    return tuple(rows / rows.sum(2, keepdim=True))


def layout(trees, tokens):
    bs, size = tokens.shape
    places = torch.arange(bs * size).view(bs, size)
    first, sibling = torch.full((2, bs, size), -1)
    for b, node in np.ndindex(bs, size):
        below = [*trees[b][node], -1]
        first[b, node] = below[0]
        for child, following in pairwise(below):
            sibling[b, child] = following
    return tokens.clamp(max=VOCAB - 1), places, first, sibling


@pytest.mark.parametrize("name", ["rrs", "optimal"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_walks_go_node_by_node(name, scheme):
    """Held against a walk in plain Python, which asks the rule about one node at a time."""
    generator = torch.Generator().manual_seed(0)
    rng, replacement = np.random.default_rng(0), SCHEMES[scheme]
    target, draft = laws(generator)
    num_drafts, num_steps, seen = 2, 4, set()
    verify = getattr(torch_verifiers, name)
    trees = []
    for _ in range(40):
        inner = {0, *rng.choice(np.arange(1, 9), 4, replace=False).tolist()}
        tree = tree_of(num_drafts, lambda n, inner=inner: n in inner)
        trees.append(tree + [[]] * (11 - len(tree)))  # nodes that no walk reaches
    tokens, p, q = drawn_trees(trees, target, draft, replacement, generator)
    uniforms = torch.rand(40, num_steps, 3, generator=generator, dtype=torch.float64)
    arrays = layout(trees, tokens)
    found = torch_verifiers.verify_tree(
        verify, p, q, *arrays, num_drafts, num_steps, uniforms, replacement
    )
    for b, tree in enumerate(trees):
        node, passed, out = 0, [], {}
        for step in range(num_steps):
            passed.append(b * 11 + node)
            children = tree[node] if step < num_steps - 1 else []
            if not children:  # the target's own
                law = p[b, node].cumsum(0) / p[b, node].sum()
                out[passed[-1]] = int(torch.searchsorted(law, uniforms[b, step, 2], right=True))
                break
            rows = (x[b, node][None] for x in (p, q))
            verdict = verify(*rows, tokens[b, children][None], uniforms[b, step][None], replacement)
            out[passed[-1]] = int(verdict.tokens)
            if not verdict.accepted:
                break
            node = children[int(verdict.draft_index)]
        seen.add(len(passed))
        expected = [*passed, *[-1] * (num_steps - len(passed))]
        assert found.accept_index[b].tolist() == expected
        assert int(found.accept_token_num[b]) == len(passed) - 1
        assert [int(found.predicts[place]) for place in passed] == [out[n] for n in passed]
    assert len(seen) > 2  # short walks and long ones


@pytest.mark.parametrize("scheme", SCHEMES)
def test_walks_are_one_graph(scheme):
    generator = torch.Generator().manual_seed(2)
    target, draft = laws(generator)
    trees = [tree_of(2, lambda n: n < 3)] * 5
    tokens, p, q = drawn_trees(trees, target, draft, SCHEMES[scheme], generator)
    uniforms = torch.rand(5, 3, 3, generator=generator, dtype=torch.float64)
    arrays = (p, q, *layout(trees, tokens), 2, 3, uniforms, SCHEMES[scheme])

    def walk(*given):
        return torch_verifiers.verify_tree(torch_verifiers.optimal, *given)

    torch._dynamo.reset()
    compiled = torch.compile(walk, fullgraph=True, backend="eager", dynamic=False)
    for one, other in zip(compiled(*arrays), walk(*arrays), strict=True):
        assert torch.equal(one, other)
