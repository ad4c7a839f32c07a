"""The hull rule for drafts from different models: exactly lossless, nearly optimal, one sort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.drafts import DraftScheme, IndependentDrafts
from mdsd_opt.problem import TransportProblem, fill
from mdsd_opt.verifiers.base import Remembered, Verifier
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    born_blocks,
    death_levels,
    mean_over_joins,
)
from mdsd_opt.verifiers.optimal.selection_rule import gauss_rule
from mdsd_opt.verifiers.rejection import accepted, residual_law
from mdsd_opt.verifiers.verdicts import Decision

DEFAULT_SAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class RatioHullLaw:
    """Order, levels and laws of the rule for one problem.

    `position` is the place of each token in the order (-1: never drafted), `selection` p_Z.
    """

    position: Integers
    levels: Vector
    selection: Vector
    residual: Vector


class RatioHull(Verifier):
    r"""Sort by p / sum_k q_k, build the hull rule for that order, return any draft of the block.

    The tokens are cut into blocks by the hull rule of the optimal verifier, for the order of
    :math:`p_i / w_i`, :math:`w = \sum_k q_k`, and the levels that would be right if the drafts of a
    block followed w. One of the drafts in the topmost block is selected, all with the same
    probability. As different drafts do not quite follow w, the law p_Z of the selected draft is not
    quite the one aimed at; but it is known exactly, as an integral over the binary tree of blocks,
    and p is verified against it. Lossless for different draft models; a little below the optimum,
    and at O(V log V + K^2 V) without a fit of its own for each problem.
    Source: this package.
    """

    name: ClassVar[str] = "ratio_hull"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (IndependentDrafts,)
    rational: ClassVar[bool] = False

    def __init__(self) -> None:
        self._hull = Remembered(hull_of)

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        hull = self._hull(problem)
        positions = hull.position[drafts]

        def shares(start: int, stop: int) -> Vector:
            inside = positions >= start
            return inside / np.count_nonzero(inside)

        accept = mean_over_joins(shares, positions, hull.levels)
        for k, token in enumerate(drafts.tolist()):
            accept[k] *= accepted(problem.target[token], hull.selection[token])
        return Decision(accept, hull.residual)

    def acceptance_bound(self, problem: TransportProblem) -> float:
        """Sum of min(p, p_Z): the acceptance rate without residual hits."""
        self.check(problem)
        return min(float(np.minimum(problem.target, self._hull(problem).selection).sum()), 1.0)

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """Bound plus residual hits, which are estimated if there are many draft tuples."""
        bound = self.acceptance_bound(problem)
        return self.rate_with_residual_hits(problem, bound, num_samples, seed)


def hull_of(problem: TransportProblem) -> RatioHullLaw:
    """Hull of the drafted tokens in order of p / w, and the law of its selection."""
    from mdsd_opt.verifiers.optimal.choice_kernels import chosen_law

    p = problem.target
    drafts = cast(IndependentDrafts, problem.drafts)  # the only kind that is lossless
    w = drafts.q.sum(axis=0)
    drafted = drafts.support
    order = drafted[np.argsort(p[drafted] / w[drafted], kind="stable")]
    contained = drafts.prefix_containment(order)
    difference = np.concatenate([[0.0], np.cumsum(p[order])]) - contained
    split = int(np.argmin(difference))
    inside = float(contained[split])
    aim, *_ = fill(p[order], w[order], split, inside, 1.0 - inside)
    levels = death_levels(aim, w[order], np.diff(contained))
    if 0 < split < order.size:
        levels[split] = 1.0
    q = np.ascontiguousarray(drafts.q[:, order].T)
    below, change = np.zeros((2, levels.size, drafts.num_drafts))
    law, room = np.zeros(order.size), (below, change, np.zeros((2, drafts.num_drafts)))
    rule = gauss_rule(drafts.num_drafts)
    chosen_law(q, levels, *born_blocks(levels), *rule, *room, law)
    selection = np.zeros(p.size)
    selection[order] = law
    position = np.full(p.size, -1, dtype=np.int64)
    position[order] = np.arange(order.size)
    return RatioHullLaw(position, levels, selection, residual_law(p, np.minimum(p, selection)))


VERIFIER = RatioHull()
