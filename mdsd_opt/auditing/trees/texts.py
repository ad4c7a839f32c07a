"""The law of texts of a fixed length, and of how a shorter one goes on under the target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.trees.tables import Laws
from mdsd_opt.decoding.draft_tree import Tokens
from mdsd_opt.drafts.counting import count_power, readable
from mdsd_opt.errors import ProblemTooLarge

Vector = NDArray[np.float64]

#: Texts that an audit tells apart.
MAX_TEXTS = 200_000


class Texts:
    """Texts of a length, numbered in lexicographic order.

    Parameters
    ----------
    target : Laws
    length : int

    Raises
    ------
    ProblemTooLarge
        There are more than 200,000.
    """

    def __init__(self, target: Laws, length: int) -> None:
        count = count_power(target.vocab_size, length)
        if count > MAX_TEXTS:
            raise ProblemTooLarge(
                f"V = {target.vocab_size} and {length} tokens make {readable(count)} texts, over "
                f"the limit of {MAX_TEXTS:,}: take a smaller vocabulary or a shallower tree"
            )
        self._target, self.length, self.vocab_size = target, length, target.vocab_size
        self._rest: dict[Tokens, Vector] = {}
        self.law = self.rest(())

    def rest(self, text: Tokens) -> Vector:
        """Law of the tokens up to the full length after a text, shape (V**(length - n),)."""
        if len(text) == self.length:
            return np.ones(1)
        if text not in self._rest:
            parts = [
                p * self.rest((*text, token)) for token, p in enumerate(self._target(text).tolist())
            ]
            self._rest[text] = np.concatenate(parts)
        return self._rest[text]

    def place(self, text: Tokens) -> slice:
        """Where the texts stand that begin with this one."""
        number = 0
        for token in text:
            number = number * self.vocab_size + token
        width = self.vocab_size ** (self.length - len(text))
        return slice(number * width, (number + 1) * width)

    def text(self, number: int) -> Tokens:
        """The text of a number."""
        return tuple(
            number // self.vocab_size ** (self.length - 1 - n) % self.vocab_size
            for n in range(self.length)
        )

    def completed(self, text: Tokens, rng: np.random.Generator) -> int:
        """Number of a text that begins with this one and goes on under the target."""
        rest = self.rest(text)
        reached = np.cumsum(rest)
        drawn = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
        return self.place(text).start + min(drawn, int(np.flatnonzero(rest)[-1]))

    def first_token(self, law: Vector) -> Vector:
        """Law of the first token under a law of the texts."""
        sums: Vector = law.reshape(self.vocab_size, -1).sum(axis=1)
        return sums
