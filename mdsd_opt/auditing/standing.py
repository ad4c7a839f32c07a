"""Compares a rule that is lossy on purpose with the frontier: what it gives away and wastes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mdsd_opt.auditing.audit_report import AuditReport, Standing
from mdsd_opt.base.array_types import Vector
from mdsd_opt.evidence import Interval
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import CostCurve, distances, frontier_of


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """Frontier of a problem, with which reports are compared."""

    target: Vector
    costs: CostCurve

    @classmethod
    def of(cls, problem: TransportProblem) -> Judge:
        """Judge of a problem; raises `ProblemTooLarge` if its frontier is out of reach."""
        return cls(problem.target, CostCurve.of(frontier_of(problem)))

    def standing(self, report: AuditReport, law: Vector | None = None) -> Standing | None:
        """Place of a rule, from its report and, if it was enumerated, its output law."""
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
    """Image of an interval under a non-decreasing function."""
    return None if interval is None else Interval(function(interval.low), function(interval.high))
