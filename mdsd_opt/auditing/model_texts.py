"""Models that are tables, the law of the texts they make, and every tree of drafts over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.sources import default_rng
from mdsd_opt.base.array_types import Integers, Model, Text, Vector
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import DraftScheme, SchemeMaker, count_power, readable
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.evidence import Promise, promised
from mdsd_opt.trees import Node, Topology, hang, valued

#: Scheme and values of the drafts after each text.
Hung = dict[Text, tuple[DraftScheme, Integers]]

#: Most texts that an audit tells apart.
MAX_TEXTS = 200_000


class TableModel:
    """Random laws of the next token, drawn when they are first needed; each text has its own.

    Parameters
    ----------
    vocab_size : int
        V.
    seed : int
        Another seed makes another model.
    concentration : float
        Concentration of the Dirichlet law they are drawn from; small ones make peaked laws.
    """

    def __init__(self, vocab_size: int, seed: int = 0, concentration: float = 1.0) -> None:
        self.vocab_size, self.seed, self.concentration = vocab_size, seed, concentration

    def __call__(self, text: Text) -> Vector:
        rng = default_rng([self.seed, self.vocab_size, len(text), *text])
        return rng.dirichlet(np.full(self.vocab_size, self.concentration))


def drawn_from(reached: Vector, rng: np.random.Generator) -> int:
    """Token by the running sums of its law; one of mass zero is never drawn."""
    token = reached.searchsorted(rng.random() * reached[-1], side="right")
    return int(min(token, reached.searchsorted(reached[-1])))


def under(promise: Promise, model: Model) -> Model:
    """Model whose laws are what a promise makes of them."""
    return lambda text: promised(promise, text, model(text))


class _Laws(ABC):
    """Laws of the next token after texts."""

    @abstractmethod
    def __call__(self, text: Text) -> Vector:
        """Law after a text, shape (V,)."""

    def along(self, text: Text) -> Vector:
        """Laws after each beginning of a text, itself included, shape (len(text) + 1, V)."""
        return np.array([self(text[:n]) for n in range(len(text) + 1)])

    def drawn(self, text: Text, rng: np.random.Generator) -> int:
        """Token drawn after a text."""
        return drawn_from(self.reached(text), rng)

    def reached(self, text: Text) -> Vector:
        """Running sums of the law after a text, shape (V,)."""
        return self(text).cumsum()


class ModelLaws(_Laws):
    """Laws of a model, requested once and checked: each text has one of as many tokens.

    Under a promise they are what it makes of them, but after texts that it rules out.
    """

    def __init__(
        self, model: Callable[[Text], Any], name: str, promise: Promise | None = None
    ) -> None:
        if not callable(model):
            raise InvalidInput(
                f"{name} is a {type(model).__name__}: give a function from a text (a tuple of "
                "token ids) to the probabilities of the next token"
            )
        self._model, self.name, self._promise = model, name, promise
        self._known: dict[Text, Vector] = {}
        self.along, self.reached = cache(super().along), cache(super().reached)  # type: ignore[method-assign]
        self.vocab_size = self(()).size

    def __call__(self, text: Text) -> Vector:
        if text not in self._known:
            law = Distribution.of(self._model(text), f"{self.name} after {text}").values
            if self._known and law.size != self.vocab_size:
                raise InvalidInput(
                    f"{self.name} gives {law.size} probabilities after {text}, and "
                    f"{self.vocab_size} after ()"
                )
            possible = (self(text[:n])[token] > 0 for n, token in enumerate(text))
            if self._promise is not None and all(possible):
                law = promised(self._promise, text, law)
            self._known[text] = law
        return self._known[text]


class PlaceLaws(_Laws):
    """Laws of a model that depend on the place of a token alone: a row for each of `length` places.

    Under a promise that is a function they depend on the whole text (`by_text`), and none is kept
    but the `rows` after each beginning of the likeliest one.
    """

    def __init__(self, model: Model, length: int, promise: Promise | None = None) -> None:
        shown = [model((0,) * n) for n in range(length)]
        self.by_text = promise is not None and not isinstance(promise, Sampling)
        self._law: Model = lambda text: shown[len(text)]
        if promise is not None:
            self._law = under(promise, self._law)
        self.rows: list[Vector] = []
        for _ in range(length):
            self.rows.append(self._law(tuple(int(row.argmax()) for row in self.rows)))
        self.vocab_size = self.rows[0].size
        self._array, self._reached = np.array(self.rows), np.cumsum(self.rows, axis=1)

    def along(self, text: Text) -> Vector:
        return super().along(text) if self.by_text else self._array[: len(text) + 1]

    def reached(self, text: Text) -> Vector:
        return super().reached(text) if self.by_text else self._reached[len(text)]

    def __call__(self, text: Text) -> Vector:
        text = text[: len(self.rows) - 1]  # the last row stands for all places after it
        return self._law(text) if self.by_text else self.rows[len(text)]


class Texts:
    """Texts of a length, numbered in lexicographic order; at most 200,000 (`ProblemTooLarge`)."""

    def __init__(self, target: ModelLaws, length: int) -> None:
        count = count_power(target.vocab_size, length)
        if count > MAX_TEXTS:
            raise ProblemTooLarge(
                f"V = {target.vocab_size} and {length} tokens make {readable(count)} texts, over "
                f"the limit of {MAX_TEXTS:,}: take a smaller vocabulary or a shallower tree"
            )
        self._target, self.length, self.vocab_size = target, length, target.vocab_size
        self._rest: dict[Text, Vector] = {}
        self.law = self.rest(())

    def rest(self, text: Text) -> Vector:
        """Law of the tokens up to the full length after a text, shape (V**(length - n),)."""
        if len(text) == self.length:
            return np.ones(1)
        if len(text) == self.length - 1:
            return self._target(text)
        if text not in self._rest:
            parts = [
                p * self.rest((*text, token)) for token, p in enumerate(self._target(text).tolist())
            ]
            self._rest[text] = np.concatenate(parts)
        return self._rest[text]

    def place(self, text: Text) -> slice:
        """Slice of the texts that begin with this one."""
        number = 0
        for token in text:
            number = number * self.vocab_size + token
        width = self.vocab_size ** (self.length - len(text))
        return slice(number * width, (number + 1) * width)

    def spread(self, text: Text) -> tuple[slice, Vector]:
        """Places of the texts that begin with this one, and their law after it."""
        return self.place(text), self.rest(text)

    def text(self, number: int) -> Text:
        places = np.unravel_index(number, (self.vocab_size,) * self.length)
        return tuple(int(token) for token in places)

    def completed(self, text: Text, rng: np.random.Generator) -> int:
        """Number of a text that begins with this one and goes on under the target."""
        return self.place(text).start + drawn_from(self.rest(text).cumsum(), rng)

    def first_token(self, law: Vector) -> Vector:
        """Law of the first token under a law of the texts."""
        return law.reshape(self.vocab_size, -1).sum(axis=1)


def drawn_trees(
    target: Model, draft: Model, topology: Topology, make: SchemeMaker
) -> Iterator[tuple[Node, float]]:
    """Trees as `decoding.grow` draws them, with the target's laws at their nodes."""
    shape = valued(topology)
    for hung, probability in _ways(draft, shape.topology, make, [Node((), ())], {}, 1.0):
        root = Node((), ())
        nodes = [root]
        for node in nodes:
            node.target = target(node.tokens)
            if node.tokens in hung:
                drafts, draws = hung[node.tokens]
                nodes += hang(node, drafts, draws, shape)
        yield root, probability


def _ways(
    draft: Model,
    topology: Topology,
    make: SchemeMaker,
    waiting: list[Node],
    hung: Hung,
    probability: float,
) -> Iterator[tuple[Hung, float]]:
    """All ways to draw the drafts after the nodes that wait."""
    open_nodes = [node for node in waiting if node.next_places(topology)]
    if not open_nodes:
        yield hung, probability
        return
    node, rest = open_nodes[0], open_nodes[1:]
    places = node.next_places(topology)
    drafts = make(draft(node.tokens), len(places))
    tuples, weights = drafts.tuple_law()
    for n in np.flatnonzero(weights > 0).tolist():
        draws = tuples[n].astype(np.int64)
        drawn = Node(node.tokens, node.place)
        children = drawn.add_drafts(drafts, draws, None, places if topology.merges else None)
        more = {**hung, node.tokens: (drafts, draws)}
        yield from _ways(
            draft, topology, make, [*rest, *children], more, probability * float(weights[n])
        )
