"""Random laws of every kind that a rule may meet, and what it did on each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.report import (
    CLASSES,
    EDGE,
    LOSSLESS,
    NO_ANSWERS,
    NOT_JUDGED,
    Check,
    Coverage,
    Interval,
    Report,
    Violation,
    carried,
)
from mdsd_opt.auditing.subject import REFUSALS
from mdsd_opt.auditing.trees.texts import MAX_TEXTS, TableModel
from mdsd_opt.decoding.topology import Topology
from mdsd_opt.errors import ProblemTooLarge

Vector = NDArray[np.float64]
Model = Callable[[tuple[int, ...]], Vector]

_WIDE, _WIDEST = 32, 300

_CERTAIN = "certain target"


class Laws(NamedTuple):
    """A target and a draft model under a name."""

    name: str
    vocab_size: int
    target: Model
    draft: Model
    has_zeros: bool = False

    def fitting(self, tree: Topology) -> Topology:
        """The tree, without levels that make too many texts to tell apart."""
        depth = tree.depth
        while depth > 1 and self.vocab_size ** (depth + 1) > MAX_TEXTS:
            depth -= 1
        return tree.cut(depth)


def standard_laws(most_drafts: int, seed: int = 0) -> list[Laws]:
    """The laws that every rule is put to where none are given.

    Flat, random, peaked and nearly equal ones, some with zeros on either side, a certain target,
    and vocabularies of 32 and 300 tokens, where constants such as a top-10 cut begin to matter.

    Parameters
    ----------
    most_drafts : int
        Drafts after one node, of which the small vocabularies hold three more.
    seed : int
        Of the tables.

    Raises
    ------
    ProblemTooLarge
        More than 300 drafts.
    """
    if most_drafts > _WIDEST:
        raise ProblemTooLarge(
            f"{most_drafts} drafts: laws of all kinds end at {_WIDEST} tokens. Audit such drafts "
            "on a problem of your own"
        )
    size = max(4, most_drafts + 3)

    def table(number: int, vocab_size: int = size, concentration: float = 1.0) -> TableModel:
        return TableModel(vocab_size, 1000 * seed + number, concentration)

    target, draft = table(47), table(48)  # telling, see `audit_tree`
    laws = [
        Laws("random", size, target, draft),
        Laws("flat", size, table(1, concentration=50.0), table(2, concentration=50.0)),
        Laws(
            "peaked", size, table(3, concentration=0.3), _mixed(table(3, concentration=0.3), draft)
        ),
        Laws("nearly equal", size, target, _mixed(target, draft, 0.95)),
        Laws("zeros", size, _without(target, 0), _without(draft, 1), True),
        Laws(_CERTAIN, size, _certain(target), draft, True),
        Laws("wide", _WIDE, table(8, _WIDE), table(9, _WIDE)),
        Laws("widest", _WIDEST, table(10, _WIDEST), table(11, _WIDEST)),
    ]
    return [one for one in laws if one.vocab_size >= most_drafts]


def _mixed(one: Model, other: Model, share: float = 0.5) -> Model:
    return lambda text: share * one(text) + (1 - share) * other(text)


def _without(model: Model, shift: int) -> Model:
    """One token, another after each text, is impossible."""

    def law(text: tuple[int, ...]) -> Vector:
        p = model(text).copy()
        p[(sum(text) + shift) % p.size] = 0.0
        return p / p.sum()

    return law


def _certain(model: Model) -> Model:
    """The likeliest token alone."""

    def law(text: tuple[int, ...]) -> Vector:
        p = model(text)
        one: Vector = (np.arange(p.size) == np.argmax(p)).astype(np.float64)
        return one

    return law


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """What became of one pair of laws.

    Attributes
    ----------
    law : str
    vocab_size : int
    drafts : str
        The tree of drafts, or how many there were.
    report : Report or None
        None where the rule refused these laws.
    refusal : str
        What it said then.
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
        """Whether the target had one possible token everywhere."""
        return self.law == _CERTAIN

    @property
    def verdict_class(self) -> str:
        """That of the report; "not judged" where there is none."""
        return NOT_JUDGED if self.report is None else str(self.report.verdict_class)

    @classmethod
    def of(cls, laws: Laws, drafts: str, report: Any) -> Tried:
        """From the report; calls that refuse zeros count as such, where no other failed."""
        failed = [v for v in report.violations if v.kind in NO_ANSWERS]
        refused = report.verdict_class == NOT_JUDGED and all(_refuses(v) for v in failed)
        if laws.has_zeros and failed and refused:
            return cls(laws.name, laws.vocab_size, drafts, None, failed[0].message, True)
        return cls(laws.name, laws.vocab_size, drafts, report)

    def row(self) -> tuple[str, str]:
        """Label and value of a line in a table."""
        label = f"{self.law}, V = {self.vocab_size}" + f", {self.drafts}" * bool(self.drafts)
        if self.report is None:
            return label, f"refused: {self.refusal}"
        found = carried(self.report.total_variation, self.report.total_variation_interval)
        how = self.report.method
        if self.report.method == "sampling":
            how = f"{self.report.num_trials:,} calls"
        return label, f"{self.verdict_class}, {how}, total variation {found}"


@dataclass(frozen=True, slots=True, eq=False)
class PortfolioReport(Report):
    """Verdict of an audit on laws of several kinds.

    Numbers that no attribute below explains are those of the worst of the single reports.

    Attributes
    ----------
    tried : tuple of Tried
        Every pair of laws, with its report.
    verdict_class : str
        The worst of them: "lossless", "edge", "not judged" (also where no draft was ever accepted,
        or none refused, on any of the laws) or "lossy".
    worst : Tried
    acceptance_rate : float or None
        On the first laws, random ones; None where whole texts are judged.
    optimal_acceptance_rate : float or None
        The same, of any lossless verifier.
    coverage : Coverage
        Of all laws together but for a certain target, of which nothing is learnt of acceptance.
    largest_vocab_size : int
        Up to which V it was tried.
    seconds : float
    """

    tried: tuple[Tried, ...]
    verdict_class: str
    worst: Tried
    lossless: bool
    method: str
    num_trials: int
    false_alarm: float
    power: float
    total_variation: float
    total_variation_interval: Interval | None
    first_token_variation: float | None
    p_value: float | None
    detectable_bias: float | None
    num_checks: int | None
    checks: tuple[Check, ...]
    violations: tuple[Violation, ...]
    num_violations: int
    edge_violations: tuple[Violation, ...]
    num_edge_probes: int | None
    edge_mass: float | None
    accept_length: float | None
    optimal_accept_length: float | None
    acceptance_rate: float | None
    optimal_acceptance_rate: float | None
    coverage: Coverage
    largest_vocab_size: int
    seconds: float

    @classmethod
    def of(cls, tried: Sequence[Tried], seconds: float) -> PortfolioReport:
        """Put the reports together; at least one law was judged."""
        judged = [one for one in tried if one.report is not None]
        worst = max(judged, key=_badness)
        coverage = Coverage.mean([one.report.coverage for one in judged if not one.certain])
        verdict_class = worst.verdict_class
        if verdict_class in (LOSSLESS, EDGE) and (
            coverage.idle or any(one.report is None and not one.deliberate for one in tried)
        ):
            verdict_class = NOT_JUDGED
        report = worst.report
        masses = [one.report.edge_mass for one in judged if one.report.edge_mass is not None]
        own: dict[str, Any] = {
            "tried": tuple(tried),
            "verdict_class": verdict_class,
            "worst": worst,
            "lossless": verdict_class == LOSSLESS,
            "num_trials": sum(one.report.num_trials for one in judged),
            "edge_mass": max(masses, default=None),
            "coverage": coverage,
            "acceptance_rate": getattr(judged[0].report, "acceptance_rate", None),
            "optimal_acceptance_rate": getattr(judged[0].report, "optimal_acceptance_rate", None),
            "largest_vocab_size": max(one.vocab_size for one in judged),
            "seconds": seconds,
        }
        names = [name for name in cls.__dataclass_fields__ if name not in own]
        own |= {name: getattr(report, name, None) for name in names}
        return cls(**own)

    @property
    def verdict(self) -> str:
        """One sentence."""
        on = f"on {len(self.tried)} kinds of laws, V up to {self.largest_vocab_size}"
        refused = [one.law for one in self.tried if one.report is None]
        beside = f" Not tried, or refused: {', '.join(refused)}." if refused else ""
        if self.verdict_class == LOSSLESS:
            return f"lossless {on}.{self._unmet}{beside}"
        if self.worst.verdict_class in (LOSSLESS, EDGE) and self.verdict_class == NOT_JUDGED:
            return f"NOT JUDGED {on}:{self._unmet if self.coverage.idle else beside}"
        where = f" (laws: {self.worst.law}, V = {self.worst.vocab_size})"
        return f"{self.worst.report.verdict}{where}{beside}"

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        rows = [("verdict", self.verdict), *(one.row() for one in self.tried)]
        rows += self.coverage.rows()
        skipped = {"verdict", *(label for label, _ in rows)}
        details = [row for row in self.worst.report.rows() if row[0] not in skipped]
        return rows if self.lossless else [*rows, *details]


def _refuses(violation: Violation) -> bool:
    """Whether a call failed with an error for bad input."""
    return any(f"raised {name}" in violation.message for name in REFUSALS)


def _badness(one: Tried) -> tuple[int, float]:
    return CLASSES.index(one.verdict_class), one.report.total_variation
