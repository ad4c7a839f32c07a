"""Models that are tables: a law of the next token after every text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.decoding.draft_tree import Tokens
from mdsd_opt.errors import InvalidInput

Vector = NDArray[np.float64]


class TableModel:
    """Random laws of the next token, drawn when they are first asked for; each text has its own.

    Parameters
    ----------
    vocab_size : int
        V.
    seed : int
        Another seed makes another model.
    concentration : float
        Of the Dirichlet law they are drawn from; small ones make peaked laws.
    """

    def __init__(self, vocab_size: int, seed: int = 0, concentration: float = 1.0) -> None:
        self.vocab_size, self.seed, self.concentration = vocab_size, seed, concentration

    def __call__(self, text: Tokens) -> Vector:
        rng = np.random.default_rng([self.seed, self.vocab_size, len(text), *text])
        return rng.dirichlet(np.full(self.vocab_size, self.concentration))


class Laws:
    """The laws of a model, asked for once and checked.

    Raises
    ------
    InvalidInput
        The model gives another number of probabilities after some text.
    """

    def __init__(self, model: Callable[[Tokens], Any], name: str) -> None:
        if not callable(model):
            raise InvalidInput(
                f"{name} is a {type(model).__name__}: give a function from a text (a tuple of "
                "token ids) to the probabilities of the next token"
            )
        self._model, self._name = model, name
        self._known: dict[Tokens, Vector] = {}
        self.vocab_size = self(()).size

    def __call__(self, text: Tokens) -> Vector:
        if text not in self._known:
            law = Distribution.of(self._model(text), f"{self._name} after {text}").values
            if self._known and law.size != self.vocab_size:
                raise InvalidInput(
                    f"{self._name} gives {law.size} probabilities after {text}, and "
                    f"{self.vocab_size} after ()"
                )
            self._known[text] = law
        return self._known[text]
