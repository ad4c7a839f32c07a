"""Parts and sentences that the reports of all audits share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple

from mdsd_opt.base.frames import Column, Result, Table, Words
from mdsd_opt.evidence.sentences import (
    CLEAN,
    FACTS,
    HIDDEN_AT_MOST,
    LOSSY,
    PARTS,
    Bar,
    p_text,
    sentence,
)


class Interval(NamedTuple):
    """A closed interval that holds the true value with the report's confidence."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Check:
    """One test of the hypothesis that nothing is wrong.

    Attributes
    ----------
    name : str
    looks_for : str
        The kind of deviation it sees best.
    p_value : float
        Probability of a result at least this odd if nothing is wrong; exact or an upper bound,
        before the correction for the number of checks.
    of_drafts : bool
        Whether it tests the drafts instead of the output.
    weight : float
        Share of the false-alarm rate that the check gets, in proportion to the weights of all.
    """

    name: str
    looks_for: str
    p_value: float
    of_drafts: bool = False
    weight: float = 1.0


#: p-value of a single check below which an audit goes on.
POINTS = 1e-4

#: Weight of the check that no more is accepted than the optimum: lossless rules mostly stay far
#: below it, so that any share of the false-alarm rate is lost there.
ACCEPTANCE_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class TokenDeviation:
    """A token that comes out more or less often than it should.

    Attributes
    ----------
    token : int
    expected, observed : float
        Share of all trials (of the exact law, where that was enumerated).
    z : float or None
        Signed size in standard deviations of the sampling noise; 40 (-40) if it is that or more;
        None if there is no noise.
    """

    token: int
    expected: float
    observed: float
    z: float | None


@dataclass(frozen=True, slots=True)
class Violation:
    """An outcome that can never be right, whatever the sample size.

    Attributes
    ----------
    kind : str
        "impossible token", "out of vocabulary", "not a token", "exception" or "impossible drafts";
        "restart" for a generator that begins anew in every call, beside what that makes wrong.
    drafts : tuple of int
        The draft tokens it happened with.
    message : str
    mass : float or None
        Upper bound of its probability; None if it was found by sampling.
    """

    kind: str
    drafts: tuple[int, ...]
    message: str
    mass: float | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """One deviation of an audit that was not passed, to be repeated.

    Attributes
    ----------
    where : str
        Laws or texts, or what happened.
    tokens : tuple of int
        A token, or a whole text; empty where none is wrong by itself.
    stated, counted : float or None
        Probability by the right law, and share of the calls (or probability, without calls).
    calls : int
    seed : int or None
        Seed of the audit, where it was given one.
    repeat : str
        Line for a shell that asks a server for such a text; else empty.
    """

    where: str
    tokens: tuple[int, ...] = ()
    stated: float | None = None
    counted: float | None = None
    calls: int = 0
    seed: int | None = None
    repeat: str = ""

    @property
    def said(self) -> str:
        one = f"token {self.tokens[0]}" if len(self.tokens) == 1 else f"text {self.tokens}"
        parts = [f"{one} {self.where}".strip() if self.tokens else self.where]
        if self.stated is not None and self.counted is not None:
            parts.append(f"stated {self.stated:.4g}, counted {self.counted:.4g}")
        if self.calls:
            parts.append(f"{self.calls:,} calls")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        return "; ".join(parts)


#: Beginning of a note that says why a law was not driven.
NOT_DRIVEN = "not driven"

#: Direction of a bias that is found whatever it is.
ANY = "in any direction"


@dataclass(frozen=True, slots=True)
class Level:
    """Number of accepted and refused drafts at one depth.

    Attributes
    ----------
    accepted, refused : float
        Share of all calls; of a law that was found exactly, the probability.
    several : bool
        Whether, after a refusal, more than one token was possible: where there is only one, a
        residual of the wrong scale gives it, too.
    """

    accepted: float
    refused: float
    several: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """Situations that an audit has met: it shows nothing about the others.

    Attributes
    ----------
    levels : tuple of Level
        Levels by depth; a verifier of single tokens has one.
    """

    levels: tuple[Level, ...]

    @property
    def unmet(self) -> tuple[str, ...]:
        """Situations that never occurred, in words."""
        several = len(self.levels) > 1
        spots = []
        for n, level in enumerate(self.levels, 1):
            where = f" at level {n}" if several else ""
            if level.accepted <= 0:
                spots.append(f"an accepted draft{where}")
            if level.refused <= 0:
                spots.append(f"a refused draft{where}")
            elif not level.several:
                spots.append(f"a choice after a refusal{where} (a wrong residual)")
        return tuple(spots)

    @property
    def idle(self) -> bool:
        """Whether drafts were never accepted, or never refused."""
        accepted = any(level.accepted > 0 for level in self.levels)
        return not (accepted and any(level.refused > 0 for level in self.levels))

    @classmethod
    def mean(cls, parts: Sequence[Coverage]) -> Coverage:
        """Mean coverage of several audits, each of them counting alike."""
        by_depth = zip_longest(*(part.levels for part in parts), fillvalue=Level(0.0, 0.0, False))
        return cls(
            tuple(
                Level(
                    sum(level.accepted for level in levels) / len(parts),
                    sum(level.refused for level in levels) / len(parts),
                    any(level.several for level in levels),
                )
                for levels in by_depth
            )
        )


class Judged(Result):
    """What is judged: its verdict, and what it and the facts say in words.

    A class says of what `kind` its subject is, by which `sentences` has its verdicts and lines.
    """

    __slots__ = ()
    verdict_class: Any
    detectable_bias: Any
    method: Any
    kind: ClassVar[str]
    parts: ClassVar[Mapping[str, Words]] = PARTS

    @property
    def clean(self) -> bool:
        """Whether no fault was found, whatever could have stayed hidden."""
        return self.verdict_class in CLEAN

    @property
    def faultless(self) -> bool:
        """Whether nothing was found wrong; of a rule that is lossy on purpose, nothing else."""
        return self.clean

    @property
    def lossless(self) -> bool:
        """Whether nothing deviates and no bias above .05 could have stayed hidden."""
        return self.clean and self.detectable_bias <= HIDDEN_AT_MOST

    @property
    def situation(self) -> str:
        """What was found, as the table of sentences names it: the class, unless it says more."""
        return str(self.verdict_class)

    @property
    def about_drafts(self) -> bool:
        """Whether the verdict is about the drafts instead of the output."""
        return False

    @property
    def verdict(self) -> str:
        """Verdict in one sentence."""
        return sentence(self)

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        return [line for fact in FACTS[self.kind] for line in fact.lines(self)]

    def tables(self) -> list[Table]:
        """The same as one table, a line for each, below the answer in a word."""
        answer = [("answer", self.answer())] if isinstance(self, Report) else []
        names = ("fact", "value")
        return [Table.of("facts of the audit", names, [*answer, *self.rows()], names)]

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Judged):
    """Verdict of an audit, with the numbers that every kind of audit has.

    Its ``acceptance_rate`` is the probability that the output is among the drafts, its
    ``optimal_acceptance_rate`` the largest of any lossless verifier, None where it is not known.

    Attributes
    ----------
    verdict_class : str
        "lossless" where every law that is named was driven, so that the verdict is exact up to
        `num_checks` random calls; "no deviation" where calls were sampled and nothing was found,
        while a bias of up to `detectable_bias` could have stayed hidden; "edge" where impossible
        values alone are wrong; "lossy"; "not judged" where calls failed or nothing was met;
        "not settled" where the most calls that an audit makes point to a fault, but are not
        enough to say so, or a driven law is off by no more than its checks can have missed.
    method : str
        "enumeration" (of the stated conditional law), "driven" (of the law found by driving the
        callable with given random numbers, exact up to `num_checks`) or "sampling".
    num_trials : int
        Outcomes that were sampled.
    num_checks : int or None
        Random calls that driven laws have foretold; None where nothing was driven.
    detectable_bias : float
        Largest total variation that could have stayed hidden, over all laws that were tried: any
        larger one in the `direction` named is found with probability `power`. Of a driven law it is
        what its random checks could have missed. 1 where there were too few trials to see anything.
    detect : float
        Bias that may have stayed hidden where `answer` is a pass.
    direction : str
        Changes of the law that `detectable_bias` is about: "in any direction", or the groups
        between which alone mass is seen to move, as laws of recorded steps come once each.
    class_bias : float or None
        The same between the `classes` of outcomes alone, which is smaller over wide vocabularies:
        what moves within a class is not in it. None where single outcomes were compared.
    classes : str
        Classes in words, such as "between classes by p/q".
    points_to : str
        What an interval of the distance without 0, or a check below 1e-4, points to where that is
        not enough to call it lossy; else empty. Such an audit goes on up to nine times the calls
        asked for, and examines all of them at a share of `false_alarm` each time: .9, .09 and .01.
    false_alarm : float
        Probability, at most, that something faultless is called lossy, over all these looks.
    power, confidence : float
        Power of `detectable_bias`, and confidence of the intervals.
    p_value : float or None
        p-value of all checks together (Bonferroni, by their weights); None if the law decided.
    total_variation : float
        Distance of the law of the outcomes from the one that is right: of the stated or driven law
        where there is one, else an estimate from an event chosen on one half of the trials and
        measured on the other, which on average does not exceed the true distance.
    total_variation_interval : Interval or None
        Interval from the sampled outcomes; None if there are none.
    first_token_variation : float or None
        Distance of the first token's law alone, for audits of texts.
    tolerance : float or None
        Total variation put down to rounding; None by sampling.
    accept_length, optimal_accept_length : float or None
        Tokens of a step, accepted drafts and one more, and the most of any lossless rule.
    checks : tuple of Check
    violations : tuple of Violation
        The first few of `num_violations`: outcomes that can never be right, and calls that failed.
    edge_violations : tuple of Violation
        Wrong outcomes with a draw at an end of what its type can hold, the first few.
    num_edge_probes : int or None
        Calls in which such a draw was made: 0 means that the edges were not probed, None that the
        driven law has them in it.
    edge_mass : float or None
        Probability, at most, of outcomes that the target rules out; None if none was met.
    coverage : Coverage or None
        Counts of accepted and refused drafts; None if they were not kept.
    longest_text : int or None
        Tokens of the longest text tried, where a promise that is a callable may change with it;
        else None.
    cause : str
        The shape of the deviation, where it has one that was tested; empty if not.
    example : Example or None
        One deviation to repeat; None where nothing is wrong.
    notes : tuple of str
        Remarks on what the audit could not do, or found beside the law.
    """

    verdict_class: str
    method: str
    num_trials: int = 0
    num_checks: int | None = None
    detectable_bias: float = 0.0
    detect: float = HIDDEN_AT_MOST
    points_to: str = ""
    direction: str = ANY
    class_bias: float | None = None
    classes: str = ""
    false_alarm: float
    power: float
    confidence: float = 0.99
    p_value: float | None = None
    total_variation: float = 0.0
    total_variation_interval: Interval | None = None
    first_token_variation: float | None = None
    tolerance: float | None = None
    acceptance_rate: float | None = None
    optimal_acceptance_rate: float | None = None
    accept_length: float | None = None
    optimal_accept_length: float | None = None
    checks: tuple[Check, ...] = ()
    violations: tuple[Violation, ...] = ()
    num_violations: int = 0
    edge_violations: tuple[Violation, ...] = ()
    num_edge_probes: int | None = None
    edge_mass: float | None = None
    coverage: Coverage | None = None
    longest_text: int | None = None
    cause: str = ""
    example: Example | None = None
    notes: tuple[str, ...] = ()
    derived: ClassVar[Sequence[str | Column]] = (
        "lossless", Column("answer", of=lambda report: report.answer(), holds=str), "verdict",
    )  # fmt: skip

    def answer(self, detect: float | None = None, tolerate_edge: float = 1e-12) -> str:
        """Whether the audit is passed, in a word: the one of terminals, pages and JUnit's files.

        "PASS" where nothing was found, and no bias above `detect` (that of the audit's options
        unless given) could have stayed hidden; "EDGE" the same, but for impossible values of
        probability `tolerate_edge` at most; "TOO WEAK" where a larger bias may be hidden; "NOT
        JUDGED"; "NOT SETTLED"; "FAIL".
        """
        return Bar(self.detect if detect is None else detect, tolerate_edge).answer(self)


def pointed(checks: Iterable[Check], interval: Interval | None) -> str:
    """What checks, or an interval of the distance, point to, though that may be chance; or ""."""
    odd = min(checks, key=lambda check: check.p_value, default=None)
    if odd is not None and odd.p_value < POINTS:
        return f"{odd.looks_for} ({p_text(odd.p_value, 2)}, from the check of {odd.name})"
    if interval is not None and interval.low > 0:
        return f"a total variation in [{interval.low:.3g}, {interval.high:.3g}]"
    return ""


def above_zero(interval: Interval | None, verdict_class: str) -> Interval | None:
    """Interval of a distance; None if it holds 0, though another check has found a deviation."""
    return None if verdict_class == LOSSY and interval and interval.low <= 0 else interval


def largest_edge(reports: Iterable[Report]) -> float | None:
    """Largest probability of what the target rules out, of several reports; None without any."""
    masses = (report.edge_mass for report in reports)
    return max((mass for mass in masses if mass is not None), default=None)
