"""From what an audit has counted to its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.detectability import detectable_bias
from mdsd_opt.auditing.report import AuditReport, Check, Interval, TokenDeviation
from mdsd_opt.auditing.settings import Settings
from mdsd_opt.auditing.subject import ViolationLog


class Accepted(NamedTuple):
    """So many of these trials put out one of their drafts."""

    hits: int
    trials: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Findings:
    """What the trials of an audit showed.

    Attributes
    ----------
    subject : str
        As in the report.
    settings : Settings
    checks : sequence of Check
        Of the output, of the drafts, or of both.
    distance : tuple of float and Interval
        Total variation of the outcomes from their law.
    outcomes, cells : int
        How many outcomes the finest check has put into how many cells.
    tokens : tuple of TokenDeviation
    wrong_tokens : ViolationLog
    wrong_drafts : ViolationLog or None
        None where the drafts are not under audit.
    accepted : Accepted or None
    optimum : float or None
        alpha*.
    edges : tuple of ViolationLog and int
        Wrong outcomes at the edges of the uniforms, and how many calls were made there.
    """

    subject: str
    settings: Settings
    checks: Sequence[Check]
    distance: tuple[float, Interval]
    outcomes: int
    cells: int
    tokens: tuple[TokenDeviation, ...]
    wrong_tokens: ViolationLog = field(default_factory=ViolationLog)
    wrong_drafts: ViolationLog | None = None
    accepted: Accepted | None = None
    optimum: float | None = None
    edges: tuple[ViolationLog, int] = field(default_factory=lambda: (ViolationLog(), 0))

    def report(self) -> AuditReport:
        """The report of an audit by sampling."""
        settings, accepted = self.settings, self.accepted
        wrong_drafts = self.wrong_drafts or ViolationLog()
        edge_log, num_edge_probes = self.edges
        drafts_p_value = None
        if self.wrong_drafts is not None:
            drafts_p_value = self._p_value(self.wrong_drafts, of_drafts=True)
        p_value = drafts_p_value
        if self.subject != "drafts":
            p_value = self._p_value(self.wrong_tokens, of_drafts=False)
        total_variation, interval = self.distance
        return AuditReport(
            subject=self.subject,
            lossless=self._passes(p_value) is True and not edge_log.count,
            method="sampling",
            num_trials=settings.num_trials,
            p_value=p_value,
            drafts_follow_law=self._passes(drafts_p_value),
            drafts_p_value=drafts_p_value,
            false_alarm=settings.false_alarm,
            power=settings.power,
            confidence=settings.confidence,
            total_variation=total_variation,
            total_variation_interval=interval,
            acceptance_rate=accepted and accepted.hits / max(accepted.trials, 1),
            acceptance_interval=accepted
            and statistics.rate_interval(*accepted, settings.confidence),
            optimal_acceptance_rate=self.optimum,
            checks=tuple(self.checks),
            tokens=self.tokens,
            violations=(*self.wrong_tokens.listed, *wrong_drafts.listed),
            num_violations=self.wrong_tokens.count + wrong_drafts.count,
            edge_violations=tuple(edge_log.listed),
            num_edge_probes=num_edge_probes,
            num_cells=self.cells,
            detectable_bias=detectable_bias(
                self.outcomes, self.cells, settings.level(self.checks), settings.power
            ),
        )

    def _p_value(self, wrong: ViolationLog, of_drafts: bool) -> float:
        return 0.0 if wrong.count else self.settings.combined(self.checks, of_drafts)

    def _passes(self, p_value: float | None) -> bool | None:
        return None if p_value is None else p_value >= self.settings.false_alarm
