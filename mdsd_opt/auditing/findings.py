"""From what an audit has counted to its report, whatever entry it came in by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.report import (
    EDGE,
    LOSSLESS,
    LOSSY,
    NO_ANSWERS,
    NOT_JUDGED,
    RESTART,
    Check,
    Coverage,
    Interval,
    Report,
    TokenDeviation,
    Violation,
)
from mdsd_opt.auditing.settings import Settings, detectable_bias
from mdsd_opt.auditing.subject import ViolationLog

R = TypeVar("R", bound=Report)


class Accepted(NamedTuple):
    """So many of these trials put out one of their drafts."""

    hits: int
    trials: int

    @property
    def rate(self) -> float:
        """The share."""
        return self.hits / max(self.trials, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLaw:
    """A law of the outcomes that was enumerated, as stated or as found by driving.

    Attributes
    ----------
    distance, tolerance : float
        Total variation from the law that is right, and how much of it is rounding.
    excess : float
        What of the distance is left whatever the calls that failed would have answered.
    num_checks : int or None
        Random calls that a driven law has foretold; None where the law was stated.
    trials_p_value : float or None
        Of the trials under this law; None without trials.
    """

    distance: float
    excess: float
    tolerance: float
    num_checks: int | None
    acceptance_rate: float | None = None
    impossible_mass: float | None = None
    trials_p_value: float | None = None

    @property
    def method(self) -> str:
        """As in reports."""
        return "enumeration" if self.num_checks is None else "driven"

    @property
    def fits(self) -> bool:
        """Whether it is the right one."""
        return self.distance <= self.tolerance


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Findings:
    """What an audit has found: a law, or what trials show, or both.

    Attributes
    ----------
    checks : sequence of Check
        Of the output, of the drafts, or of both.
    distance : tuple of float and Interval
        Total variation of the outcomes sampled from their law.
    outcomes, cells : int
        How many outcomes the finest check has put into how many cells; None without trials.
    wrong_tokens, wrong_drafts : ViolationLog or None
        None where these are not under audit.
    optimum : float or None
        alpha*.
    edges : tuple of ViolationLog and int or None
        Wrong outcomes at the edges of the uniforms, and how many calls were made there.
    coverage : Coverage or None
        What the calls have met; None where nothing was called.
    cause : str
        The shape of the deviation, where it is one that was tested; empty if not.
    """

    settings: Settings
    law: FoundLaw | None = None
    num_trials: int = 0
    checks: Sequence[Check] = ()
    distance: tuple[float, Interval | None] = (0.0, None)
    outcomes: int | None = None
    cells: int = 0
    tokens: tuple[TokenDeviation, ...] = ()
    wrong_tokens: ViolationLog | None = None
    wrong_drafts: ViolationLog | None = None
    accepted: Accepted | None = None
    optimum: float | None = None
    accept_length: float | None = None
    optimal_accept_length: float | None = None
    edges: tuple[ViolationLog, int | None] = field(default_factory=lambda: (ViolationLog(), 0))
    coverage: Coverage | None = None
    cause: str = ""

    def report(self, kind: type[R], **own: Any) -> R:
        """A report of a kind: what of its fields follows from the findings, and its own ones."""
        settings, law, accepted = self.settings, self.law, self.accepted
        total_variation, interval = self.distance
        edge_log, num_edge_probes = self.edges
        logs = [log for log in (self.wrong_tokens, self.wrong_drafts) if log is not None]
        drafts_p_value = self._p_value(self.wrong_drafts, of_drafts=True)
        p_value = self._p_value(self.wrong_tokens, of_drafts=False)
        if p_value is None:
            p_value = drafts_p_value
        lossless = self._passes(p_value) is True and not edge_log.count
        causes = (
            Violation(RESTART, (), f"{name} begins anew in every call")
            for log in logs
            for name in log.restarting
            if not (lossless and (law is None or law.fits))
        )
        facts = {
            "lossless": lossless,
            "method": "sampling",
            "num_trials": self.num_trials,
            "p_value": p_value,
            "drafts_follow_law": self._passes(drafts_p_value),
            "drafts_p_value": drafts_p_value,
            "false_alarm": settings.false_alarm,
            "power": settings.power,
            "confidence": settings.confidence,
            "total_variation": total_variation,
            "total_variation_interval": interval,
            "acceptance_rate": accepted and accepted.rate,
            "acceptance_interval": accepted
            and statistics.rate_interval(*accepted, settings.confidence),
            "optimal_acceptance_rate": self.optimum,
            "accept_length": self.accept_length,
            "optimal_accept_length": self.optimal_accept_length,
            "checks": tuple(self.checks),
            "tokens": self.tokens,
            "violations": (*(v for log in logs for v in log.listed), *causes),
            "num_violations": sum(log.count for log in logs),
            "edge_violations": tuple(edge_log.listed),
            "num_edge_probes": num_edge_probes,
            "num_cells": self.cells,
            "detectable_bias": None if self.outcomes is None else self._bias(self.outcomes),
            "num_checks": None,
            "tolerance": None,
            "edge_mass": self._edge_mass(),
            "coverage": self.coverage,
            "cause": self.cause,
        }
        if law is not None:
            trials_fail = law.fits and self._passes(law.trials_p_value) is False
            facts |= {
                "lossless": lossless and law.fits,
                "method": law.method,
                "p_value": law.trials_p_value if trials_fail else None,
                "total_variation": law.distance,
                "acceptance_rate": law.acceptance_rate,
                "law_proven_lossless": law.fits if law.num_checks is None else None,
                "num_checks": law.num_checks,
                "impossible_mass": law.impossible_mass,
                "tolerance": law.tolerance,
                "sampled_acceptance_rate": accepted.rate if accepted and accepted.trials else None,
                "sampler_p_value": law.trials_p_value,
            }
        facts["verdict_class"] = LOSSLESS if facts["lossless"] else self._class(p_value)
        known: Any = kind
        names = {part.name for part in fields(known)}
        return kind(**{name: fact for name, fact in facts.items() if name in names}, **own)

    def _p_value(self, wrong: ViolationLog | None, of_drafts: bool) -> float | None:
        if wrong is None:
            return None
        return 0.0 if wrong.count else self.settings.combined(self.checks, of_drafts)

    def _class(self, p_value: float | None) -> str:
        """The class of a verdict that is not "lossless"."""
        kinds = Counter[str]() if self.wrong_tokens is None else self.wrong_tokens.kinds
        failed = sum(kinds[kind] for kind in NO_ANSWERS)
        if self.law is not None:
            disproved = self.law.excess > self.law.tolerance
            disproved |= self._passes(self.law.trials_p_value) is False
            wrong = not self.law.fits
        else:
            interval = self.distance[1]
            least = 0.0 if interval is None else interval.low
            disproved = kinds.total() > failed or least > failed / max(self.num_trials, 1)
            wrong = self._passes(p_value) is False
        if disproved:
            return LOSSY
        if failed:
            return NOT_JUDGED
        return LOSSY if wrong else EDGE

    def _edge_mass(self) -> float | None:
        """Probability, at most, of outcomes that can never be right; None if none was met."""
        masses = [v.mass for v in self.edges[0].listed if v.mass is not None]
        if self.law is not None and self.law.impossible_mass:
            masses.append(self.law.impossible_mass)
        return max(masses, default=None)

    def _passes(self, p_value: float | None) -> bool | None:
        return None if p_value is None else p_value >= self.settings.false_alarm

    def _bias(self, outcomes: int) -> float:
        level = self.settings.level(self.checks)
        return detectable_bias(outcomes, self.cells, level, self.settings.power)
