"""The optimal verifier for i.i.d. drafts, prepared once for a problem and applied to many tuples.

The hull rule selects, at mixing level s, the first draft whose boundaries towards the topmost draft
have all died by s: a range maximum over death levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.optimal.grouped_plan import plan_of


class PreparedOptimal:
    """A batched callable for `audit`; its faults can be switched on.

    Parameters
    ----------
    problem : TransportProblem
        With replacement.
    wrong_residual : bool
        Draw from the target after a rejection.
    accept_at_zero : bool
        Accept when u <= p / p_I.
    """

    def __init__(
        self, problem: TransportProblem, wrong_residual: bool = False, accept_at_zero: bool = False
    ) -> None:
        plan = plan_of(problem)
        assert plan is not None
        self.plan = plan
        self.accept_at_zero = accept_at_zero
        self.maxima = [np.asarray(plan.death_levels)]
        while 2 ** len(self.maxima) <= self.maxima[0].size:  # sparse table of range maxima
            half, last = 2 ** (len(self.maxima) - 1), self.maxima[-1]
            self.maxima.append(np.maximum(last[:-half], last[half:]))
        residual = problem.target if wrong_residual else plan.residual
        assert residual is not None
        self.residual_tokens = np.flatnonzero(residual)
        self.residual_reached = np.cumsum(residual[self.residual_tokens])

    def joining_level(self, low: Any, high: Any) -> Any:
        """Largest death level of the boundaries from `low` + 1 to `high`; 0 if there are none."""
        length = high - low
        row = np.floor(np.log2(np.maximum(length, 1))).astype(np.int64)
        result = np.zeros(length.shape)
        for r in np.unique(row).tolist():
            here = (row == r) & (length > 0)
            first = self.maxima[r][low[here] + 1]
            result[here] = np.maximum(first, self.maxima[r][high[here] - 2**r + 1])
        return result

    def __call__(self, target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return self.decide(drafts, *rng.random((len(drafts), 3)).T)

    def decide(self, drafts: Any, mixing: Any, acceptance: Any, last: Any) -> Any:
        """Output tokens (N,) for drafts (N, K) and the uniforms of each row."""
        places = self.plan.position[drafts]
        top = np.broadcast_to(places.max(axis=1, keepdims=True), places.shape)
        joined = self.joining_level(places, top) <= mixing[:, None]
        chosen = joined.argmax(axis=1)
        rows = np.arange(len(drafts))
        place = places[rows, chosen]
        p, x = self.plan.p[place], self.plan.x[place]
        accepted = acceptance * x <= p if self.accept_at_zero else acceptance * x < p
        reached = self.residual_reached
        drawn = np.searchsorted(reached, last * reached[-1], side="right")
        others = self.residual_tokens[np.minimum(drawn, self.residual_tokens.size - 1)]
        return np.where(accepted, drafts[rows, chosen], others)
