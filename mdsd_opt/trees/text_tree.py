"""All texts up to a length, numbered level by level, and the random trees of drafts among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Floats, Integers, Text, Vector
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts import SchemeMaker, count_power, readable
from mdsd_opt.errors import ProblemTooLarge, UnsupportedScheme
from mdsd_opt.trees.topology import Place, Topology

Laws = Callable[[Text], Floats]

#: Most texts: V = 16, three levels.
MAX_TEXTS = 5_000

#: Most draft tuples of one node, and of all nodes.
MAX_TUPLES = 20_000
MAX_ALL_TUPLES = 2_000_000


class TextTree:
    """All texts up to a length; the root, 0, is the empty one.

    Their number N is `size`; more than 5,000 are `ProblemTooLarge`. `levels`, shape (depth + 2,),
    is where each level begins, and the end; `level_of` and `parent` have shape (N,), as has `p`,
    the probability of the last token after the others under the target.
    """

    def __init__(self, target: Laws, depth: int) -> None:
        first = Distribution.of(target(()), "the target's first law").values
        self.vocab_size = first.size
        count = sum(count_power(self.vocab_size, n) for n in range(min(depth, 64) + 1))
        if count > MAX_TEXTS or depth > 64:
            raise ProblemTooLarge(
                f"V = {self.vocab_size} and depth {depth} make {readable(count)} texts, over the "
                f"limit of {MAX_TEXTS:,}: take a smaller vocabulary or a shallower tree"
            )
        sizes = self.vocab_size ** np.arange(depth + 1)
        self.depth, self.size = depth, int(count)
        self.levels: Integers = np.concatenate([[0], np.cumsum(sizes)])
        self.level_of: Integers = np.repeat(np.arange(depth + 1), sizes)
        number = np.arange(self.size)
        inside = number - self.levels[self.level_of]
        self.parent: Integers = self.levels[self.level_of - 1] + inside // self.vocab_size
        self.parent[0] = 0
        what = "the target's law after "
        laws = (Distribution.of(target(w), f"{what}{w}").values for w in self.inner())
        self.p: Vector = np.concatenate([[1.0], *laws])

    def inner(self) -> Iterator[Text]:
        """All texts but those of the last level, in their order."""
        levels = (product(range(self.vocab_size), repeat=n) for n in range(self.depth))
        return chain.from_iterable(levels)

    def level(self, n: int) -> slice:
        """Slice of the texts of n tokens."""
        return slice(int(self.levels[n]), int(self.levels[n + 1]))

    def summed_up(self, values: Vector) -> Vector:
        """Sum over each text and all that begin with it."""
        total = values.copy()
        for n in range(self.depth, 0, -1):
            total[self.level(n - 1)] += self.over_next(total[self.level(n)])
        return total

    def summed_down(self, values: Vector) -> Vector:
        """Sum over each text and all texts that it begins with."""
        total = values.copy()
        for n in range(1, self.depth + 1):
            here = self.level(n)
            total[here] += total[self.parent[here]]
        return total

    def over_next(self, values: Vector) -> Vector:
        """Sum over the last token, of the values of one level."""
        return values.reshape(-1, self.vocab_size).sum(axis=1)

    def outermost(self, inside: Flags) -> Integers:
        """Texts of a set, closed under continuation, that begin with no other text of it."""
        return np.flatnonzero(inside & ~inside[self.parent])


class RandomTrees:
    r"""Law of the trees of drafts, coinciding draws included.

    A tree misses a set of texts with :math:`m_a(w)`, by the place a that follows w: the mean over
    draws y of the product of :math:`m_b(w y_b)` over the drafts b of a whose tokens are new; 0 for
    w in the set. Where draws that coincide are merged, the tree is the union of independent ones:
    the product over all b of means, so that a node has as many tuples as tokens.

    Raises `UnsupportedScheme` for merged drafts that are not independent draws from one law, and
    `ProblemTooLarge` for more than 20,000 draft tuples of a node, or 2,000,000 of all.
    """

    def __init__(self, texts: TextTree, draft: Laws, topology: Topology, make: SchemeMaker) -> None:
        self._texts, self._merges, counts = texts, topology.merges, topology.num_drafts
        if topology.merges:
            random = make(draft(()), 1).random_draws
            if random is None or not random.is_replaced:
                raise UnsupportedScheme(
                    f"{topology.name} merges draws that coincide: its bounds are for drafts "
                    "with_replacement"
                )
            counts = dict.fromkeys(counts, 1)  # as if each had a node to itself
        widest = max(counts.values())
        tuples = count_power(texts.vocab_size, widest)
        pairs = {(len(place), count) for place, count in counts.items()}
        total = sum(
            texts.vocab_size**n * count_power(texts.vocab_size, count) for n, count in pairs
        )
        if tuples > MAX_TUPLES or total > MAX_ALL_TUPLES:
            raise ProblemTooLarge(
                f"V = {texts.vocab_size} and {widest} drafts after a node make {readable(tuples)} "
                f"draft tuples, {readable(total)} in all, over the limits of {MAX_TUPLES:,} and "
                f"{MAX_ALL_TUPLES:,}: take fewer drafts"
            )
        rows = {count: n for n, count in enumerate(sorted(set(counts.values())))}
        self._parts, self._below, self._num_misses = _parts(topology, texts, rows)
        self._starts = np.zeros((len(rows), texts.size), np.int64)
        self._counts = np.zeros((len(rows), texts.size), np.int64)
        tokens: list[NDArray[np.int32]] = []
        weights: list[Vector] = []
        start = 0
        for level, count in sorted(pairs):
            below = product(range(texts.vocab_size), repeat=level)
            for number, text in enumerate(below, start=int(texts.levels[level])):
                draws, law = _tuples(make(draft(text), count).tuple_law(), widest)
                self._starts[rows[count], number] = start
                self._counts[rows[count], number] = law.size
                start += law.size
                tokens.append(draws)
                weights.append(law)
        self._tokens, self._weights = np.concatenate(tokens), np.concatenate(weights)

    def first_met(self, order: Integers) -> Vector:
        """Chance of each text to be the first of an order in a tree; the rest is the root's."""
        from mdsd_opt.trees.tree_kernels import first_met

        texts = self._texts
        chances = np.zeros(texts.size)
        chances[0] = first_met(
            order, texts.vocab_size, texts.levels, texts.level_of, self._parts, self._below,
            self._starts, self._counts, self._tokens, self._weights, np.ones(self._num_misses),
            np.zeros(texts.size, np.bool_), chances, self._merges,
        )  # fmt: skip
        return chances


def _parts(
    topology: Topology, texts: TextTree, rows: dict[int, int]
) -> tuple[Integers, Integers, int]:
    """Tables `parts` and `below` that `first_met` takes, and the number of misses."""
    places: list[Place] = [()]
    for place in places:
        places.extend((*place, rank) for rank in range(topology.drafts_at(place)))
    known: dict[tuple[int, ...], int] = {}  # by the level and the parts after the drafts
    part_of: dict[Place, int] = {}
    table: list[list[int]] = []
    below: list[int] = []
    start = 0
    for place in reversed(places):
        count = topology.drafts_at(place)
        after = [part_of[*place, rank] for rank in range(count)]
        part_of[place] = known.setdefault((len(place), *after), len(table))
        if part_of[place] == len(table):
            table.append([len(place), count, len(below), start, rows.get(count, 0)])
            below += after
            start += texts.vocab_size ** len(place)
    return np.array(table), np.array(below, np.int64), start


def _tuples(law: tuple[Any, Vector], width: int) -> tuple[NDArray[np.int32], Vector]:
    """Possible draws, a repeated one as -1, padded to the width; and their probabilities."""
    draws, weights = law
    possible = weights > 0.0
    draws = np.array(draws[possible], np.int32)
    for later in range(1, draws.shape[1]):
        drawn_before = (draws[:, :later] == draws[:, later : later + 1]).any(axis=1)
        draws[drawn_before, later] = -1
    padded = np.full((len(draws), width), -1, np.int32)
    padded[:, : draws.shape[1]] = draws
    return padded, np.asarray(weights[possible], np.float64)
