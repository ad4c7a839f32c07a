"""Models that are tables, and the exact law of what a tree rule makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from fractions import Fraction
from functools import cache, partial
from itertools import product
from math import prod

import numpy as np

from mdsd_opt.decoding import DynamicTree, Node, grow_by_acceptance
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.trees import ValuedTopology, place_values
from mdsd_opt.trees import hang as hang_drafts


class Table:
    """Random laws of the next token after every text up to some depth."""

    def __init__(self, rng, vocab_size, depth, concentration=1.0, near=None):
        self.vocab_size, self.depth = vocab_size, depth
        self.laws = {}
        for n in range(depth + 1):
            for text in product(range(vocab_size), repeat=n):
                law = rng.dirichlet(np.full(vocab_size, concentration))
                if near is not None:
                    law = near(text) * np.exp(0.7 * rng.standard_normal(vocab_size))
                self.laws[text] = law / law.sum()

    @classmethod
    def of(cls, vocab_size, depth, law):
        """Laws by a function of texts, in Fractions."""
        made = cls(np.random.default_rng(0), vocab_size, depth)
        made.laws = {x: np.array([*map(Fraction, law(x))], dtype=object) for x in made.laws}
        return made

    def __call__(self, text):
        return self.laws[tuple(text)]

    def probability(self, text):
        return prod(self(text[:n])[token] for n, token in enumerate(text))

    def in_floats(self):
        other = copy(self)
        other.laws = {text: law.astype(float) for text, law in self.laws.items()}
        return other

    def in_fractions(self, total=16):
        """Laws near these, of multiples of 1 / total: floats hold them exactly."""
        other = copy(self)
        other.laws = {}
        for text, law in self.laws.items():
            counts = np.floor(law * (total - law.size)).astype(int) + (law > 0)
            counts[counts.argmax()] += total - counts.sum()
            other.laws[text] = np.array([Fraction(int(n), total) for n in counts], dtype=object)
        return other


def pair(seed, vocab_size, depth, concentration=1.0, near=False):
    """Target and draft, far from each other or near."""
    rng = np.random.default_rng(seed)
    draft = Table(rng, vocab_size, depth, concentration)
    return Table(rng, vocab_size, depth, concentration, draft if near else None), draft


def tuple_law(drafts, exact):
    """Draws with their probabilities, of those that are possible."""
    law = zip(*(drafts.law(exact) if exact else drafts).tuple_law(), strict=True)
    return [(draws.astype(np.int64), weight) for draws, weight in law if weight > 0]


def trees(draft, topology, scheme, values=None) -> Iterator[tuple[Node, float]]:
    """Every tree that can be drawn, with its probability; values are those of the places."""
    make = scheme_maker(scheme)
    values = place_values(topology) if values is None else values

    def below(tokens, places):
        """Ways to draw what is below a node, as (function that hangs it there, probability)."""
        following = [(*place, n) for place in places for n in range(topology.drafts_at(place))]
        if not following:
            return [((), 1)]
        law = draft(tokens)
        drafts = make(law, len(following))
        ways = []
        for draws, weight in tuple_law(drafts, law.dtype == object):
            found = {}
            for place, token in zip(following, draws.tolist(), strict=True):
                if token >= 0 and (topology.merges or token not in found):
                    found.setdefault(token, []).append(place)
            parts = [below((*tokens, t), at) for t, at in found.items()]
            for chosen in product(*parts):
                probability = weight * prod(p for _, p in chosen)
                ways.append(((drafts, draws, [way for way, _ in chosen]), probability))
        return ways

    def hang(node, way):
        if way:
            drafts, draws, parts = way
            children = hang_drafts(node, drafts, draws, ValuedTopology(topology, values))
            for child, part in zip(children, parts, strict=True):
                hang(child, part)

    for way, probability in below((), [()]):
        root = Node((), ())
        hang(root, way)
        yield root, probability


def dynamic_trees(draft, tree, scheme) -> Iterator[tuple[Node, float]]:
    """Every tree that can grow, with its probability: all scripts of draws are replayed."""
    make = scheme_maker(scheme)
    waiting = [()]
    while waiting:
        script, chosen, weights = waiting.pop(), [], []

        def scripted(q, num_drafts, script=script, chosen=chosen, weights=weights):
            drafts = make(q, num_drafts)
            ways = tuple_law(drafts, q.dtype == object)

            def sample(rng):
                n = len(chosen)
                if n >= len(script):  # not written yet: the first way, the others later
                    waiting.extend((*chosen, other) for other in range(1, len(ways)))
                way = script[n] if n < len(script) else 0
                chosen.append(way)
                weights.append(ways[way][1])
                return ways[way][0]

            drafts.sample = sample
            return drafts

        laws = lambda texts: np.stack([draft(text) for text in texts])  # noqa: E731
        root = grow_by_acceptance(laws, tree, scripted, np.random.default_rng(0))
        yield root, prod(weights)


def output_law(rule, target, draft, topology, scheme, found=None):
    """Law of the first depth + 1 tokens of the output, and the mean number of accepted drafts.

    `found` are trees with their probabilities, by default all that the topology makes.
    """
    if isinstance(topology, DynamicTree):
        length = topology.max_depth + 1
        found = found or dynamic_trees(draft, topology, scheme)
    else:
        length = topology.depth + 1
        found = found or trees(draft, topology, scheme)
    law = np.zeros_like(np.asarray(target(())), shape=(target.vocab_size,) * length)
    goes_on = cache(partial(target_law, target, length))  # the law of what follows a text
    accepted = 0
    for root, probability in found:
        for node in root.walk():
            node.target = target(node.tokens)
        total = 0
        for stop in rule.stops(root):
            total += stop.probability
            accepted += probability * stop.probability * stop.node.depth
            extra_law = np.asarray(stop.law)
            for extra in np.flatnonzero(extra_law).tolist():
                mass = probability * stop.probability * extra_law[extra]
                text = (*stop.node.tokens, extra)
                law[text] += mass * goes_on(text)
        assert abs(total - 1.0) < 1e-9
    return law, accepted


def target_law(target, length, after=()):
    """Law of the first tokens under the target itself: of those that follow a text `after`."""
    left = length - len(after)
    law = np.zeros_like(np.asarray(target(())), shape=(target.vocab_size,) * left)
    for rest in product(range(target.vocab_size), repeat=left):
        whole = (*after, *rest)
        law[rest] = prod(np.asarray(target(whole[:n]))[whole[n]] for n in range(len(after), length))
    return law
