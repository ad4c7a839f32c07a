"""Fitted rules that select one draft, the exact law of the selection, and decisions by them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers, Vector, frozen
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import target_of
from mdsd_opt.verifiers.rejection import accepted, nothing_accepted, residual_law
from mdsd_opt.verifiers.verdicts import Decision

#: Most draft tuples that p_Z may be summed over in exact arithmetic.
_MAX_EXACT_TUPLES = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class SelectionRule(ABC):
    """Rule by which drafts outside H beat those inside, and among the rest a token's score decides.

    Tokens of H are selected only where no other token is drafted. Arrays of tokens have shape (V,).
    """

    scores: Vector  # the number: a potential or a height
    subset: Flags  # H
    fixed: Integers  # tokens that are drafted for certain and take no part
    selection: Vector  # p_Z, the law of the selected draft
    target: Vector  # without the fixed tokens
    bound: float  # acceptance rate without residual hits
    upper: float  # what no lossless rule exceeds
    evaluations: int  # of p_Z, or of its sums over the vocabulary, in the fit of both sides

    #: Whether a token drafted twice takes part twice.
    repeats: ClassVar[bool]

    @property
    def gap(self) -> float:
        """Upper bound of the optimum's distance from `bound`."""
        return max(self.upper - self.bound, 0.0)

    @abstractmethod
    def win_probabilities(self, scores: Sequence[float], exact: bool) -> list[Any]:
        """Probability that each of some drafts of one side is selected, from their scores."""

    def shares(self, drafts: Integers, exact: bool = False) -> list[tuple[int, Any]]:
        """Places of the drafts that may be selected, with their probabilities."""
        places = [k for k in range(self.fixed.size, drafts.size) if drafts[k] >= 0]
        if not self.repeats:
            first = {int(drafts[k]): k for k in reversed(places)}
            places = sorted(first.values())
        outside = [k for k in places if not self.subset[drafts[k]]]
        rivals = outside or places
        if not rivals:
            return []
        scores = self.scores[drafts[rivals]].tolist()
        return list(zip(rivals, self.win_probabilities(scores, exact), strict=True))


class FittedRule:
    """Decisions on one problem by its selection rule."""

    def __init__(self, rule: SelectionRule) -> None:
        self.rule = rule
        self._laws: dict[bool, tuple[Numbers, Numbers, Numbers]] = {}

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool) -> Decision:
        """Accept the selected z with probability min(1, p_z / p_Z(z)), else draw (p - p_Z)+."""
        p, selection, residual = self._law(problem, exact)
        accept = nothing_accepted(drafts, p)
        for place, share in self.rule.shares(drafts, exact):
            token = int(drafts[place])
            accept[place] = share * accepted(p[token], selection[token])
        return Decision(accept, residual)

    def _law(self, problem: TransportProblem, exact: bool) -> tuple[Numbers, Numbers, Numbers]:
        """Target without fixed tokens, p_Z, and the law of the output after a rejection."""
        if exact not in self._laws:
            target = target_of(problem, exact)
            p = target.copy()
            p[self.rule.fixed] = target[0] * 0
            selection = self._exact_selection(problem) if exact else np.array(self.rule.selection)
            taken = np.minimum(p, selection)
            self._laws[exact] = (p, selection, residual_law(target, taken))
        return self._laws[exact]

    def _exact_selection(self, problem: TransportProblem) -> Numbers:
        """Law p_Z of the same rule, summed over all draft tuples in Fractions."""
        count = problem.drafts.count_tuples()
        if count > _MAX_EXACT_TUPLES:
            raise ProblemTooLarge(
                f"exact=True sums the law of the selected draft over {count:,} draft tuples, more "
                f"than {_MAX_EXACT_TUPLES:,}: use exact=False, or a smaller vocabulary"
            )
        law = np.array([Fraction(0)] * problem.vocab_size, dtype=object)
        for drafts, mass in zip(*problem.law(exact=True).drafts.tuple_law(), strict=True):
            for place, share in self.rule.shares(drafts, exact=True):
                law[drafts[place]] += mass * share
        return law


@cache
def gauss_rule(degree: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on [0, 1], exact up to this degree."""
    x, w = np.polynomial.legendre.leggauss(degree // 2 + 1)
    return frozen((1.0 + x) / 2.0), frozen(w / 2.0)
