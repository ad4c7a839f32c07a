"""Report of an audit of single tokens or of drafts, with numbers that say how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mdsd_opt.auditing.findings import Findings
from mdsd_opt.auditing.standing import Standing as Standing
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    LARGEST_Z,
    Report,
    carried,
    detectable_bias,
    p_value_text,
    statistics,
    trials_needed,
)
from mdsd_opt.evidence import Check as Check
from mdsd_opt.evidence import Coverage as Coverage
from mdsd_opt.evidence import Interval as Interval
from mdsd_opt.evidence import Level as Level
from mdsd_opt.evidence import TokenDeviation as TokenDeviation
from mdsd_opt.evidence import Violation as Violation

#: Sizes of bias for which a report lists the trials needed to see them.
BIAS_LADDER = (0.1, 0.03, 0.01, 0.003, 0.001)

#: Excess of a rate over a frontier that rounding and an unproven part of the frontier may cause.
_ROUNDING = 2e-6


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
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

    @classmethod
    def of(cls, findings: Findings, subject: str) -> AuditReport:
        """Report of the findings about one subject."""
        law, accepted = findings.law, findings.accepted
        own: dict[str, Any] = {
            "subject": subject,
            "drafts_follow_law": findings.drafts_follow_law,
            "drafts_p_value": findings.drafts_p_value,
            "acceptance_interval": accepted
            and statistics.rate_interval(*accepted, findings.options.confidence),
            "tokens": findings.tokens,
            "num_cells": 0 if findings.sight is None else findings.sight.cells,
            "trial_bias": findings.hidden.detectable_bias,
        }
        if law is not None:
            own |= {
                "law_proven_lossless": law.fits if law.num_checks is None else None,
                "impossible_mass": law.impossible_mass,
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
        wrong = (*self.violations, *self.edge_violations)
        if any(violation.kind != "impossible token" for violation in wrong):
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
    def verdict(self) -> str:
        """Verdict in one sentence; for an enumerated law, what it and the trials show."""
        if self.beyond_the_frontier:
            return (
                "BEYOND THE FRONTIER: no law as near to the target allows so much acceptance; do "
                "the drafts follow the law assumed?"
            )
        if not self.clean and self._lossy_as_meant and self.drafts_follow_law is not False:
            return self._lossy_verdict()
        if said := self._class_verdict():
            return said
        if not self.clean:
            wrong = "NOT FROM THIS LAW" if self.subject == "drafts" else "NOT LOSSLESS"
            return f"{wrong}: {self._reason(draft_checks=self.subject == 'drafts')}."
        if self.drafts_follow_law is False:
            return (
                "the tokens may follow the target, but the DRAFTS DO NOT FOLLOW THEIR LAW: "
                f"{self._reason(draft_checks=True)}."
            )
        if self.method != "sampling":
            if self.law_proven_lossless:  # of these laws, whatever calls would meet
                shows = f"the stated law is lossless (enumerated); {self._sampler_shows()}"
                return f"no deviation: {shows}."
            exact = self._exact(self.detectable_bias)
            law = f"lossless, {exact}: the law found by driving it fits"
            return f"{law}; {self._sampler_shows()}.{self._unmet}"
        return self._none_found("trials") + self._unmet

    def _lossy_verdict(self) -> str:
        assert self.standing is not None
        return (
            f"lossy: total variation {self.total_variation:.3g}, and {self.acceptance_rate:.4g} "
            f"accepted (lossless {self.standing.lossless_acceptance_rate:.4g}); the best law at "
            f"that distance allows {self.standing.best_acceptance_rate:.4g}, and so much "
            f"acceptance needs {self.standing.least_tv:.3g}."
        )

    def _sampler_shows(self) -> str:
        if self.trial_bias >= 1.0:
            return f"{self.num_trials:,} trials are too few to see whether the calls follow it"
        return (
            f"the calls follow it in {self.num_trials:,} trials, where a bias of "
            f"{self.trial_bias:.2g} would have been found with probability {self.power:g}"
        )

    def _reason(self, draft_checks: bool) -> str:
        wrong = [v for v in self.violations if (v.kind == "impossible drafts") == draft_checks]
        if outcomes := self._outcomes_wrong(wrong):
            return outcomes
        p_value = self.drafts_p_value if draft_checks else self.p_value
        if p_value is not None:
            deviation = self._check_wrong(p_value, draft_checks)
            if draft_checks or self.method != "sampling":
                return deviation
            if self.total_variation_interval is None:
                return f"{deviation}{self._caused}"
            low, high = self.total_variation_interval
            size = f"total variation {self.total_variation:.3g} in [{low:.3g}, {high:.3g}]"
            return f"{size}{self._caused}; {deviation}"
        away = f"the output law is {self.total_variation:.3g} away from the target"
        away += self._caused + self._restarts
        return f"{self._up_to}, {away}" if self.method == "driven" else away

    def rows(self) -> list[tuple[str, str]]:
        rows = [("verdict", self.verdict), ("method", self.method)]
        rows.append(("trials", f"{self.num_trials:,}"))
        rows += self._p_value_rows()
        if self.drafts_p_value is not None and self.subject != "drafts":
            shown = p_value_text(self.drafts_p_value)
            rows.append(("p-value of the drafts", shown))
        if self.method != "sampling":
            rows += self._law_rows()
        else:
            rows.append(
                ("total variation", self._measured(self.total_variation, "total_variation"))
            )
            if self.acceptance_rate is not None:
                rows.append(("acceptance rate", self._measured(self.acceptance_rate, "acceptance")))
        if self.optimal_acceptance_rate is not None:
            rows.append(("optimal acceptance rate", f"{self.optimal_acceptance_rate:.6f}"))
        if self.accept_length is not None:
            rows.append(("tokens a step", f"{self.accept_length:.6g}"))
        if self.optimal_accept_length is not None:
            rows.append(("tokens a step at the optimum", f"{self.optimal_accept_length:.6g}"))
        if self.standing is not None:
            rows += self.standing.rows()
        rows += [*self._bias_rows(), *self._note_rows(), *self._coverage_rows()]
        if self.subject == "verifier":
            rows += self._edge_rows()
        rows += self._check_rows()
        rows += [(f"token {t.token}", _deviation(t)) for t in self.tokens]
        return rows + self._violation_rows()

    def _law_rows(self) -> list[tuple[str, str]]:
        """Rows about the law, then about the trials."""
        of = "of the stated law" if self.method == "enumeration" else self._up_to
        rows = []
        if self.law_proven_lossless is not None:
            answer = "proven" if self.law_proven_lossless else "refuted"
            rows.append(("stated law lossless", f"{answer}, to {self.tolerance:g} (enumeration)"))
        rows.append(("total variation", f"{self.total_variation:.6g} ({of})"))
        if self.impossible_mass:
            rows.append(("impossible tokens", f"probability {self.impossible_mass:.3g} ({of})"))
        rows.append(("acceptance rate", f"{self.acceptance_rate:.6g} ({of})"))
        if self.sampler_p_value is not None:
            shown = p_value_text(self.sampler_p_value)
            rows.append(("p-value of the calls", f"{shown} (that they follow it)"))
        if self.total_variation_interval is not None:
            low, high = self.total_variation_interval
            sampled = f"in [{low:.6g}, {high:.6g}] {self._with_confidence}"
            rows.append(("total variation of the calls", sampled))
        if self.sampled_acceptance_rate is not None:
            rate = self._measured(self.sampled_acceptance_rate, "acceptance")
            rows.append(("acceptance rate of the calls", rate))
        return rows

    def _measured(self, value: float, name: str) -> str:
        interval: Interval | None = getattr(self, f"{name}_interval")
        return carried(value, interval) + ("" if interval is None else f" {self._with_confidence}")

    @property
    def _with_confidence(self) -> str:
        return f"({self.confidence:.0%} interval of {self.num_trials:,} trials)"

    def to_dict(self) -> dict[str, Any]:
        result = Report.to_dict(self)
        if self.num_cells > 1:
            result["trials_needed"] = {str(b): self.trials_needed(b) for b in BIAS_LADDER}
        return result


def _deviation(deviation: TokenDeviation) -> str:
    z, noise = deviation.z, ""
    if z is not None:
        noise = f", |z| > {LARGEST_Z:.0f}" if abs(z) >= LARGEST_Z else f", z = {z:+.1f}"
    return f"expected {deviation.expected:.4g}, observed {deviation.observed:.4g}{noise}"
