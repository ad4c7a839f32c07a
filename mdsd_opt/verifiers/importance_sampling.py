"""Importance-weighted sampling [Khisti25]: select one draft, then verify it alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.drafts import DraftScheme, IndependentDrafts, WithReplacement
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import PairRule, check_names, rounds, stages_in_reach, winners
from mdsd_opt.verifiers.base import Remembered, Verifier
from mdsd_opt.verifiers.rejection import residual_law
from mdsd_opt.verifiers.verdicts import Decision

DEFAULT_SAMPLES = 2000

#: Most drafts between which a decision is made, in K^2 steps.
_MAX_ROUNDS = 200


@dataclass(frozen=True, slots=True, eq=False)
class _Tournament:
    """Pair rules of the rounds, the winner so far against the next draft; then p against p_I.

    `selection` is p_I, `share` min(1, p/p_I), `residual` the law after a rejection.
    """

    rounds: tuple[PairRule, ...]
    selection: Vector
    share: Vector
    residual: Vector


class ImportanceSampling(Verifier):
    r"""Select a draft by the truncated LP, then accept it with probability min(1, p/p_I).

    For K > 2 a tournament: the winner of the first drafts, whose law is known, meets the next
    draft, and the LP is solved for that pair of laws. The residual :math:`(p - p_I)_+` may hit a
    draft that was not selected, so :math:`\sum \min(p, p_I)` is a lower bound of the acceptance
    rate (`acceptance_bound`), equal to it and to the optimum at K = 2 if `size` is V. Lossless for
    drafts with replacement and for different draft models. Cost: O(K V log V) and K - 1 LPs in
    :math:`s^2/2` variables, once for each problem; then O(K s + V) a decision.

    Parameters
    ----------
    size : int
        s, the number of tokens between which the LP decides; all of them if there are fewer.
    rule : {"published", "ratio"}
        Winner in the other pairs, see the method truncated_lp.
    order : {"surplus", "mass"}
        Tokens that the LP decides between: those of largest :math:`p - q_1 q_2`, or a truncated
        alphabet of the likeliest ones.
    """

    name: ClassVar[str] = "importance_sampling"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement, IndependentDrafts)
    rational: ClassVar[bool] = False

    def __init__(self, size: int = 5, rule: str = "published", order: str = "surplus") -> None:
        check_names(rule, order)
        self._options = (checked_integer(size, "size"), rule, order)
        self._tournament = Remembered(self._tournament_on)

    def _tournament_on(self, problem: TransportProblem) -> _Tournament:
        return _tournament_of(problem, *self._options)

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return {"with_replacement": BatchRates(self._batch_bounds, is_bound=True)}

    def _batch_bounds(self, p: Vector, q: Vector, counts: list[int], seed: int) -> list[float]:
        """Values of `acceptance_bound` for several K, from the rounds of one tournament."""
        _require_few(max(counts), p.size, self._options[0], max(counts))
        played = rounds(p, repeat(q, max(counts)), *self._options)
        laws = [q, *(rule.selection for rule in played)]
        return [min(float(np.minimum(p, laws[k - 1]).sum()), 1.0) for k in counts]

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        tournament = self._tournament(problem)
        selected = winners(tournament.rounds, drafts.tolist())
        return Decision(selected * tournament.share[drafts], tournament.residual)

    def acceptance_bound(self, problem: TransportProblem) -> float:
        """Sum of min(p, p_I): the acceptance rate without residual hits."""
        self.check(problem)
        selection = self._tournament(problem).selection
        return min(float(np.minimum(problem.target, selection).sum()), 1.0)

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """Bound plus residual hits, which are estimated if K > 2 and there are many tuples."""
        bound = self.acceptance_bound(problem)
        tournament = self._tournament(problem)
        if problem.num_drafts == 1:
            return bound
        if problem.num_drafts == 2:
            hits = (1.0 - tournament.share) @ tournament.rounds[0].wins(tournament.residual)
            return min(bound + float(hits), 1.0)
        return self.rate_with_residual_hits(problem, bound, num_samples, seed)


def _require_few(num_drafts: int, vocab_size: int, size: int, most: int = _MAX_ROUNDS) -> None:
    most = min(stages_in_reach(vocab_size, size) + 1, most)
    if num_drafts > most:
        raise ProblemTooLarge(
            f"verifier 'importance_sampling' solves K - 1 programmes in s^2/2 variables: "
            f"K={num_drafts}, s={min(size, vocab_size)}, V={vocab_size} takes longer than seconds, "
            f"as does all beyond K={most}. Use 'optimal', or smaller numbers."
        )


def _tournament_of(problem: TransportProblem, size: int, rule: str, order: str) -> _Tournament:
    p, drafts = problem.target, problem.drafts
    _require_few(drafts.num_drafts, p.size, size)
    laws = list(drafts.independent_laws() or [])
    played = tuple(rounds(p, laws, size, rule, order))
    selection = played[-1].selection if played else laws[0]
    share = np.ones(p.size)
    np.divide(p, selection, out=share, where=selection > p)
    share[p <= 0] = 0.0  # never accepted, not even where rounding leaves no selected mass
    return _Tournament(played, selection, share, residual_law(p, selection))


VERIFIER = ImportanceSampling()
