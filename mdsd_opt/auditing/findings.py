"""Findings of an audit, and the report made of them, whatever entry they came in by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

from mdsd_opt.auditing.checks import Hidden, Sight
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.evidence import (
    CLEAN,
    EDGE,
    LOSSLESS,
    LOSSY,
    NO_DEVIATION,
    NOT_JUDGED,
    NOT_SETTLED,
    RESTART,
    Check,
    Coverage,
    Example,
    Interval,
    Options,
    Report,
    TokenDeviation,
    Violation,
    above_zero,
    largest_edge,
    pointed,
)

R = TypeVar("R", bound=Report)

#: Fields of a report that are options of the audit.
_RATES = ("false_alarm", "power", "detect", "confidence")


def _alike(found: Any, kind: type[Report]) -> dict[str, Any]:
    """Fields of a report of a kind that what was found has by the same name."""
    names = (one.name for one in fields(kind))
    return {name: getattr(found, name) for name in names if hasattr(found, name)}


class AcceptedCount(NamedTuple):
    """Number of trials that output one of their drafts, and number of all trials."""

    hits: int
    trials: int

    @property
    def rate(self) -> float:
        return self.hits / max(self.trials, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLaw:
    """Law of the outcomes that was enumerated, as stated or as found by driving.

    Attributes
    ----------
    distance, tolerance : float
        Total variation from the law that is right, and how much of it is rounding for sure.
    rounding : float
        Part of it that may be rounding in a type that the audit did not see, such as float32
        inside.
    excess : float
        Lower bound of the distance, whatever the calls that failed would have answered.
    num_checks : int or None
        Random calls that a driven law has foretold; None where the law was stated.
    unseen, gap : float
        Probability of outcomes that these calls could have missed, with the power of the audit and
        with its rate of false alarms: a right law that has gaps is off by that at most.
    trials_p_value : float or None
        p-value of the trials under this law; None without trials.
    """

    distance: float
    excess: float
    tolerance: float
    rounding: float
    num_checks: int | None
    unseen: float = 0.0
    gap: float = 0.0
    acceptance_rate: float | None = None
    impossible_mass: float | None = None
    trials_p_value: float | None = None

    @property
    def is_driven(self) -> bool:
        return self.num_checks is not None

    @property
    def method(self) -> str:
        """Method by which the law was found: "enumeration" or "driven"."""
        return "driven" if self.is_driven else "enumeration"

    @property
    def fits(self) -> bool:
        """Whether the law is the right one, up to rounding."""
        return self.distance <= self.tolerance

    @property
    def is_doubtful(self) -> bool:
        """Whether the law may be off only where it was not seen; what is impossible was."""
        seen = (self.impossible_mass or 0.0) > self.rounding
        return self.rounding < self.distance <= self.gap and not seen


def together(reports: Sequence[Report], worst: Report) -> dict[str, Any]:
    """Fields of a report on several: those of the worst, and what all of them add up to."""
    checks = [one.num_checks for one in reports if one.num_checks is not None]
    return (
        {one.name: getattr(worst, one.name) for one in fields(Report)}
        | Hidden.largest(reports)._asdict()
        | {
            "num_trials": sum(one.num_trials for one in reports),
            "num_checks": sum(checks) if checks else None,
            "edge_mass": largest_edge(reports),
        }
    )


def doubt_of(distance: float) -> str:
    """What a doubtful law points to."""
    away = f"a driven law that is {distance:.2g} away from the target's"
    return f"{away}, which may be a gap of the driving (method='sampling' has none)"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Findings:
    """Findings of an audit: a law, or the results of trials, or both; most are as in a `Report`.

    Attributes
    ----------
    distance : tuple of float and Interval
        Total variation of the outcomes sampled from their law.
    sight : Sight or None
        What the checks of the trials can see; None without trials.
    wrong_tokens, wrong_drafts : ViolationLog or None
        None where these are not under audit.
    optimum : float or None
        alpha*.
    edges : tuple of ViolationLog and int or None
        Wrong outcomes at the edges of the uniforms, and how many calls were made there.
    where : str
        Where the tokens deviate that do so most.
    example : Example or None
        The text that deviates most, where texts are under audit; else the first of `tokens` is.
    """

    options: Options
    law: FoundLaw | None = None
    num_trials: int = 0
    checks: Sequence[Check] = ()
    distance: tuple[float, Interval | None] = (0.0, None)
    sight: Sight | None = None
    tokens: tuple[TokenDeviation, ...] = ()
    wrong_tokens: ViolationLog | None = None
    wrong_drafts: ViolationLog | None = None
    accepted: AcceptedCount | None = None
    optimum: float | None = None
    accept_length: float | None = None
    optimal_accept_length: float | None = None
    edges: tuple[ViolationLog, int | None] = field(default_factory=lambda: (ViolationLog(), 0))
    coverage: Coverage | None = None
    cause: str = ""
    where: str = "on the given laws"
    example: Example | None = None
    notes: tuple[str, ...] = ()

    def report(self, kind: type[R], **own: Any) -> R:
        """Report of a given kind, from the findings and the fields that only this kind has."""
        options, law, verdict_class = self.options, self.law, self.verdict_class
        logs = [log for log in (self.wrong_tokens, self.wrong_drafts) if log is not None]
        restarts = (
            Violation(RESTART, (), f"{name} begins anew in every call")
            for log in logs
            for name in log.restarting
            if verdict_class not in CLEAN
        )
        interval, drafts_wrong = self.distance[1], self.drafts_follow_law is False
        checks = [check for check in self.checks if not (drafts_wrong and check.of_drafts)]
        is_wrong = verdict_class in (EDGE, LOSSY) or drafts_wrong
        points_to = pointed(checks, interval) if verdict_class in (*CLEAN, EDGE) else ""
        if law is not None and verdict_class == NOT_SETTLED:
            points_to = doubt_of(law.distance)
        hidden = Hidden(law.unseen) if law is not None and law.is_driven else self.hidden
        rates: dict[str, Any] = {name: getattr(options, name) for name in _RATES}
        sampled = {"method": "sampling", "acceptance_rate": self.accepted and self.accepted.rate}
        facts = (
            _alike(self, kind)
            | rates
            | (_alike(law, kind) if law else sampled)
            | {
                "verdict_class": verdict_class,
                "points_to": points_to,
                "p_value": self.p_value,
                "total_variation": self.distance[0] if law is None else law.distance,
                "total_variation_interval": above_zero(interval, verdict_class),
                "optimal_acceptance_rate": self.optimum,
                "checks": tuple(self.checks),
                "violations": (*(v for log in logs for v in log.listed), *restarts),
                "num_violations": sum(log.count for log in logs),
                "edge_violations": tuple(self.edges[0].listed),
                "num_edge_probes": self.edges[1],
                "edge_mass": self._edge_mass(),
                "example": self._example(verdict_class in CLEAN) if is_wrong else None,
            }
        )
        return kind(**facts | hidden._asdict() | own)

    @property
    def verdict_class(self) -> str:
        """What the findings amount to, see `Report`."""
        law, p_value = self.law, self._checks_p_value
        nothing_wrong = self._passes(p_value) is True and not self.edges[0].count
        if nothing_wrong and (law is None or law.fits):
            return LOSSLESS if law is not None and law.is_driven else NO_DEVIATION
        failed = 0 if self.wrong_tokens is None else self.wrong_tokens.num_failed
        if law is not None and law.is_doubtful:
            return NOT_JUDGED if failed else NOT_SETTLED
        if law is not None:
            disproved = law.excess > law.rounding or self._passes(law.trials_p_value) is False
            wrong = law.distance > law.rounding
        else:
            interval, count = self.distance[1], self.wrong_tokens and self.wrong_tokens.count
            least = 0.0 if interval is None else interval.low
            disproved = (count or 0) > failed or least > failed / max(self.num_trials, 1)
            wrong = self._passes(p_value) is False
        if disproved:
            return LOSSY
        if failed and not self._fails_by_rounding:
            return NOT_JUDGED
        return LOSSY if wrong else EDGE

    @property
    def p_value(self) -> float | None:
        """p-value of all checks together; None if the law decided."""
        if self.law is None:
            return self._checks_p_value
        trials = self.law.trials_p_value
        return trials if self.law.fits and self._passes(trials) is False else None

    @property
    def _checks_p_value(self) -> float | None:
        of_tokens = self._p_value(self.wrong_tokens, of_drafts=False)
        return self.drafts_p_value if of_tokens is None else of_tokens

    @property
    def drafts_p_value(self) -> float | None:
        """p-value of the checks of the drafts; None if these are not under audit."""
        return self._p_value(self.wrong_drafts, of_drafts=True)

    @property
    def drafts_follow_law(self) -> bool | None:
        """Whether the drafts showed no fault; None if these are not under audit."""
        return self._passes(self.drafts_p_value)

    @property
    def hidden(self) -> Hidden:
        """What the trials could have missed."""
        if self.sight is None:
            return Hidden()
        return self.sight.hidden(self.options.level(self.checks), self.options.power)

    def _p_value(self, wrong: ViolationLog | None, of_drafts: bool) -> float | None:
        if wrong is None:
            return None
        return 0.0 if wrong.count else self.options.combined(self.checks, of_drafts)

    @property
    def _fails_by_rounding(self) -> bool:
        """Whether a law was driven whose failed calls together are no more than rounding."""
        law = self.law
        return law is not None and law.is_driven and law.distance <= law.tolerance

    def _edge_mass(self) -> float | None:
        """Probability, at most, of what can never be right."""
        masses = [v.mass for v in self.edges[0].listed if v.mass is not None]
        failed = self.wrong_tokens is not None and self.wrong_tokens.num_failed
        if self.law is not None and self._fails_by_rounding and failed:
            masses.append(2 * self.law.distance)
        if self.law is not None and self.law.impossible_mass:
            masses.append(self.law.impossible_mass)
        return max(masses, default=None)

    def _example(self, drafts_alone: bool) -> Example | None:
        """One deviation to repeat: what must not come, else what deviates most."""
        by_law, seed = self.law is not None and not self.law.fits, self.options.seed
        calls = 0 if by_law else self.num_trials
        logs = [log for log in (self.wrong_tokens, self.wrong_drafts, self.edges[0]) if log]
        if wrong := [(log.listed[0], log.count) for log in logs if log.count]:
            (one, count), share = wrong[0], 1 / max(calls, 1)
            sampled = None if by_law else count * share
            counted = sampled if one.mass is None else one.mass
            return Example(one.message, (), 0.0, counted, calls, seed)
        if self.example is not None:
            return replace(self.example, seed=seed)
        if self.tokens and not (drafts_alone and self.wrong_tokens is not None):
            token, stated, counted, _ = astuple(self.tokens[0])
            return Example(self.where, (token,), stated, counted, calls, seed)
        checks = [check for check in self.checks if check.of_drafts or not drafts_alone]
        odd = min(checks, key=lambda check: check.p_value / check.weight, default=None)
        if odd is None:
            return None
        return Example(f"{odd.looks_for} (check of {odd.name})", calls=calls, seed=seed)

    def _passes(self, p_value: float | None) -> bool | None:
        return None if p_value is None else bool(p_value >= self.options.false_alarm)
