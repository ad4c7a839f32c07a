"""A rule that is lossy on purpose against the frontier: what it gives away, and what it wastes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.report import Interval, carried
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.costs import CostCurve
from mdsd_opt.solvers.frontier.distances import distances
from mdsd_opt.solvers.frontier.relaxation import frontier_of

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a rule stands against the frontier of acceptance and distance, see `mdsd_opt.relax`.

    Intervals are those of the report's own numbers, carried over; None where these are known.

    Attributes
    ----------
    lossless_acceptance_rate : float
        alpha*.
    best_acceptance_rate : float
        Of all rules whose output law is no farther from the target in total variation.
    best_acceptance_interval : Interval or None
    least_tv, least_kl : float
        Of the output laws of all rules that accept as often; KL(output || target) in nats.
    least_tv_interval, least_kl_interval : Interval or None
    kl : float or None
        KL(output || target) of the rule; None where its law is not known.
    best_acceptance_rate_at_kl : float or None
        Of all rules whose output law is no farther in KL.
    """

    lossless_acceptance_rate: float
    best_acceptance_rate: float
    best_acceptance_interval: Interval | None
    least_tv: float
    least_tv_interval: Interval | None
    least_kl: float
    least_kl_interval: Interval | None
    kl: float | None
    best_acceptance_rate_at_kl: float | None

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        best = carried(self.best_acceptance_rate, self.best_acceptance_interval)
        rows = [
            ("best rate at its TV", best),
            ("least TV for its rate", carried(self.least_tv, self.least_tv_interval)),
            ("least KL for its rate", carried(self.least_kl, self.least_kl_interval) + " nats"),
        ]
        if self.kl is not None:
            rows.append(("KL", f"{self.kl:.6g} nats"))
            rows.append(("best rate at its KL", f"{self.best_acceptance_rate_at_kl:.6g}"))
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """The frontier of a problem, to hold reports against."""

    target: Vector
    costs: CostCurve

    @classmethod
    def of(cls, problem: TransportProblem) -> Judge:
        """The frontier of a problem; `ProblemTooLarge` where it is out of reach for such drafts."""
        return cls(problem.target, CostCurve.of(frontier_of(problem)))

    def standing(self, report: AuditReport, law: Vector | None = None) -> Standing | None:
        """Where a rule stands, from its report and, where it was enumerated, its output law."""
        rate, costs = report.acceptance_rate, self.costs
        if rate is None:
            return None
        known = law is not None
        tv_interval = None if known else report.total_variation_interval
        rate_interval = None if known else report.acceptance_interval
        kl = None if law is None else distances(law, self.target).kl
        return Standing(
            lossless_acceptance_rate=costs.least,
            best_acceptance_rate=self._rate_at_tv(report.total_variation),
            best_acceptance_interval=_mapped(self._rate_at_tv, tv_interval),
            least_tv=self._tv_of(rate),
            least_tv_interval=_mapped(self._tv_of, rate_interval),
            least_kl=self._kl_of(rate),
            least_kl_interval=_mapped(self._kl_of, rate_interval),
            kl=kl,
            best_acceptance_rate_at_kl=None if kl is None else costs.rate_within("kl", kl),
        )

    def _rate_at_tv(self, tv: float) -> float:
        return min(self.costs.least + tv, self.costs.most)

    def _tv_of(self, rate: float) -> float:
        return max(rate - self.costs.least, 0.0)

    def _kl_of(self, rate: float) -> float:
        return self.costs.cost("kl", min(rate, self.costs.most))


def _mapped(function: Callable[[float], float], interval: Interval | None) -> Interval | None:
    """Of a function that does not fall."""
    return None if interval is None else Interval(function(interval.low), function(interval.high))
