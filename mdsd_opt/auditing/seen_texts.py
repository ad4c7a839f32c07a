"""Texts that a rule gave, completed by the target: as numbers, or by the place of each token.

Where there are few texts, each has its number, and all of their law is looked at. Over a wide
vocabulary the law of a place does not depend on what came before: a lossless rule then gives
independent tokens, the n-th of which follows :math:`p_n`, and is looked at by classes in the order
of p, of q and of p / q, token by token, and in pairs of neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mdsd_opt.auditing.causes import cause
from mdsd_opt.auditing.checks import (
    TEXTS,
    Sight,
    by_rank,
    direction_check,
    law_checks,
    law_ratio_order,
    mass_before,
    merged_cells,
    outcome_succession,
    ratios,
    tail_cells,
)
from mdsd_opt.auditing.laws import PlaceLaws, Texts, drawn_from
from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.evidence import ANY, Check, Example, Interval, oddest, statistics

#: Most classes of tokens in one order; fewer classes let fewer calls see the same bias.
_CLASSES = 32


class Seen(NamedTuple):
    """Results of all checks of the texts.

    Total variation, which by places is that between the classes of one order at the worst `place`,
    comes with its interval, and beside that of the `first` token.
    """

    checks: tuple[Check, ...]
    sight: Sight
    distance: float
    interval: Interval
    first: float
    place: int = 0


class Numbered:
    """Texts by their numbers."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self._numbers: list[int] = []

    @property
    def numbers(self) -> Integers:
        """Numbers of the texts, shape (N,)."""
        return np.array(self._numbers, dtype=np.int64)

    @property
    def size(self) -> int:
        return len(self._numbers)

    @property
    def law(self) -> Vector:
        """Observed frequencies of the texts."""
        return np.bincount(self.numbers, minlength=self.texts.law.size) / max(self.size, 1)

    def add(self, outcome: tuple[int, ...], rng: np.random.Generator) -> bool:
        """Add the beginning of a text, completed by the target, if it is possible."""
        if not self.texts.law[self.texts.place(outcome)].any():
            return False
        self._numbers.append(self.texts.completed(outcome, rng))
        return True

    def examined(self, rng: np.random.Generator, confidence: float) -> Seen:
        law, numbers = self.texts.law, self.numbers
        cells = merged_cells(law, np.arange(law.size), self.size)
        checks, sight = law_checks(law, np.arange(law.size), numbers, rng, TEXTS)
        distance = statistics.distance(numbers, law, confidence, cells.of_token)
        heads = numbers // (law.size // self.texts.vocab_size)
        first, _ = statistics.distance(heads, self.texts.first_token(law), confidence)
        return Seen(checks, sight, *distance, first)

    def cause(self, place: int) -> str:
        """Nothing: the shape of a law of whole texts has no name."""
        return ""

    def example(self, place: int) -> Example:
        shares, law = self.law, self.texts.law
        n = oddest(shares, law, max(self.size, 1))
        return Example("", self.texts.text(n), float(law[n]), float(shares[n]), self.size)


class ByPlace:
    """Texts by the places of their tokens, of laws p and q (V,) for each place.

    The last row of q stands for all places after it.
    """

    #: Classes between which tokens are compared, in words, and whether other changes show as well.
    classes, sees_all = "between classes of tokens by p, q or p/q", True

    def __init__(self, target: Sequence[Vector], draft: Sequence[Vector]) -> None:
        self.target = list(target)
        self.draft = [draft[min(n, len(draft) - 1)] for n in range(len(target))]
        self._reached = [np.cumsum(p) for p in self.target]
        self._possible = [(p > 0).tolist() for p in self.target]
        self._tokens: list[list[int]] = []

    @property
    def size(self) -> int:
        return len(self._tokens)

    def add(self, outcome: tuple[int, ...], rng: np.random.Generator) -> bool:
        tokens = list(outcome)
        for token, possible in zip(outcome, self._possible, strict=False):
            if not possible[token]:
                return False
        for reached in self._reached[len(tokens) :]:
            tokens.append(drawn_from(reached, rng))
        self._tokens.append(tokens)
        return True

    def tokens(self) -> Integers:
        """All tokens, shape (places, texts)."""
        return np.array(self._tokens, dtype=np.int64).reshape(self.size, len(self.target)).T

    def examined(self, rng: np.random.Generator, confidence: float) -> Seen:
        checks: list[Check] = []
        cells: list[int] = []
        distances: list[tuple[float, Interval, int]] = []
        tokens = self.tokens()
        confidence = 1 - (1 - confidence) / (3 * len(tokens))  # the worst of so many is taken
        for place, row in enumerate(tokens):
            p, q = self.target[place], self.draft[place]
            by_name = {
                "p / q": merged_cells(p, law_ratio_order(p, q), row.size, _CLASSES),
                "p": tail_cells(p, row.size),
                "q": merged_cells(p, by_rank(q), row.size, _CLASSES),
            }
            for name, classes in by_name.items():
                cells.append(classes.probabilities.size)
                looks_for = f"mass moved between classes of tokens by {name}"
                p_value = statistics.chi_square(classes.scores(row, rng)[0])
                checks.append(Check(f"token {place + 1} by {name}", looks_for, p_value))
                groups = classes.of_token[row]
                distance = statistics.distance(groups, classes.probabilities, confidence)
                distances.append((*distance, place))
            if np.count_nonzero(p) > 2:
                p_value = statistics.single_tokens(np.bincount(row, minlength=p.size), p)
                looks_for = "one token too often or too rare"
                checks.append(Check(f"token {place + 1} alone", looks_for, p_value))
            checks.append(direction_check(p, row, f"token {place + 1} in any direction"))
        checks += self._pairs(tokens, rng)
        estimate, interval, worst = max(distances, key=lambda one: (one[1].low, one[0]))
        first = max(one[0] for one in distances if one[2] == 0)
        scope = self.classes if any((p > 0).sum() > 1 for p in self.target) else ""
        laws = self.target if self.sees_all else ()
        sight = Sight(self.size, max(cells), scope, laws, f"{ANY} of one place's law")
        return Seen(tuple(checks), sight, estimate, interval, first, worst)

    def _pairs(self, tokens: Integers, rng: np.random.Generator) -> list[Check]:
        """Checks that no token depends on the one before it, nor a text on earlier ones."""
        looks_for = "a token that depends on the one before it"
        checks = []
        for n in range(len(tokens) - 1):
            both, name = slice(n, n + 2), f"tokens {n + 1} and {n + 2}"
            checks.append(pair_check(self.target[both], tokens[both], name, looks_for, rng))
        p = self.target[0]
        return [*checks, outcome_succession(p, by_rank(p), tokens[0], rng, TEXTS)]

    def cause(self, place: int) -> str:
        p, q = self.target[place], self.draft[place]
        return cause(self._shares(place), p, WithReplacement(q, 1), self.size)

    def _shares(self, place: int) -> Vector:
        size = self.target[place].size
        return np.bincount(self.tokens()[place], minlength=size) / max(self.size, 1)

    def example(self, place: int) -> Example:
        shares, law = self._shares(place), self.target[place]
        n = oddest(shares, law, max(self.size, 1))
        where = f"in place {place + 1} of a text"
        return Example(where, (n,), float(law[n]), float(shares[n]), self.size)


def pair_check(
    laws: Sequence[Vector], tokens: Integers, name: str, looks_for: str, rng: np.random.Generator
) -> Check:
    """Check that tokens (2, N) of two laws are independent, between quarters of each by rank."""
    first, second = (merged_cells(p, by_rank(p), tokens.shape[1], 4) for p in laws)
    pairs = first.of_token[tokens[0]] * second.probabilities.size + second.of_token[tokens[1]]
    law = np.outer(first.probabilities, second.probabilities).ravel()
    counts = np.bincount(pairs, minlength=law.size)
    scores, _ = statistics.split_scores(counts, law, rng)
    return Check(name, looks_for, statistics.chi_square(scores))


class ByText(ByPlace):
    """Texts by place under laws that depend on all tokens before, as with penalties.

    A token counts as the one at the same quantile, in the order of p / q, of the law that its place
    has after the likeliest text: if each token follows its own law, these follow the laws of their
    places, and what moves mass along p / q moves as much of it there. Beside that it is counted how
    often a token comes again, which penalties are about.
    """

    classes, sees_all = "along p/q, where laws depend on the text", False

    def __init__(self, target: PlaceLaws, draft: PlaceLaws) -> None:
        super().__init__(target.rows, draft.rows)
        self._laws = target, draft
        pairs = zip(self.target, self.draft, strict=True)
        self._orders = [law_ratio_order(p, q) for p, q in pairs]
        self._again = self._variance = 0.0

    def add(self, outcome: tuple[int, ...], rng: np.random.Generator) -> bool:
        text, tokens = outcome, []
        for n in range(len(self.target)):
            p, q = (law(text[:n]) for law in self._laws)
            if n == len(text):
                text = (*text, int(rng.choice(p.size, p=p)))
            token = text[n]
            if p[token] <= 0:
                return False
            mass = float(p[list(set(text[:n]))].sum())
            self._again += (token in text[:n]) - mass
            self._variance += mass * (1 - mass)
            order, before = self._orders[n], mass_before(ratios(p, q), p, token)
            reached = self.target[n][order].cumsum()
            at = np.searchsorted(reached, (before + rng.random() * p[token]) * reached[-1], "right")
            tokens.append(int(order[min(at, np.flatnonzero(self.target[n][order])[-1])]))
        return super().add(tuple(tokens), rng)

    def examined(self, rng: np.random.Generator, confidence: float) -> Seen:
        """Results of all checks of the texts; that of tokens which come again by Bernstein."""
        seen, off = super().examined(rng, confidence), abs(self._again)
        p_value = min(2 * math.exp(-off * off / (2 * (self._variance + off / 3) or 1.0)), 1.0)
        again = Check("tokens that come again", "a penalty that is not the one promised", p_value)
        return seen._replace(checks=(*seen.checks, again))

    def cause(self, place: int) -> str:
        """Nothing: the laws of other texts have other shapes."""
        return ""


def by_place(target: PlaceLaws, draft: PlaceLaws) -> ByPlace:
    """Texts over a wide vocabulary, none yet."""
    if target.by_text or draft.by_text:
        return ByText(target, draft)
    return ByPlace(target.rows, draft.rows)
