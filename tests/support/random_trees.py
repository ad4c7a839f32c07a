"""Random batches of drafted trees, laws in multiples of 2**-12: float32 adds them without error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from support.served_trees import Served, children, links_of

UNIT = 2**12


def random_law(rng: np.random.Generator, vocab_size: int) -> Any:
    """Some peaked, with zeros, ties, or on one token."""
    if rng.random() < 0.1:
        return one_hot(vocab_size, rng.integers(vocab_size))
    weights = rng.dirichlet(np.full(vocab_size, rng.choice([0.1, 1.0, 10.0])))
    if rng.random() < 0.3:
        weights[rng.random(vocab_size) < 0.5] = 0.0
    return to_units(weights)


def one_hot(vocab_size: int, token: Any) -> Any:
    law = np.zeros(vocab_size)
    law[token] = 1.0
    return law


def to_units(weights: Any) -> Any:
    """A law of multiples of 2**-12 near it; zeros stay."""
    if weights.sum() <= 0.0:
        return one_hot(weights.size, 0)
    units = np.floor(weights / weights.sum() * UNIT)
    units[np.argmax(weights)] += UNIT - units.sum()
    return units / UNIT


def random_batch(
    rng: np.random.Generator,
    bs: int = 8,
    *,
    certain: bool = False,
    vocab_size: int | None = None,
    num_nodes: int | None = None,
) -> Served:
    """Trees of any form; a node has certain children first, and mostly one drawn from the rest.

    With `certain` none is drawn. Coins are multiples of 2**-12, too, with both ends among them.
    """
    num_nodes = int(rng.integers(1, 9)) if num_nodes is None else num_nodes
    vocab_size = int(rng.integers(1, 40)) if vocab_size is None else vocab_size
    most = min(4, vocab_size)
    tokens = np.zeros((bs, num_nodes), np.int64)
    first, following = np.full_like(tokens, -1), np.full_like(tokens, -1)
    p, q = np.zeros((2, bs, num_nodes, vocab_size))
    for b in range(bs):
        parents, counts = [-1], [0]
        for node in range(1, num_nodes):
            free = [i for i in range(node) if counts[i] < most]
            parents.append(int(rng.choice(free or [node - 1])))
            counts[parents[-1]] += 1
            counts.append(0)
        first[b], following[b] = links_of(parents)
        for node in range(num_nodes):
            law = random_law(rng, vocab_size)
            p[b, node] = law if rng.random() < 0.2 else random_law(rng, vocab_size)
            below = [i for i in range(num_nodes) if parents[i] == node]
            likeliest = np.argsort(-law, kind="stable")
            drawn = bool(below) and not certain and rng.random() < 0.8
            fixed = likeliest[: len(below) - drawn]
            tokens[b, below[: fixed.size]] = fixed
            rest = law.copy()
            rest[fixed] = 0.0
            if drawn and rest.sum() > 0.0:
                q[b, node] = to_units(rest)
                tokens[b, below[-1]] = rng.choice(vocab_size, p=q[b, node])
            elif drawn:  # nothing is left to draw from
                tokens[b, below[-1]] = likeliest[min(fixed.size, vocab_size - 1)]
    ends = np.array([0.0, 1.0 - 1.0 / UNIT])
    coins = rng.integers(UNIT, size=(bs, num_nodes)) / UNIT
    coins = np.where(rng.random(coins.shape) < 0.1, rng.choice(ends, coins.shape), coins)
    last = np.where(rng.random(bs) < 0.2, rng.choice(ends, bs), rng.integers(UNIT, size=bs) / UNIT)
    depth = int(rng.integers(1, num_nodes + 2))
    return Served(tokens, first, following, p, q, coins, last, depth)


def random_draws(
    rng: np.random.Generator, bs: int = 4, *, vocab_size: int | None = None, num_drafts: int = 0
) -> Served:
    """Trees of at most two levels, each inner node with K independent draws; laws as above."""
    vocab_size = int(rng.integers(1, 40)) if vocab_size is None else vocab_size
    num_drafts = num_drafts or int(rng.integers(1, 5))
    parents = [-1] + [0] * num_drafts
    for node in range(1, num_drafts + 1):
        if rng.random() < 0.5:
            parents += [node] * num_drafts
    first, following = links_of(parents)
    num_nodes = len(parents)
    tokens = np.zeros((bs, num_nodes), np.int64)
    p, q = np.zeros((2, bs, num_nodes, vocab_size))
    for b, node in np.ndindex(bs, num_nodes):
        law = random_law(rng, vocab_size)
        p[b, node] = law if rng.random() < 0.2 else random_law(rng, vocab_size)
        if rng.random() < 0.5:  # near each other
            p[b, node] = to_units(law + 0.5 * p[b, node] * (law > 0.0))
        if first[node] >= 0:
            q[b, node] = law
            below = [i for i in range(num_nodes) if parents[i] == node]
            tokens[b, below] = rng.choice(vocab_size, size=len(below), p=law)
    coins, levels = rng.integers(UNIT, size=(2, bs, num_nodes)) / UNIT
    last = rng.integers(UNIT, size=bs) / UNIT
    links = (np.tile(x, (bs, 1)) for x in (first, following))
    return Served(tokens, *links, p, q, coins, last, int(rng.integers(1, 5)), None, levels)


def without_replacement(batch: Served, rng: np.random.Generator) -> Served:
    """The same trees with tokens drawn one after another, of probability zero once none is left."""
    tokens = batch.tokens.copy()
    for b, node in np.ndindex(tokens.shape):
        below = children(batch, b, node)
        waits = rng.exponential(size=batch.q.shape[2]) / np.maximum(batch.q[b, node], 1e-300)
        tokens[b, below] = np.resize(np.argsort(waits), len(below))
    return replace(batch, tokens=tokens, levels=None)
