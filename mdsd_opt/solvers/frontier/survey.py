"""The frontier over many positions, and where the rules in use stand against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.costs import CostCurve
from mdsd_opt.solvers.frontier.relaxation import frontier_of
from mdsd_opt.solvers.frontier.rules import LossyRule


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """Means over positions where one more unit of acceptance costs `slope` nats at each of them.

    Attributes
    ----------
    num_drafts : int
    slope : float
        0: lossless.
    acceptance_rate, tv, kl : float
    """

    num_drafts: int
    slope: float
    acceptance_rate: float
    tv: float
    kl: float

    def to_dict(self) -> dict[str, Any]:
        return _finite(asdict(self))


@dataclass(frozen=True, slots=True)
class RulePoint:
    """Means over positions for a rule for one draft, beside the closest laws.

    Attributes
    ----------
    name : str
    acceptance_rate, tv, kl : float
    best_acceptance_rate : float
        Of the laws that spend, at each position, the rule's KL there.
    least_kl : float
        Of the laws that accept, at each position, as often as the rule does there.
    """

    name: str
    acceptance_rate: float
    tv: float
    kl: float
    best_acceptance_rate: float
    least_kl: float

    def to_dict(self) -> dict[str, Any]:
        return _finite(asdict(self))


def survey_frontier(
    problems: Sequence[TransportProblem], slopes: Sequence[float]
) -> list[FrontierPoint]:
    """Points of the frontier of the means, for problems with the same number of drafts.

    Equal slopes spend a mean budget best: no choice of laws has a mean acceptance rate as large and
    a smaller mean KL.

    Parameters
    ----------
    problems : sequence of TransportProblem
    slopes : sequence of float
        Derivatives of KL by the acceptance rate, ascending; 0 is lossless.
    """
    means = np.zeros((len(slopes), 3))
    for problem in problems:
        costs = CostCurve.of(frontier_of(problem))
        for n, slope in enumerate(slopes):
            rate = costs.rate_at_slope("kl", slope)
            spent = [rate, rate - costs.least, costs.cost("kl", rate)]
            means[n] += np.array(spent) / len(problems)
    k = problems[0].num_drafts
    return [
        FrontierPoint(k, slope, *row) for slope, row in zip(slopes, means.tolist(), strict=True)
    ]


def survey_rules(
    problems: Sequence[TransportProblem],
    drafts: Sequence[NDArray[np.float64]],
    rules: Mapping[str, LossyRule],
) -> list[RulePoint]:
    """Every rule beside the frontier of the same positions.

    Parameters
    ----------
    problems : sequence of TransportProblem
        With one draft.
    drafts : sequence of ndarray, shape (V,)
        Their draft distributions.
    rules : mapping
        Names and rules.
    """
    means = np.zeros((len(rules), 5))
    for problem, q in zip(problems, drafts, strict=True):
        costs = CostCurve.of(frontier_of(problem))
        for n, rule in enumerate(rules.values()):
            found = rule.outcome(problem.target, q)
            best = costs.rate_within("kl", found.distances.kl)
            rate = min(max(found.acceptance_rate, costs.least), costs.most)
            measured = (found.acceptance_rate, found.distances.tv, found.distances.kl)
            means[n] += np.array([*measured, best, costs.cost("kl", rate)]) / len(problems)
    return [RulePoint(name, *row) for name, row in zip(rules, means.tolist(), strict=True)]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """For JSON: None for what is infinite."""
    return {name: None if value in (np.inf, -np.inf) else value for name, value in row.items()}
