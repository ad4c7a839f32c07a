"""Laws that a rule may meet: small ones, whose texts can be told apart, and wide ones.

Models that are tables, the law of the texts they make, every tree of drafts over them, and tables
that answer as models do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mdsd_opt.auditing.randomness.sources import default_rng
from mdsd_opt.base.arrays import Integers, Model, Opened, Text, Vector, as_logits
from mdsd_opt.base.checked import check_function
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import DraftScheme, SchemeMaker, count_power, first_beyond, readable
from mdsd_opt.errors import InvalidInput, MdsdError, ProblemTooLarge
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
    return first_beyond(reached, rng.random() * reached[-1])


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
        wanted = "a function from a text (a tuple of ids) to probabilities of the next token"
        check_function(wanted, **{name: model})
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


#: Vocabulary sizes of the random wide law and of the one with a long tail.
_WIDE, _LONG = 32, 2_048

#: Vocabulary size of the widest laws.
_MOST_TOKENS = 262_144

#: Most beginnings of texts that are taken from rows of logits.
_MOST_GIVEN = 3

#: Steepness of the long tail: few tokens have most of it, as in laws of models.
_STEEPNESS = 1.5

#: Name of the laws of which one token is possible everywhere.
CERTAIN = "certain target"


class SmallLaws(NamedTuple):
    """A target and a draft model under a name, small enough for texts to be told apart."""

    name: str
    vocab_size: int
    target: Model
    draft: Model
    has_zeros: bool = False

    def fitting(self, tree: Topology) -> Topology:
        """Tree without the levels that make too many texts to tell apart."""
        depth = tree.depth
        while depth > 1 and self.vocab_size ** (depth + 1) > MAX_TEXTS:
            depth -= 1
        return tree.cut(depth)


@dataclass(frozen=True, slots=True, eq=False)
class WideLaws:
    """Laws that depend on the place of a token alone, over a vocabulary of any size.

    The last rows of p and of q, each of shape (V,), stand for all places after them; after a text
    of this length, token 0 is certain.
    """

    name: str
    rows: Sequence[Vector]
    draft_rows: Sequence[Vector]
    length: int
    has_zeros: ClassVar[bool] = False
    begin: ClassVar[tuple[int, ...]] = ()

    @property
    def vocab_size(self) -> int:
        return self.rows[0].size

    def target(self, text: tuple[int, ...]) -> Vector:
        return self._law(text, self.rows)

    def draft(self, text: tuple[int, ...]) -> Vector:
        return self._law(text, self.draft_rows)

    def _law(self, text: tuple[int, ...], rows: Sequence[Vector]) -> Vector:
        if len(text) >= self.length:
            return (np.arange(self.vocab_size) == 0).astype(np.float64)
        return rows[min(len(text), len(rows) - 1)]

    def fitting(self, tree: Topology) -> Topology:
        """The tree itself: texts are told apart by classes of their tokens."""
        return tree

    def __str__(self) -> str:
        return f"V = {self.vocab_size:,}, {self.length} tokens, {self.name}, laws by place"


def standard_laws(most_drafts: int) -> list[SmallLaws]:
    """Small laws on which every rule is audited if none are given.

    Random, peaked, sharp and nearly equal ones, those of `fixed_laws`, some with zeros on either
    side, a certain target and, of single drafts, a certain one, as those that are looked up in a
    text, over three tokens more than there are drafts after a node.
    """
    size = max(4, most_drafts + 3)
    target, draft = TableModel(size, 47), TableModel(size, 48)  # telling, see `audit_tree`
    peaked, sure = TableModel(size, 3, 0.3), _certain(target)
    of_one = [SmallLaws("certain draft", size, target, sure, True)] if most_drafts == 1 else []
    return [
        SmallLaws("random", size, target, draft),
        *fixed_laws(size),
        SmallLaws("peaked", size, peaked, _mixed(peaked, draft)),
        SmallLaws("sharp", size, _mixed(sure, target, 0.9), _mixed(sure, draft, 0.99)),
        SmallLaws("nearly equal", size, target, _mixed(target, draft, 0.95)),
        SmallLaws("zeros", size, _without(target, 0), _without(draft, 1), True),
        *of_one,
        SmallLaws(CERTAIN, size, sure, draft, True),
    ]


def fixed_laws(size: int) -> list[SmallLaws]:
    """Laws that random ones never are: with ties, a residual of several unlike tokens, and p = q.

    Those of four tokens are p = 1/4 each and q = (.7, .1, .1, .1); p = (.4, .3, .2, .1) and q in
    reverse; and p = q, in which another token is the first after each text.
    """
    flat, falling = np.full(size, 1.0 / size), np.arange(size, 0.0, -1.0) / (size * (size + 1) / 2)
    skewed = np.array([0.7, *[0.3 / (size - 1)] * (size - 1)])
    pairs = {"tied": (flat, skewed), "reversed": (falling, falling[::-1]), "equal": (falling,) * 2}
    return [SmallLaws(name, size, _rolled(p), _rolled(q)) for name, (p, q) in pairs.items()]


def edge_laws() -> list[SmallLaws]:
    """Laws that functions fail on which are right on others.

    One token, a flat law that is its own draft, a certain target, a certain draft, and two laws
    without a token in common.
    """
    pairs = {
        "one token": ([1.0], [1.0]),
        "flat": ([0.25] * 4, [0.25] * 4),
        CERTAIN: ([0.0, 1.0, 0.0], [0.2, 0.3, 0.5]),
        "certain draft": ([0.2, 0.3, 0.5], [0.0, 1.0, 0.0]),
        "unlike": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]),
    }

    def always(law: list[float]) -> Model:
        values = np.array(law)
        return lambda text: values

    return [SmallLaws(x, len(p), always(p), always(q), True) for x, (p, q) in pairs.items()]


def _rolled(law: Vector) -> Model:
    return lambda text: np.roll(law, sum(text))


def telling_laws(length: int) -> WideLaws:
    """Wide laws on which common faults show in some dozens of calls.

    Three quarters of 2,048 tokens are impossible, and drafted all the same: what moves a residual
    or the last token there gives itself away.
    """
    wide = wide_laws(length)[-1]
    rows, drafts = [], []
    for p, q in zip(wide.rows, wide.draft_rows, strict=False):
        possible = np.where(np.arange(p.size) % 4 == 0, p, 0.0)
        rows.append(possible / possible.sum())
        drafts.append(0.6 * rows[-1] + 0.4 * q)
    return WideLaws("impossible tail", rows, drafts, length)


def wide_laws(length: int, vocab_sizes: Sequence[int] | None = None) -> list[WideLaws]:
    """Laws, of so many places, on which constants such as a cut at the 50 likeliest tokens show.

    One with a long tail of each size; without sizes, a random one of 32 tokens and one of 2,048
    with a long tail.
    """
    if vocab_sizes is not None:
        sizes: Any = vocab_sizes
        whole = isinstance(sizes, (list, tuple, range)) and len(sizes) > 0
        if not (whole and all(x in range(2, _MOST_TOKENS + 1) for x in sizes)):
            raise InvalidInput(
                f"vocab_sizes is {sizes!r}: give a list of numbers from 2 to {_MOST_TOKENS:,}"
            )
        return [_long_tailed(size, length) for size in vocab_sizes]
    rng = np.random.default_rng([0, _WIDE])
    rows = rng.dirichlet(np.ones(_WIDE), (length, 2))
    wide = WideLaws("wide", list(rows[:, 0]), list(rows[:, 1]), length)
    return [wide, _long_tailed(_LONG, length)]


def _long_tailed(size: int, length: int) -> WideLaws:
    """Power law in random order; the draft knows its head and has too little of its tail."""
    rng = np.random.default_rng([0, size])
    ranks = np.arange(1.0, size + 1)
    target, draft = [], []
    for _ in range(length):
        order = rng.permutation(size)
        weights = ranks**-_STEEPNESS
        skewed = weights / ranks**0.8 * np.exp(rng.normal(0.0, 0.7, size))
        target.append((weights / weights.sum())[order])
        draft.append((skewed / skewed.sum())[order])
    return WideLaws("long tail", target, draft, length)


def given_laws(laws: Any, length: int) -> list[WideLaws]:
    """Laws from logits (..., V) that you have: consecutive rows are the places of a text.

    The last row stands for places that are missing. `InvalidInput` where they are no such logits.
    """
    if not isinstance(laws, list | tuple | np.ndarray) or len(laws) != 2:
        raise InvalidInput(f"laws is {laws!r:.60}: give a pair, logits of target and draft")
    named = zip(("the target's laws", "the draft's laws"), laws, strict=True)
    opened = (as_logits(Opened.of(side, name), None).numpy() for name, side in named)
    try:
        p, q = (
            Sampling().law(side).reshape(-1, side.shape[-1]) if side.size else side
            for side in opened
        )
    except MdsdError as error:
        raise InvalidInput(f"laws are no logits: {error}") from error
    if not p.size or p.shape[-1] != q.shape[-1] or len(p) - len(q) not in (0, 1):
        raise InvalidInput(
            f"laws have shapes {p.shape} and {q.shape}: give logits of target and draft over one "
            "vocabulary, a row for each place, of which the draft may lack the last"
        )
    starts = np.unique(np.linspace(0, max(len(p) - length, 0), _MOST_GIVEN).astype(int))
    return [
        WideLaws(f"given, row {n}", list(p[n : n + length]), list(q[n : n + length]), length)
        for n in starts.tolist()
        if n < len(q)
    ]


def _mixed(one: Model, other: Model, share: float = 0.5) -> Model:
    return lambda text: share * one(text) + (1 - share) * other(text)


def _without(model: Model, shift: int) -> Model:
    """Model with one token, another after each text, made impossible."""

    def law(text: tuple[int, ...]) -> Vector:
        p = model(text).copy()
        p[(sum(text) + shift) % p.size] = 0.0
        return p / p.sum()

    return law


def _certain(model: Model) -> Model:
    """Model that gives all mass to its likeliest token."""

    def law(text: tuple[int, ...]) -> Vector:
        p = model(text)
        one: Vector = (np.arange(p.size) == np.argmax(p)).astype(np.float64)
        return one

    return law


#: Logit of a token of probability zero: finite, yet exp(_IMPOSSIBLE) is 0 in every type.
_IMPOSSIBLE = -1e4


class Toy:
    """A model: maps ids, shape (n,), to logits after each beginning, shape (n + 1, V).

    `hear` is called with every text that the model is asked about. Laws by place are kept once for
    each place, so that a wide vocabulary takes no more memory than its rows.
    """

    def __init__(
        self,
        law: Callable[[Text], Vector],
        vocab_size: int,
        hear: Callable[[Text], None],
        by_place: bool = False,
    ) -> None:
        self._law, self.hear, self.vocab_size = law, hear, vocab_size
        self._by_place = by_place
        self._rows: dict[Text, Vector] = {}
        self._answers: dict[Text, Vector] = {}

    def __call__(self, ids: Any) -> Vector:
        text = self.checked(np.ravel(ids).tolist())
        self.hear(text)
        known = self._key(text)
        if known not in self._answers:
            self._answers[known] = np.stack([self.row(text[:n]) for n in range(len(text) + 1)])
        return self._answers[known].copy()

    def _key(self, text: Text) -> Text:
        """Representative of the texts with the same law as this one."""
        return (0,) * len(text) if self._by_place else text

    def checked(self, ids: list[Any]) -> Text:
        """Text of ids, checked to be tokens."""
        text = tuple(int(i) for i in ids)
        for token in text:
            if not 0 <= token < self.vocab_size:
                raise InvalidInput(
                    f"a model was asked about token {token}, outside 0..{self.vocab_size - 1}"
                )
        return text

    def row(self, text: Text) -> Vector:
        text = self._key(text)
        if text not in self._rows:
            law = self._law(text)
            self._rows[text] = np.where(law > 0, np.log(np.where(law > 0, law, 1.0)), _IMPOSSIBLE)
        return self._rows[text]
