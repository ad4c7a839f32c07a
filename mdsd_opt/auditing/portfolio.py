"""Results of a rule on laws of every kind, and the report of all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from mdsd_opt.auditing.sight import Hidden
from mdsd_opt.auditing.subject import REFUSALS
from mdsd_opt.auditing.trial_laws import CERTAIN, SmallLaws, WideLaws
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    CLASSES,
    CLEAN,
    EDGE,
    NO_ANSWERS,
    NOT_DRIVEN,
    NOT_JUDGED,
    Coverage,
    Example,
    Report,
    Violation,
    carried,
)


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """Result of one pair of laws.

    Attributes
    ----------
    law : str
    vocab_size : int
    drafts : str
        The tree of drafts, or how many there were.
    report : Report or None
        Report, or None if the rule refused these laws.
    refusal : str
        Message of the refusal.
    deliberate : bool
        Whether it was meant: an error for bad input, on laws with zeros.
    """

    law: str
    vocab_size: int
    drafts: str
    report: Any
    refusal: str = ""
    deliberate: bool = False

    @property
    def certain(self) -> bool:
        return self.law == CERTAIN

    @property
    def verdict_class(self) -> str:
        return NOT_JUDGED if self.report is None else str(self.report.verdict_class)

    @property
    def example(self) -> Example | None:
        """Example of the report, with the laws that it is about."""
        example: Example | None = None if self.report is None else self.report.example
        on = f"on laws of the kind {self.law!r}, V = {self.vocab_size:,}"
        where = "" if example is None else example.where.removesuffix("on the given laws").strip()
        return example and replace(example, where=f"{where}, {on}" if where else on)

    @classmethod
    def of(cls, laws: SmallLaws | WideLaws, drafts: str, report: Any) -> Tried:
        """Result from a report; refusals of zeros count as such if no other call failed."""
        failed = [v for v in report.violations if v.kind in NO_ANSWERS]
        refused = report.verdict_class == NOT_JUDGED and all(_refuses(v) for v in failed)
        if laws.has_zeros and failed and refused:
            return cls(laws.name, laws.vocab_size, drafts, None, failed[0].message, True)
        return cls(laws.name, laws.vocab_size, drafts, report)

    def row(self) -> tuple[str, str]:
        label = ", ".join(filter(None, (self.law, f"V = {self.vocab_size}", self.drafts)))
        if self.report is None:
            return label, f"refused: {self.refusal}"
        distance = carried(self.report.total_variation, self.report.total_variation_interval)
        how = self.report.method
        if self.report.method == "sampling":
            how = f"{self.report.num_trials:,} calls"
        hidden = ""
        if self.report.clean and self.report.detectable_bias:
            hidden = f", a bias below {self.report.detectable_bias:.2g} may be hidden"
        return label, f"{self.verdict_class}, {how}, total variation {distance}{hidden}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PortfolioReport(Report):
    """Verdict of an audit on laws of several kinds.

    Numbers that no attribute below explains are those of the worst of the single reports; rates of
    acceptance are those on the first laws, random ones, and None where whole texts are judged.

    Attributes
    ----------
    tried : tuple of Tried
        Every pair of laws, with its report.
    verdict_class : str
        The worst of them; "not judged" also where no draft was ever accepted, or none refused, on
        any of the laws.
    worst : Tried
    detectable_bias : float
        The largest of those of all laws.
    coverage : Coverage
        Coverage of all laws together without those of a certain target, which show nothing of
        acceptance.
    largest_vocab_size : int
        Largest V on which the rule was tried.
    drafts_from : str
        Scheme by which the drafts were drawn.
    seconds : float
    """

    tried: tuple[Tried, ...]
    worst: Tried
    largest_vocab_size: int
    drafts_from: str = ""
    seconds: float

    @classmethod
    def of(
        cls,
        tried: Sequence[Tried],
        began: float,
        notes: tuple[str, ...] = (),
        drafts_from: str = "",
    ) -> PortfolioReport:
        """Report that combines the results; `InvalidInput` if no law was judged."""
        judged = [one for one in tried if one.report is not None]
        if not judged:
            raise InvalidInput(tried[0].refusal)
        undriven: dict[str, list[str]] = {}
        for one in judged:
            for note in one.report.notes:
                if note.startswith(NOT_DRIVEN):
                    undriven.setdefault(note, []).append(one.law)
        reasons = (f"{note} (laws: {', '.join(laws)})" for note, laws in undriven.items())
        worst = max(judged, key=_badness)
        parts = [one.report.coverage for one in judged if not one.certain]
        coverage = Coverage.mean([part for part in parts if part is not None])
        verdict_class = worst.verdict_class
        refused = any(one.report is None and not one.deliberate for one in tried)
        if verdict_class in (*CLEAN, EDGE) and (coverage.idle or refused):
            verdict_class = NOT_JUDGED
        masses = [one.report.edge_mass for one in judged if one.report.edge_mass is not None]
        checks = [x.report.num_checks for x in judged if x.report.num_checks is not None]
        facts: dict[str, Any] = {
            field.name: getattr(worst.report, field.name) for field in fields(Report)
        }
        facts |= Hidden.largest([one.report for one in judged])._asdict() | {
            "tried": tuple(tried),
            "verdict_class": verdict_class,
            "worst": worst,
            "num_trials": sum(one.report.num_trials for one in judged),
            "num_checks": sum(checks) if checks else None,
            "edge_mass": max(masses, default=None),
            "coverage": coverage,
            "longest_text": max(one.report.longest_text or 0 for one in judged) or None,
            "example": worst.example,
            "acceptance_rate": judged[0].report.acceptance_rate,
            "optimal_acceptance_rate": judged[0].report.optimal_acceptance_rate,
            "largest_vocab_size": max(one.vocab_size for one in judged),
            "drafts_from": drafts_from,
            "seconds": time.perf_counter() - began,
            "notes": (*notes, *reasons),
        }
        return cls(**facts)

    @property
    def verdict(self) -> str:
        refused = [one.law for one in self.tried if one.report is None]
        beside = f" Not tried, or refused: {', '.join(refused)}." if refused else ""
        kinds = "1 kind" if len(self.tried) == 1 else f"{len(self.tried)} kinds"
        on = f"on {kinds} of laws, V up to {self.largest_vocab_size:,}"
        if self.clean:
            return f"{self._clean_verdict(on)}{self._longest}{self._unmet}{beside}"
        if self.worst.verdict_class in (*CLEAN, EDGE) and self.verdict_class == NOT_JUDGED:
            is_idle = self.coverage is not None and self.coverage.idle
            return f"NOT JUDGED {on}:{self._unmet if is_idle else beside}"
        where = f" (laws: {self.worst.law}, V = {self.worst.vocab_size:,})"
        is_said = self.cause == self.worst.report.cause  # in the verdict of that report
        caused = f" Cause: {self.cause}." if self.cause and not is_said else ""
        return f"{self.worst.report.verdict}{where}{caused}{beside}"

    def _clean_verdict(self, on: str) -> str:
        judged = [one for one in self.tried if one.report is not None]
        sampled = [one for one in judged if one.report.method != "driven"]
        unseen = [one.report.detectable_bias for one in judged if one.report.method == "driven"]
        exact = self._exact(max(unseen)) if unseen else ""
        if not sampled:
            return f"lossless {on}, {exact}."
        driven = len(unseen)
        first = f"no deviation {on}" + (f": {driven} were driven, {exact}; " if driven else "; ")
        least = max(sampled, key=lambda one: one.report.detectable_bias)
        if self._too_few:
            where = f"{least.law}, V = {least.vocab_size:,}"
            return f"{first}on {where} there are too few calls to see a bias."
        bias = self._found(Hidden.largest([one.report for one in sampled]))
        return f"{first}{'on the others ' if driven else 'there '}{bias}."

    def rows(self) -> list[tuple[str, str]]:
        rows = [("verdict", self.verdict), *(one.row() for one in self.tried)]
        rows += self._bias_rows()
        if self.drafts_from:
            rows.append(("drafts drawn", self.drafts_from))
        rows += [*self._coverage_rows(), *self._note_rows()]
        skipped = {"verdict", *(label for label, _ in rows)}
        details = [row for row in self.worst.report.rows() if row[0] not in skipped]
        return rows if self.clean else [*rows, *details]


def _refuses(violation: Violation) -> bool:
    """Whether a call failed with an error for bad input."""
    return any(f"raised {name}" in violation.message for name in REFUSALS)


def _badness(one: Tried) -> tuple[int, float]:
    return CLASSES.index(one.verdict_class), one.report.total_variation
