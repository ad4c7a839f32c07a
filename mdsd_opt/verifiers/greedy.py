"""The verifier of greedy drafts [Hu25]: speculative sampling of the last draft only."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, GreedyDrafts, TopKDrafts
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, normalised, positive_part, target_of
from mdsd_opt.verifiers.single_draft import accepted


class Greedy(Verifier):
    r"""Accept the last draft with probability min(1, p/q'), else draw from what is left of p.

    T is drafted for certain, the last draft follows q' outside T, and the residual :math:`(p -
    q')_+` keeps all of p on T, where it is accepted. Rate :math:`p(T) + \sum_{i \notin T} \min(p_i,
    q'_i)`. Lossless and optimal for greedy and top-K drafts. Cost O(V).
    """

    name: ClassVar[str] = "greedy"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (GreedyDrafts, TopKDrafts)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        scheme = problem.drafts
        assert isinstance(scheme, (GreedyDrafts, TopKDrafts))
        p = target_of(problem, exact)
        q = np.array(scheme.exact_last_draw, dtype=object) if exact else scheme.last_draw
        accept = np.zeros(drafts.size, dtype=p.dtype) + p[0] * 0
        for k, token in enumerate(drafts.tolist()):
            if token >= 0 and q[token] > 0:
                accept[k] = accepted(p[token], q[token])
        return Decision(accept, normalised(positive_part(p - q)))

    def acceptance_rate(self, problem: TransportProblem) -> float:
        self.check(problem)
        scheme = problem.drafts
        assert isinstance(scheme, (GreedyDrafts, TopKDrafts))
        p = problem.target
        fixed = float(p[scheme.always_drafted].sum())
        return min(fixed + float(np.minimum(p, scheme.last_draw).sum()), 1.0)


VERIFIER = Greedy()
