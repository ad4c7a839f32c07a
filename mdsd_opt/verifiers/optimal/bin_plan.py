r"""Plan on bins of p/q, which are never opened: one marginal, and two ways to accept by it.

The marginal of the selected draft has one ratio :math:`\rho_b` to q in every bin. The output
follows the target r p whatever :math:`\rho` is, as long as it rises and its prefix sums stay above
those of Q. Inside the optimal subset it is raised to the bin's largest p/q, outside it is lowered
to the least one, as far as the room that acceptance leaves allows: then nothing is lost, for all of
r p, or all of p_I, is accepted.

`binned` reads it token by token, `mdsd_opt.trees.device_laws` from the sums over bins alone;
the docstring of `mdsd_opt.verifiers.optimal` says what each of them loses.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.prefix_search import BinGroups, Bins, groups_of
from mdsd_opt.verifiers.optimal.acceptance_rule import SelectionPlan


class BinPlan(SelectionPlan):
    """Plan whose groups are bins, or runs of them, with a marginal constant relative to q.

    Made for K drafts with replacement, or without if they leave something, and a target r p of mass
    r = `demand` > 0. `ratio`, shape (B,), is p_I / q in every bin; no rule passes more than `most`
    on average.
    """

    def __init__(self, bins: Bins, num_drafts: int, is_replaced: bool, demand: float = 1.0) -> None:
        self.is_replaced = is_replaced
        self.groups = groups = groups_of(bins, num_drafts, is_replaced)
        marginal = bin_marginal(groups, demand)
        self.x, self.w, self.gains = marginal.x, groups.q, np.diff(groups.contained)
        self.above, self.split, self.most = groups.above, marginal.split, marginal.most
        self.raised, self.capped = 0, self.x.size
        self.ratio = self.by_bin(marginal.ratio)

    def by_bin(self, of_groups: Vector) -> Vector:
        """Numbers of the groups by bins; zero in the bin of tokens that are never drafted."""
        return np.append(of_groups, 0.0)[self.groups.place]

    @property
    @abstractmethod
    def passed(self) -> float:
        """Mean accepted mass of the selected drafts."""

    @property
    def gap(self) -> float:
        """Upper bound of the difference between `most` and what this plan passes."""
        return max(self.most - self.passed, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class BinMarginal:
    r"""Marginal p_I of groups of bins, x, for a target r p, and :math:`\rho`, its ratio to q there.

    Both have shape (n,); `split` groups are in the optimal prefix; no rule passes more than `most`
    on average.
    """

    x: Vector
    ratio: Vector
    split: int
    most: float


def bin_marginal(groups: BinGroups, demand: float = 1.0) -> BinMarginal:
    """Marginal for a target of mass r = `demand`, positive and at most one."""
    from mdsd_opt.verifiers.optimal.acceptance_rule_kernels import fill_bins

    size = groups.q.size
    x, room, starts = np.empty(size), np.empty((3, size + 1)), np.empty(size + 1, np.int64)
    split, least = fill_bins(
        demand * groups.p, groups.q, demand * groups.lowest, demand * groups.highest,
        groups.contained, room, starts, x,
    )  # fmt: skip
    return BinMarginal(x, x / groups.q, split, min(max(1.0 + least, 0.0), 1.0))
