"""Toy language models: random tables of laws that answer as models do, and report each question.

A table gives the law of the next token after every text of fewer tokens than are compared, and
token 0 for sure after longer ones, so that a session which goes on draws nothing more of interest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.sources import default_rng
from mdsd_opt.auditing.trial_laws import WideLaws, fixed_laws
from mdsd_opt.base.array_types import Text, Vector
from mdsd_opt.errors import InvalidInput

#: Logit of a token of probability zero: finite, yet exp(IMPOSSIBLE) is 0 in every type.
IMPOSSIBLE = -1e4

#: Least weight of a possible token, beside exponential ones of mean 1.
_LEAST = 0.05


@dataclass(frozen=True, slots=True)
class Tables:
    """A pair of random tables, and the texts to compare on them.

    The laws are random ones, each pair with a seed of its own, or those of `fixed_laws` with these
    numbers, in turn.
    """

    vocab_size: int
    length: int
    seed: int
    memory: int | None = None  # tokens at the end of a text that the laws depend on; None for all
    zeros: bool = False  # whether one token in each law is impossible
    fixed: tuple[int, ...] = ()
    begin: Text = ()  # tokens before those that are compared, which the laws are not asked about

    def target(self, text: Text) -> Vector:
        return self._law(text, 0)

    def draft(self, text: Text) -> Vector:
        return self._law(text, 1)

    def _law(self, text: Text, model: int) -> Vector:
        size = self.vocab_size
        if len(text) >= self.length:
            return np.eye(size)[0]
        if self.fixed:
            turn = self.fixed[(1 + sum(text) + len(text)) % len(self.fixed)]
            laws = fixed_laws(size)[turn]
            return (laws.target, laws.draft)[model](text)
        last = text if self.memory is None else text[len(text) - min(self.memory, len(text)) :]
        rng = default_rng([self.seed, model, size, len(last), *last])
        weights = rng.exponential(size=size) + _LEAST
        if self.zeros:
            weights[rng.integers(size)] = 0.0
        law: Vector = weights / weights.sum()
        return law

    def __str__(self) -> str:
        if self.fixed:
            names = ", ".join(fixed_laws(self.vocab_size)[n].name for n in self.fixed)
            return f"V = {self.vocab_size}, {self.length} tokens, {names} laws"
        after = "the whole text" if self.memory is None else "the last token"
        zeros = ", one token impossible" if self.zeros else ""
        begun = f" behind {len(self.begin)} given ones" if self.begin else ""
        return f"V = {self.vocab_size}, {self.length} tokens{begun}, laws after {after}{zeros}"


AnyTables = Tables | WideLaws


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
            self._rows[text] = np.where(law > 0, np.log(np.where(law > 0, law, 1.0)), IMPOSSIBLE)
        return self._rows[text]
