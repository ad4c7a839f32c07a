"""Importance-weighted sampling [Khisti25]: select one draft, then verify it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, IndependentDrafts, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.truncated_lp import PairRule, pair_rule
from mdsd_opt.verifiers.base import Decision, Verifier, normalised, positive_part
from mdsd_opt.verifiers.estimate import Estimate
from mdsd_opt.verifiers.rejection import accepted

#: Draft tuples up to which the acceptance rate is enumerated.
_MAX_TUPLES = 3000

_SAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class _Tournament:
    """One pair rule for each round: the winner so far against the next draft."""

    rounds: tuple[PairRule, ...]
    selection: NDArray[np.float64]


class ImportanceSampling(Verifier):
    r"""Select a draft by the truncated LP, then accept it with probability min(1, p/p_I).

    For K > 2 a tournament: the winner of the first drafts, whose law is known, meets the next
    draft, and the LP is solved for that pair of laws. The residual :math:`(p - p_I)_+` may hit a
    draft that was not selected, so :math:`\sum \min(p, p_I)` is a lower bound of the acceptance
    rate (`acceptance_bound`), equal to it and to the optimum at K = 2 if `size` is V. Lossless for
    drafts with replacement and for different draft models. Cost O(K V log V) and K - 1 LPs in
    :math:`s^2/2` variables.

    Parameters
    ----------
    size : int
        s, the tokens between which the LP decides; pairs outside this truncated alphabet follow a
        fixed rule.
    rule : {"published", "ratio"}
        That rule, see the method truncated_lp.
    """

    name: ClassVar[str] = "importance_sampling"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement, IndependentDrafts)
    rational: ClassVar[bool] = False

    def __init__(self, size: int = 5, rule: str = "published") -> None:
        self.size = size
        self.rule = rule
        self._known: WeakKeyDictionary[TransportProblem, _Tournament] = WeakKeyDictionary()

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        tournament = self._tournament(problem)
        selected = np.zeros(drafts.size)
        selected[0] = 1.0
        for k, rule in enumerate(tournament.rounds, start=1):
            newcomer = int(drafts[k])
            stays = np.array([rule.first_wins(int(x), newcomer) for x in drafts[:k]])
            lost = selected[:k] * (1.0 - stays)
            selected[:k] *= stays
            selected[k] = lost.sum()
        p, p_selected = problem.target, tournament.selection
        share = np.array([accepted(p[x], p_selected[x]) for x in drafts])
        return Decision(selected * share, normalised(positive_part(p - p_selected)))

    def acceptance_bound(self, problem: TransportProblem) -> float:
        """sum min(p, p_I): the acceptance rate without residual hits."""
        self.check(problem)
        selection = self._tournament(problem).selection
        return min(float(np.minimum(problem.target, selection).sum()), 1.0)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """Enumerated for few draft tuples, else the bound plus estimated residual hits."""
        self.check(problem)
        if problem.drafts.count_tuples() <= _MAX_TUPLES:
            return min(float(self.enumerated_acceptance_rate(problem)), 1.0)
        sample = problem.drafts.sample(np.random.default_rng(0), _SAMPLES)
        hits = np.empty(_SAMPLES)
        for n, drafts in enumerate(sample):
            decision = self.decide(problem, drafts)
            rejected = 1.0 - float(decision.accept.sum())
            residual: Any = decision.residual
            hits[n] = 0.0 if residual is None else rejected * residual[np.unique(drafts)].sum()
        bound = self.acceptance_bound(problem)
        error = float(hits.std(ddof=1) / np.sqrt(_SAMPLES))
        return Estimate(min(bound + float(hits.mean()), 1.0), error)

    def _tournament(self, problem: TransportProblem) -> _Tournament:
        if problem not in self._known:
            drafts = problem.drafts
            assert isinstance(drafts, (WithReplacement, IndependentDrafts))
            models = (
                list(drafts.q)
                if isinstance(drafts, IndependentDrafts)
                else [drafts.q] * drafts.num_drafts
            )
            rounds = []
            selection = models[0]
            for q in models[1:]:
                rule = pair_rule(problem.target, selection, q, self.size, self.rule)
                rounds.append(rule)
                selection = rule.selection
            self._known[problem] = _Tournament(tuple(rounds), selection)
        return self._known[problem]


VERIFIER = ImportanceSampling()
