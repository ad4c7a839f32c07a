"""Results of a rule on laws of every kind, and the report of all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mdsd_opt.auditing.checks import Hidden
from mdsd_opt.auditing.findings import together
from mdsd_opt.auditing.laws import CERTAIN, SmallLaws, WideLaws
from mdsd_opt.auditing.subject import REFUSALS
from mdsd_opt.base.frames import told
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    CLASSES,
    CLEAN,
    EDGE,
    FACTS,
    LAWS,
    NO_ANSWERS,
    NOT_DRIVEN,
    NOT_JUDGED,
    PARTS,
    Coverage,
    Example,
    Report,
    Violation,
    carried,
    found,
)


@dataclass(frozen=True, slots=True)
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

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (self.law, f"V = {self.vocab_size}", self.drafts)))

    @property
    def said(self) -> str:
        if self.report is None:
            return f"refused: {self.refusal}"
        distance = carried(self.report.total_variation, self.report.total_variation_interval)
        how = self.report.method
        if self.report.method == "sampling":
            how = f"{self.report.num_trials:,} calls"
        hidden = ""
        if self.report.clean and self.report.detectable_bias:
            hidden = f", a bias below {self.report.detectable_bias:.2g} may be hidden"
        return f"{self.verdict_class}, {how}, total variation {distance}{hidden}"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    seconds: float = field(compare=False)

    kind: ClassVar = LAWS

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
        worst, reports = max(judged, key=_badness), [one.report for one in judged]
        parts = [one.report.coverage for one in judged if not one.certain]
        coverage = Coverage.mean([part for part in parts if part is not None])
        verdict_class = worst.verdict_class
        refused = any(one.report is None and not one.deliberate for one in tried)
        if verdict_class in (*CLEAN, EDGE) and (coverage.idle or refused):
            verdict_class = NOT_JUDGED
        facts = together(reports, worst.report) | {
            "verdict_class": verdict_class,
            "coverage": coverage,
            "longest_text": max(one.longest_text or 0 for one in reports) or None,
            "example": worst.example,
            "acceptance_rate": reports[0].acceptance_rate,
            "optimal_acceptance_rate": reports[0].optimal_acceptance_rate,
            "notes": (*notes, *reasons),
        }
        return cls(
            tried=tuple(tried),
            worst=worst,
            largest_vocab_size=max(one.vocab_size for one in judged),
            drafts_from=drafts_from,
            seconds=time.perf_counter() - began,
            **facts,
        )

    @property
    def judged(self) -> tuple[Tried, ...]:
        """Those of `tried` that have a report."""
        return tuple(one for one in self.tried if one.report is not None)

    @property
    def nothing_found(self) -> str:
        """Sentence about laws on which nothing was found, those that were driven and the others."""
        sampled = [one for one in self.judged if one.report.method != "driven"]
        unseen = [one.report.detectable_bias for one in self.judged if one not in sampled]
        on, exact = told("{on_laws}", self), ""
        if unseen:
            exact = told("{up_to} (below {0:.2g} may be hidden)", self, max(unseen))
        if not sampled:
            return f"lossless {on}, {exact}."
        driven = f": {len(unseen)} were driven, {exact}" if unseen else ""
        first = f"no deviation {on}{driven};"
        if told(PARTS["too_few"], self):
            least = max(sampled, key=lambda one: one.report.detectable_bias)
            where = f"{least.law}, V = {least.vocab_size:,}"
            return f"{first} on {where} there are too few calls to see a bias."
        bias = found(Hidden.largest([one.report for one in sampled]), self.power)
        return f"{first} {'on the others' if unseen else 'there'} {bias}."

    @property
    def details(self) -> list[tuple[str, str]]:
        """Lines of the worst of the reports that this one has not by itself."""
        if self.clean:
            return []
        known = {label for fact in FACTS[LAWS][:-1] for label, _ in fact.lines(self)}
        return [row for row in self.worst.report.rows() if row[0] not in known]

    @property
    def situation(self) -> str:
        if self.clean:
            return str(self.verdict_class)
        if self.worst.verdict_class in (*CLEAN, EDGE) and self.verdict_class == NOT_JUDGED:
            return "drafts idle" if self.coverage and self.coverage.idle else "laws refused"
        return "as the worst"


def _refuses(violation: Violation) -> bool:
    """Whether a call failed with an error for bad input."""
    return any(f"raised {name}" in violation.message for name in REFUSALS)


def _badness(one: Tried) -> tuple[int, float]:
    return CLASSES.index(one.verdict_class), one.report.total_variation
