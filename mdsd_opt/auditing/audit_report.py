"""Report of an audit of single tokens or of drafts, with numbers that say how sure it is.

Compares a rule that is lossy on purpose with the frontier: what it gives away and wastes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from mdsd_opt.auditing.findings import Findings
from mdsd_opt.base.arrays import Vector
from mdsd_opt.base.frames import Column
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    SINGLE,
    Report,
    all_wrong,
    detectable_bias,
    statistics,
    trials_needed,
)
from mdsd_opt.evidence import Check as Check
from mdsd_opt.evidence import Coverage as Coverage
from mdsd_opt.evidence import Interval as Interval
from mdsd_opt.evidence import Level as Level
from mdsd_opt.evidence import TokenDeviation as TokenDeviation
from mdsd_opt.evidence import Violation as Violation
from mdsd_opt.solvers import CostCurve, distances


@dataclass(frozen=True, slots=True)
class Standing:
    """Place of a rule relative to the frontier of acceptance and distance, see `mdsd_opt.relax`.

    Intervals are those of the report's own numbers, carried over; None where these are known.

    Attributes
    ----------
    lossless_acceptance_rate : float
        alpha*.
    best_acceptance_rate : float
        Largest rate of all rules whose output law is no farther from the target in total variation.
    best_acceptance_interval : Interval or None
    least_tv, least_kl : float
        Least distances of the output laws of all rules that accept as often; KL(output || target)
        in nats.
    least_tv_interval, least_kl_interval : Interval or None
    kl : float or None
        KL(output || target) of the rule; None where its law is not known.
    best_acceptance_rate_at_kl : float or None
        Largest rate of all rules whose output law is no farther in KL.
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


def standing_of(
    tv: float,
    rate: float,
    intervals: tuple[Interval | None, Interval | None],
    costs: CostCurve,
    target: Vector,
    law: Vector | None = None,
) -> Standing:
    """Place of a rule by its distance and rate, their intervals, and its law where that is known.

    The costs are those of the problem's frontier.
    """
    tv_interval, rate_interval = intervals if law is None else (None, None)
    kl = None if law is None else distances(law, target).kl

    def rate_at_tv(tv: float) -> float:
        return min(costs.least + tv, costs.most)

    def tv_of(rate: float) -> float:
        return max(rate - costs.least, 0.0)

    def kl_of(rate: float) -> float:
        return costs.cost("kl", min(rate, costs.most))

    return Standing(
        lossless_acceptance_rate=costs.least,
        best_acceptance_rate=rate_at_tv(tv),
        best_acceptance_interval=_mapped(rate_at_tv, tv_interval),
        least_tv=tv_of(rate),
        least_tv_interval=_mapped(tv_of, rate_interval),
        least_kl=kl_of(rate),
        least_kl_interval=_mapped(kl_of, rate_interval),
        kl=kl,
        best_acceptance_rate_at_kl=None if kl is None else costs.rate_within("kl", kl),
    )


def _mapped(function: Callable[[float], float], interval: Interval | None) -> Interval | None:
    """Image of an interval under a non-decreasing function."""
    return None if interval is None else Interval(function(interval.low), function(interval.high))


#: Sizes of bias for which a report lists the trials needed to see them.
BIAS_LADDER = (0.1, 0.03, 0.01, 0.003, 0.001)

#: Excess of a rate over a frontier that rounding and an unproven part of the frontier may cause.
_ROUNDING = 2e-6


def _ladder(report: AuditReport) -> dict[str, int]:
    """Trials needed by size of a bias; none of them where no groups were compared."""
    sizes = BIAS_LADDER if report.num_cells > 1 else ()
    return {str(bias): report.trials_needed(bias) for bias in sizes}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport(Report):
    """Verdict of `audit`, `audit_drafts` or `audit_trace`.

    With enumeration the class is about the calls: the stated law is proven or refuted separately,
    in `law_proven_lossless`.

    Attributes
    ----------
    subject : str
        "verifier", "drafts" or "trace".
    drafts_follow_law : bool or None
        Whether the drafts follow the law assumed; None where they are not under audit.
    drafts_p_value : float or None
        p-value of all checks of the drafts together; a trace has both p-values, and `p_value` is
        about its tokens alone.
    acceptance_interval : Interval or None
        Interval from the sampled outcomes, whatever the method.
    tokens : tuple of TokenDeviation
        Tokens that deviate most, largest first.
    num_cells : int
        Groups of tokens that the chi-square check tells apart; where a law was enumerated, bins of
        outcomes ordered by it.
    trial_bias : float
        Largest bias that the trials alone could have missed, see `detectable_bias`: where a law was
        enumerated, of the calls against that law.
    law_proven_lossless : bool or None
        Result of enumeration, independent of any trial: whether the output law that follows from
        the stated conditional law equals the target, to a total variation of `tolerance`. None
        where no law was stated: by sampling, and of a driven law, which nothing proves.
    impossible_mass : float or None
        Probability of tokens that the target rules out, under the stated (driven) law; None by
        sampling.
    sampled_acceptance_rate : float or None
        Share of the trials whose output is among the drafts, beside the rate of the law; None by
        sampling, where ``acceptance_rate`` is that share.
    sampler_p_value : float or None
        p-value of the checks that the trials follow the enumerated law; None by sampling.
    standing : Standing or None
        Against the frontier, of a rule that is lossy on purpose; None where that was not asked for.
    """

    subject: str
    drafts_follow_law: bool | None = None
    drafts_p_value: float | None = None
    acceptance_interval: Interval | None = None
    tokens: tuple[TokenDeviation, ...] = ()
    num_cells: int = 0
    trial_bias: float = 1.0
    law_proven_lossless: bool | None = None
    impossible_mass: float | None = None
    sampled_acceptance_rate: float | None = None
    sampler_p_value: float | None = None
    standing: Standing | None = None

    kind: ClassVar = SINGLE
    derived: ClassVar = (*Report.derived, Column("trials_needed", of=_ladder, holds=dict[str, int]))

    @classmethod
    def of(cls, findings: Findings, subject: str) -> AuditReport:
        """Report of the findings about one subject."""
        law, accepted = findings.law, findings.accepted
        own: dict[str, Any] = {
            "subject": subject,
            "acceptance_interval": accepted
            and statistics.rate_interval(*accepted, findings.options.confidence),
            "num_cells": 0 if findings.sight is None else findings.sight.cells,
            "trial_bias": findings.hidden.detectable_bias,
        }
        if law is not None:
            own |= {
                "law_proven_lossless": law.fits if law.num_checks is None else None,
                "sampled_acceptance_rate": accepted.rate if accepted and accepted.trials else None,
                "sampler_p_value": law.trials_p_value,
            }
        return findings.report(cls, **own)

    def trials_needed(self, bias: float, power: float | None = None) -> int:
        """Number of trials after which a bias of this total variation is found with `power`.

        Parameters
        ----------
        bias : float
            Total variation in (0, 1].
        power : float, optional
            Power in (0, 1); the report's own unless given.
        """
        power = self.power if power is None else power
        if not (0 < bias <= 1 and 0 < power < 1):
            raise InvalidInput(f"bias {bias!r} must lie in (0, 1] and power {power!r} in (0, 1)")
        needed = trials_needed(bias, self.num_cells, self._level, power)
        between = detectable_bias(self.num_trials, self.num_cells, self._level, self.power)
        if max(between, self.trial_bias) >= 1.0:
            return needed
        return math.ceil(needed * (self.trial_bias / between) ** 2)  # in any direction

    @property
    def _level(self) -> float:
        return self.false_alarm / max(sum(check.weight for check in self.checks), 1.0)

    @property
    def faultless(self) -> bool:
        """Whether nothing was found wrong, neither with the tokens nor with the drafts.

        A rule that is lossy on purpose is not at fault for that.
        """
        drafts_fit = self.drafts_follow_law is not False
        return (self.clean or self._lossy_as_meant) and drafts_fit

    @property
    def _lossy_as_meant(self) -> bool:
        """Whether the output law is the only difference from a lossless rule."""
        if self.standing is None or self.beyond_the_frontier:
            return False
        if any(violation.kind != "impossible token" for violation in all_wrong(self)):
            return False
        return self.sampler_p_value is None or self.sampler_p_value >= self.false_alarm

    @property
    def beyond_the_frontier(self) -> bool:
        """Whether more drafts are accepted than with any law as near to the target.

        No rule can do that with drafts of the law assumed. By sampling the intervals must not meet,
        which at 99% takes some six standard deviations.
        """
        standing = self.standing
        if standing is None or self.acceptance_rate is None:
            return False
        if standing.best_acceptance_interval is None or self.acceptance_interval is None:
            return self.acceptance_rate > standing.best_acceptance_rate + _ROUNDING
        return self.acceptance_interval.low > standing.best_acceptance_interval.high + _ROUNDING

    @property
    def about_drafts(self) -> bool:
        return self.subject == "drafts" or self.clean

    @property
    def situation(self) -> str:
        if self.beyond_the_frontier:
            return "beyond the frontier"
        if not self.clean and self.faultless:
            return "lossy as meant"
        wrong_drafts = self.clean and self.drafts_follow_law is False
        return "wrong drafts" if wrong_drafts else str(self.verdict_class)
