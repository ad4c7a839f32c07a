"""Tokens by their place in a text, where the law of a place does not depend on what came before.

A lossless rule then gives independent tokens, the n-th of which follows :math:`p_n`, so that wide
vocabularies can be looked at: by classes in the order of p, of q and of p / q, token by token,
and in pairs of neighbours. Nothing is held but the rows of p and q, and the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.causes import cause
from mdsd_opt.auditing.output_checks import (
    by_rank,
    law_ratio_order,
    merged_cells,
    points_of,
    succession_check,
)
from mdsd_opt.auditing.report import Check, Interval
from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.drafts import WithReplacement

#: Most classes of tokens in one order; fewer classes let fewer calls see the same bias.
_CLASSES = 32


class ByPlace:
    """Texts that the rule gave, completed by the target.

    Parameters
    ----------
    target, draft : sequence of ndarray, shape (V,)
        p of each place, and q; the last row of q stands for all places after it.
    """

    def __init__(self, target: Sequence[Vector], draft: Sequence[Vector]) -> None:
        self.target = list(target)
        self.draft = [draft[min(n, len(draft) - 1)] for n in range(len(target))]
        self._reached = [np.cumsum(p) for p in self.target]
        self._tokens: list[list[int]] = []

    @property
    def size(self) -> int:
        """Number of texts."""
        return len(self._tokens)

    @property
    def certain(self) -> bool:
        """Whether every place has one possible token."""
        return all(int((p > 0).sum()) == 1 for p in self.target)

    def add(self, outcome: Sequence[int], rng: np.random.Generator) -> int | None:
        """Add the beginning of a text; if it holds an impossible token, return that instead."""
        for token, p in zip(outcome, self.target, strict=False):
            if p[token] <= 0:
                return token
        missing = range(len(outcome), len(self.target))
        self._tokens.append([*outcome, *(self._completion(n, rng) for n in missing)])
        return None

    def _completion(self, place: int, rng: np.random.Generator) -> int:
        reached = self._reached[place]
        token = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
        return min(token, int(np.flatnonzero(self.target[place])[-1]))

    def tokens(self) -> Integers:
        """All tokens, shape (places, texts)."""
        return np.array(self._tokens, dtype=np.int64).reshape(self.size, len(self.target)).T

    def examined(self, rng: np.random.Generator, confidence: float) -> Examined:
        """Results of all checks of the texts."""
        return Examined(self, rng, confidence)


class Examined:
    """Checks of texts by place, and the distance at the worst place.

    Attributes
    ----------
    checks : list of Check
    num_cells : int
        Classes of the finest check.
    distance : tuple of float and Interval
        Total variation between the classes of one order at the worst place.
    first : float
        The same at the first place.
    place : int
        The worst place.
    """

    def __init__(self, texts: ByPlace, rng: np.random.Generator, confidence: float) -> None:
        self._texts, self._tokens = texts, texts.tokens()
        self.checks: list[Check] = []
        self.num_cells = 0
        found: list[tuple[float, Interval, int]] = []
        for place, row in enumerate(self._tokens):
            found += self._one_place(place, row, rng, confidence)
        self._pairs(rng)
        estimate, interval, self.place = max(found, key=lambda one: (one[1].low, one[0]))
        self.distance = estimate, interval
        self.first = max(one[0] for one in found if one[2] == 0)

    def _one_place(
        self, place: int, row: Integers, rng: np.random.Generator, confidence: float
    ) -> list[tuple[float, Interval, int]]:
        p, q = self._texts.target[place], self._texts.draft[place]
        found = []
        orders = {"p / q": law_ratio_order(p, q), "p": by_rank(p), "q": by_rank(q)}
        for name, order in orders.items():
            cells = merged_cells(p, order, row.size, _CLASSES)
            self.num_cells = max(self.num_cells, cells.probabilities.size)
            scores, _ = statistics.split_scores(cells.counts(row), cells.probabilities, rng)
            looks_for = f"mass moved between classes of tokens by {name}"
            p_value = statistics.chi_square(scores)
            self.checks.append(Check(f"token {place + 1} by {name}", looks_for, p_value))
            groups = cells.of_token[row]
            distance = statistics.distance(groups, cells.probabilities, confidence)
            found.append((*distance, place))
        possible = p > 0
        if possible.sum() > 2:
            counts = np.bincount(row, minlength=p.size)[possible]
            p_value = statistics.single_tokens(counts, p[possible])[0]
            looks_for = "one token too often or too rare"
            self.checks.append(Check(f"token {place + 1} alone", looks_for, p_value))
        return found

    def _pairs(self, rng: np.random.Generator) -> None:
        """Check that no token depends on the one before it, nor a text on earlier ones."""
        laws, tokens = self._texts.target, self._tokens
        quarters = [merged_cells(p, by_rank(p), self._texts.size, 4) for p in laws]
        for n in range(len(quarters) - 1):
            left, right = quarters[n], quarters[n + 1]
            pairs = left.of_token[tokens[n]] * right.probabilities.size
            pairs = pairs + right.of_token[tokens[n + 1]]
            law = np.outer(left.probabilities, right.probabilities).ravel()
            counts = np.bincount(pairs, minlength=law.size)
            p_value = statistics.chi_square(statistics.split_scores(counts, law, rng)[0])
            looks_for = "a token that depends on the one before it"
            self.checks.append(Check(f"tokens {n + 1} and {n + 2}", looks_for, p_value))
        first = quarters[0]
        after = statistics.consecutive(first.of_token[tokens[0]], first.probabilities, rng)
        points = points_of(laws[0], by_rank(laws[0]), tokens[0], rng)
        looks_for = "texts that depend on earlier ones"
        self.checks.append(succession_check(after, points, rng, "succession", looks_for))

    @property
    def cause(self) -> str:
        """Name of the deviation's shape at the worst place, if it has a shape that was tested."""
        texts = self._texts
        p, q = texts.target[self.place], texts.draft[self.place]
        frequencies = np.bincount(self._tokens[self.place], minlength=p.size) / max(texts.size, 1)
        return cause(frequencies, p, WithReplacement(q, 1), texts.size)
