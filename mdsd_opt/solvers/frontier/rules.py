r"""Rules in use that accept more than a lossless verifier may, with their exact output laws.

All of them test one draft x from q against p. What a rule does is its chance to accept x and what
comes out otherwise; the law that results, the acceptance rate and the distance from p follow
without sampling, in O(V log V) at most. So does where they stand against the frontier, in means
over many positions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.arrays import Floats, Vector
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem, running_sums
from mdsd_opt.solvers.frontier import Distances, distances
from mdsd_opt.solvers.frontier.curve import CostCurve, frontier_of


@dataclass(frozen=True, slots=True, eq=False)
class RuleOutcome:
    """Results of a rule at one position.

    Attributes
    ----------
    law : ndarray, shape (V,)
        Law of the output.
    acceptance_rate : float
    distances : Distances
        Distances of the law from the target.
    """

    law: Vector
    acceptance_rate: float
    distances: Distances


@dataclass(frozen=True)
class LossyRule(ABC):
    """A rule for one draft; its parameters are its fields."""

    def outcome(self, target: Floats, draft: Floats) -> RuleOutcome:
        """Exact output law, with its acceptance rate and its distances from the target.

        Parameters
        ----------
        target, draft : array_like, shape (V,)
            p and q.

        Raises
        ------
        InvalidDistribution
            One of them is no distribution.
        """
        p, q = Distribution.of(target, "target").values, Distribution.of(draft, "draft").values
        if p.size != q.size:
            raise InvalidInput(f"the target has {p.size} tokens and the draft has {q.size}")
        accepted = q * self.acceptance(p, q)
        law = accepted + self.replacements(p, q, q - accepted)
        law /= law.sum()
        return RuleOutcome(law, float(accepted.sum()), distances(law, p))

    @abstractmethod
    def acceptance(self, p: Vector, q: Vector) -> Vector:
        """Probability of each token to be accepted if it is drafted, shape (V,)."""

    @abstractmethod
    def replacements(self, p: Vector, q: Vector, rejected: Vector) -> Vector:
        """Masses of the tokens that come out instead of the rejected drafts, shape (V,)."""


@dataclass(frozen=True)
class TypicalAcceptance(LossyRule):
    r"""Accept x iff :math:`p_x > \min(\epsilon, \delta e^{-H(p)})`, else the likeliest token.

    [Medusa], with the greedy replacement of its fast mode. H is the entropy in nats.
    """

    epsilon: float = 0.09
    delta: float = 0.3

    def acceptance(self, p: Vector, q: Vector) -> Vector:
        held = p[p > 0]
        entropy = -float((held * np.log(held)).sum())
        return (p > min(self.epsilon, self.delta * np.exp(-entropy))).astype(np.float64)

    def replacements(self, p: Vector, q: Vector, rejected: Vector) -> Vector:
        return _all_to_the_likeliest(p, rejected)


@dataclass(frozen=True)
class TopAcceptance(LossyRule):
    """Accept x iff it is among the n likeliest tokens of p (ties count), else the likeliest."""

    n: int = 3

    def acceptance(self, p: Vector, q: Vector) -> Vector:
        n = min(self.n, p.size)
        return (p >= np.partition(p, -n)[-n]).astype(np.float64)

    def replacements(self, p: Vector, q: Vector, rejected: Vector) -> Vector:
        return _all_to_the_likeliest(p, rejected)


@dataclass(frozen=True)
class Lenience(LossyRule):
    r"""Accept x with probability :math:`\min(1, p_x / (l q_x))` [Leviathan23].

    Else draw from :math:`(p/l - q)_+`. l = 1 is lossless.
    """

    lenience: float = 0.8

    def acceptance(self, p: Vector, q: Vector) -> Vector:
        return _capped_ratio(p / self.lenience, q)

    def replacements(self, p: Vector, q: Vector, rejected: Vector) -> Vector:
        return _shared(rejected.sum(), np.maximum(p / self.lenience - q, 0.0))


@dataclass(frozen=True)
class Ensemble(LossyRule):
    """Speculative sampling of w p + (1 - w) q instead of p; w = 1 is lossless."""

    weight: float = 0.8

    def acceptance(self, p: Vector, q: Vector) -> Vector:
        return _capped_ratio(self.weight * p + (1 - self.weight) * q, q)

    def replacements(self, p: Vector, q: Vector, rejected: Vector) -> Vector:
        return _shared(rejected.sum(), np.maximum(p - q, 0.0))


@dataclass(frozen=True)
class ConstrainedAcceptance(LossyRule):
    r"""Speculative sampling of a target that is raised at the draft x [Cactus].

    :math:`h_x = \min(p_x + \sqrt{2 \delta p_x (1 - p_x)}, 1)`, the other tokens scaled by
    :math:`s_x = (1 - h_x) / (1 - p_x)`: accept with probability :math:`\min(1, h_x / q_x)`, else
    draw from :math:`(s_x p - q)_+`. delta = 0 is lossless.
    """

    delta: float = 0.001

    def _raised(self, p: Vector) -> Vector:
        return np.minimum(p + np.sqrt(2 * self.delta * p * (1 - p)), 1.0)

    def acceptance(self, p: Vector, q: Vector) -> Vector:
        return _capped_ratio(self._raised(p), q)

    def replacements(self, p: Vector, q: Vector, rejected: Vector) -> Vector:
        # Every rejected x has its own residual, but only through s_x: tokens by q/p and drafts by
        # s_x turn all of them into suffix sums. The residual of x is zero at x by itself.
        drafts = np.flatnonzero(rejected > 0)
        if not drafts.size:
            return np.zeros(p.size)
        scale = (1 - self._raised(p[drafts])) / (1 - p[drafts])
        tokens = np.flatnonzero(p > 0)
        ratio = q[tokens] / p[tokens]
        order = np.argsort(ratio, kind="stable")
        sums = running_sums(np.stack([p, q])[:, tokens[order]])
        reach = np.searchsorted(ratio[order], scale)
        residual = scale * sums[0, reach] - sums[1, reach]
        share = np.divide(rejected[drafts], residual, out=np.zeros(drafts.size), where=residual > 0)
        by_scale = np.argsort(-scale, kind="stable")
        above = running_sums(np.stack([share * scale, share])[:, by_scale])
        count = np.searchsorted(-scale[by_scale], -ratio)
        result = np.zeros(p.size)
        result[tokens] = np.maximum(p[tokens] * above[0, count] - q[tokens] * above[1, count], 0.0)
        return result


def _capped_ratio(target: Vector, q: Vector) -> Vector:
    return np.minimum(np.divide(target, q, out=np.ones_like(q), where=q > 0), 1.0)


def _shared(mass: float, residual: Vector) -> Vector:
    total = float(residual.sum())
    return residual * (mass / total) if total > 0 else residual


def _all_to_the_likeliest(p: Vector, rejected: Vector) -> Vector:
    result = np.zeros(p.size)
    result[int(p.argmax())] = rejected.sum()
    return result


#: Rules by their usual names, with the parameters they are known by.
NAMED_RULES: dict[str, LossyRule] = {
    "Cactus .001": ConstrainedAcceptance(0.001),
    "Cactus .1": ConstrainedAcceptance(0.1),
    "lenience .8": Lenience(0.8),
    "typical .09, .3": TypicalAcceptance(),
    "top 3": TopAcceptance(3),
    "ensemble .8": Ensemble(0.8),
}


@dataclass(frozen=True, slots=True)
class FrontierPoint(Result):
    """Means over positions at which one more unit of acceptance costs `slope` nats."""

    num_drafts: int
    slope: float
    acceptance_rate: float
    tv: float
    kl: float


@dataclass(frozen=True, slots=True)
class RulePoint(Result):
    """Means over positions for a rule for one draft, beside the closest laws.

    Those that spend the rule's KL at each position reach `best_acceptance_rate`; those that accept
    as often as the rule does there cost `least_kl`.
    """

    name: str
    acceptance_rate: float
    tv: float
    kl: float
    best_acceptance_rate: float
    least_kl: float


def survey_frontier(
    problems: Sequence[TransportProblem], slopes: Sequence[float]
) -> list[FrontierPoint]:
    """Points of the frontier of the means, for problems with the same number of drafts.

    Equal slopes, derivatives of KL by the acceptance rate, spend a mean budget best: no choice of
    laws has a mean acceptance rate as large and a smaller mean KL. Slopes ascend; 0 is lossless.
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
    problems: Sequence[TransportProblem], drafts: Sequence[Floats], rules: Mapping[str, LossyRule]
) -> list[RulePoint]:
    """Points of all rules beside the frontier of the same positions, given one draft's law."""
    means = np.zeros((len(rules), 5))
    for problem, q in zip(problems, drafts, strict=True):
        costs = CostCurve.of(frontier_of(problem))
        for n, rule in enumerate(rules.values()):
            outcome = rule.outcome(problem.target, q)
            best = costs.rate_within("kl", outcome.distances.kl)
            rate = min(max(outcome.acceptance_rate, costs.least), costs.most)
            measured = (outcome.acceptance_rate, outcome.distances.tv, outcome.distances.kl)
            means[n] += np.array([*measured, best, costs.cost("kl", rate)]) / len(problems)
    return [RulePoint(name, *row) for name, row in zip(rules, means.tolist(), strict=True)]


#: Slope, in nats per unit of acceptance, of the line that a conclusion is about.
_FAIR_PRICE = 0.1


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.5f}"


#: Columns of points of the frontier, and of rules.
_FRONTIER = (
    Column("num_drafts", "K"),
    Column("slope", "price, nats\na unit", lambda x: f"{x:g}" if x else "lossless"),
    Column("acceptance_rate", "acceptance", "{0:.4f}"),
    Column("tv", "TV", "{0:.4f}"),
    Column("kl", "KL, nats", _nats),
)
_RULES = (
    Column("name", "rule", is_text=True),
    *_FRONTIER[2:],
    Column("best_acceptance_rate", "best accept.\nat this KL", "{0:.4f}"),
    Column("least_kl", "least KL,\nthis acc.", _nats),
)


@dataclass(frozen=True, slots=True)
class Survey(Result):
    """Points of the frontier, for each number of drafts, and of rules in use beside it."""

    frontier: Sequence[FrontierPoint]
    rules: Sequence[RulePoint]

    def tables(self) -> list[Table]:
        """Table with a line for each price of acceptance, and that of the rules."""
        frontier = Table(
            "what more acceptance than lossless costs in distance, at best", _FRONTIER,
            self.frontier,
            caption="Each line is the closest laws at one price of acceptance, the same at every "
            "position; TV and KL: lower is better. This is one step: over a text, KL adds up.",
            grouped=True,
        )  # fmt: skip
        rules = Table(
            "rules in use, one draft, beside the best there is", _RULES, self.rules,
            caption="Best and least: of all laws that at each position have the rule's KL or "
            "acceptance.",
        )  # fmt: skip
        return [frontier, rules]

    @property
    def conclusion(self) -> str:
        """Sentences about a first step beyond lossless, and the rule nearest to the frontier."""
        most = max(point.num_drafts for point in self.frontier)
        line = [point for point in self.frontier if point.num_drafts == most]
        lossless, bought = line[0], next((p for p in line if p.slope >= _FAIR_PRICE), line[-1])
        nearest = min(self.rules, key=lambda rule: rule.best_acceptance_rate - rule.acceptance_rate)
        gained = bought.acceptance_rate - lossless.acceptance_rate
        below = nearest.best_acceptance_rate - nearest.acceptance_rate
        return (
            f"at K = {most}: lossless {lossless.acceptance_rate:.3f}; a mean KL of {bought.kl:.2g} "
            f"nats buys {gained:.3f}. Of the rules, {nearest.name} is nearest to the frontier, "
            f"{below:.3f} below it"
        )
