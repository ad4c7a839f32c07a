"""The verifier of greedy drafts [Hu25]: speculative sampling of the last draft only."""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np

from mdsd_opt.base.arrays import Integers
from mdsd_opt.drafts import FixedSetDrafts, GreedyDrafts, TopKDrafts
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier, optimal_rates, target_of
from mdsd_opt.verifiers.rejection import accepted, nothing_accepted, residual_law
from mdsd_opt.verifiers.verdicts import Decision


class Greedy(Verifier):
    r"""Accept the last draft with probability min(1, p/q'), else draw from the rest of p.

    T is drafted for certain, the last draft follows q' outside T, and the residual :math:`(p -
    q')_+` keeps all of p on T, where it is accepted. Rate :math:`p(T) + \sum_{i \notin T} \min(p_i,
    q'_i)`. Lossless and optimal for greedy and top-K drafts. Cost O(V), for the rate and for a
    decision. Source: [Hu25].
    """

    name: ClassVar[str] = "greedy"
    schemes: ClassVar[tuple[type[FixedSetDrafts], ...]] = (GreedyDrafts, TopKDrafts)

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return optimal_rates(self.schemes)  # it reaches the optimum

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        p, q = target_of(problem, exact), _fixed_set(problem.law(exact)).last_draw
        accept = nothing_accepted(drafts, p)
        for k, token in enumerate(drafts.tolist()):
            if token >= 0 and q[token] > 0:  # not in T
                accept[k] = accepted(p[token], q[token])
        return Decision(accept, residual_law(p, q))

    def acceptance_rate(self, problem: TransportProblem) -> float:
        self.check(problem)
        p, scheme = problem.target, _fixed_set(problem)
        on_fixed = float(p[scheme.always_drafted].sum())  # where the last draw is never
        return min(on_fixed + float(np.minimum(p, scheme.last_draw).sum()), 1.0)


def _fixed_set(problem: TransportProblem) -> FixedSetDrafts:
    return cast(FixedSetDrafts, problem.drafts)  # the only kind that is lossless


VERIFIER = Greedy()
