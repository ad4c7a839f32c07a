r"""Settings of an audit, validated once, and the bias that a chi-square check then detects.

If the law of k cells is off by a total variation of :math:`\delta`, the noncentrality of chi-square
after N trials is :math:`N \sum_b d_b^2 / p_b \ge N (\sum_b |d_b|)^2 = 4 N \delta^2` by the
Cauchy-Schwarz inequality. The smallest noncentrality that is found with the wanted power therefore
gives a bias that is found whatever its shape.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import numpy as np

from mdsd_opt.base.arrays import Vector
from mdsd_opt.base.checked import (
    MAX_SAMPLED,
    check_confidence,
    check_counts,
    checked_integer,
    checked_tolerance,
    real,
    seed_of,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName
from mdsd_opt.evidence.report import Check
from mdsd_opt.evidence.sentences import HIDDEN_AT_MOST, Bar

#: Total variation attributed to rounding, in float64 and where float32 has a part in it.
FINE, COARSE = 1e-9, 1e-6

#: Number of calls made on a law that is begun even if time is up.
LEAST_CALLS = 32

#: Number of parts of a driven law below which its random checks do not become fewer, and the fewest
#: checks of a part.
FEWEST_PARTS, LEAST_OF_PART = 16, 10

#: Most calls for driving one law; those of a few uniforms take some thousands.
MAX_CALLS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRates:
    """Error rates that an audit shall have, checked once."""

    false_alarm: float = 1e-6
    power: float = 0.99
    confidence: float = 0.99

    def __post_init__(self) -> None:
        for name in ("false_alarm", "power", "confidence"):
            check_confidence(getattr(self, name), name)

    @property
    def accused(self) -> float:
        """Logarithm of the e-value that makes an accusation."""
        return -math.log(self.false_alarm)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(ErrorRates):
    """Options of all audits, which take each of them as a keyword as well.

    Budgets are counts, so that a seed gives the same verdict on every machine; `seconds` is a limit
    beside them, which a report names where it was reached. A budget of None is the audit's own, as
    what one call costs and shows differs between a token, a tree and a text; its docstring says how
    much that is. What an audit has no use for is not read.

    Parameters
    ----------
    method : str
        "auto"; "driven": laws are found by calling the function at chosen random numbers;
        "sampling"; of `mdsd_opt.audit` also "enumeration" of the law that a verifier states.
    num_trials : int, optional
        Sampled outcomes of each law, at first: an audit goes on, up to nine times as many, where
        they point to a fault but settle nothing.
    seconds : float, optional
        Time limit of the whole audit.
    max_calls : int
        Most calls for driving one law; where they are foretold not to suffice, few are made.
    max_tuples : int
        Most draft tuples of a law that is enumerated, or driven by `mdsd_opt.audit`.
    max_trees : int
        Most trees of drafts that are driven one by one.
    edge_probes : int, optional
        Most calls, with sampling, that have a draw at an end of what its type can hold, such as a
        uniform of 0. A driven law has the ends in it.
    driven_checks : int, optional
        Random calls that a driven law must foretell: for each tuple or tree of drafts, on average,
        or for each law of texts.
    false_alarm : float
        Probability, at most, that something faultless is called lossy.
    power : float
        Power with which a report's `detectable_bias` is found.
    confidence : float
        Confidence of the intervals.
    detect : float
        Bias that may have stayed hidden where the answer is a pass, see `Report.answer`.
    tolerance : float, optional
        Total variation put down to rounding; by default 1e-9, and 1e-6 of a driven law whose draws
        or weights have float32 or races in them.
    progress : bool, optional
        Whether to draw a bar on stderr; by default on a terminal, if it takes longer than a second.

    Raises
    ------
    InvalidInput
        An option is out of range; the message names it.
    """

    method: str = "auto"
    num_trials: int | None = None
    seconds: float | None = None
    max_calls: int = MAX_CALLS
    max_tuples: int = 20_000
    max_trees: int = 100
    edge_probes: int | None = None
    driven_checks: int | None = None
    detect: float = HIDDEN_AT_MOST
    tolerance: float | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        ErrorRates.__post_init__(self)
        Bar(self.detect)
        check_counts(max_calls=self.max_calls)
        for name in ("num_trials", "max_tuples", "max_trees", "edge_probes", "driven_checks"):
            if (value := getattr(self, name)) is not None:
                checked_integer(value, name, 1 if name == "num_trials" else 0)
        if self.seconds is not None:
            _need_time(self.seconds)
        if self.tolerance is not None:
            checked_tolerance("tolerance", self.tolerance, or_zero=True)


def _need_time(seconds: Any) -> None:
    if not (0 < real(seconds) < math.inf or real(seconds) == math.inf == seconds):
        raise InvalidInput(f"seconds is {seconds!r}: give a positive number")


class RateKeywords(TypedDict, total=False):
    """Keywords of audits of what was drawn already, see `AuditOptions`."""

    false_alarm: float
    power: float
    confidence: float
    detect: float


class LimitKeywords(RateKeywords, total=False):
    """Keywords of audits whose number of trials is a parameter, see `AuditOptions`."""

    method: str
    seconds: float | None
    max_calls: int
    max_tuples: int
    max_trees: int
    edge_probes: int | None
    driven_checks: int | None
    tolerance: float | None
    progress: bool | None


class OptionKeywords(LimitKeywords, total=False):
    """Keywords of the other audits, see `AuditOptions`."""

    num_trials: int | None


def options_of(
    options: AuditOptions, keywords: Mapping[str, Any], known: type[Any] = OptionKeywords
) -> AuditOptions:
    """Options with those that were given as keywords, of which only the `known` ones are taken.

    None leaves what the options say.
    """
    if not isinstance(options, AuditOptions):
        raise InvalidInput(f"options is {options!r:.60}: give mdsd_opt.AuditOptions(...)")
    if wrong := sorted(keywords.keys() - known.__annotations__.keys()):
        raise TypeError(f"got an unexpected keyword argument {wrong[0]!r}")
    return replace(options, **{name: x for name, x in keywords.items() if x is not None})


def budgeted(options: AuditOptions, rng: Any, **own: Any) -> Options:
    """Options of one audit: what they leave open, and all that they do not know, is its own."""
    asked = {one.name: getattr(options, one.name) for one in fields(AuditOptions)}
    known = {name: value for name, value in asked.items() if value is not None}
    return Options(**own | known, seed=seed_of(rng))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(AuditOptions):
    """Options of one audit, with its own budgets and methods."""

    num_trials: int
    seconds: float = math.inf
    edge_probes: int = 512
    driven_checks: int = 100
    methods: tuple[str, ...] = ("auto", "driven", "sampling")
    num_drafts: int = 1  # of a trial
    seed: int | None = None  # None where a generator was given

    def __post_init__(self) -> None:
        if self.method not in self.methods:
            raise UnknownName.among("method", self.method, self.methods)
        AuditOptions.__post_init__(self)
        check_counts(num_trials=self.num_trials)
        _need_time(self.seconds)
        if (self.num_trials + self.edge_probes) * self.num_drafts > MAX_SAMPLED:
            raise ProblemTooLarge(
                f"{self.num_trials} trials and {self.edge_probes} probes of edges, of "
                f"K={self.num_drafts} drafts, are over the limit of {MAX_SAMPLED:,} tokens: take "
                "fewer trials, probes or drafts"
            )

    def rounding(self, coarse: bool) -> float:
        """Total variation put down to rounding, of what was computed coarsely or in float64."""
        suggested = COARSE if coarse else FINE
        return suggested if self.tolerance is None else self.tolerance

    def combined(self, checks: Sequence[Check], of_drafts: bool = False) -> float:
        """p-value of the checks of one kind, by weighted Bonferroni over those of both kinds."""
        total = sum(check.weight for check in checks)
        each = [total * (c.p_value / c.weight) for c in checks if c.of_drafts == of_drafts]
        return min(1.0, *each) if each else 1.0

    def level(self, checks: Sequence[Check]) -> float:
        return self.false_alarm / max(sum(check.weight for check in checks), 1.0)

    def gap(self, unseen: float) -> float:
        """Part of a driven law that its checks miss with the rate of false alarms at most.

        `unseen` is what they miss with 1 - `power`, see `random_checks`.
        """
        return unseen * self.accused / -math.log1p(-self.power)

    def settling(self, distance: float, unseen: float) -> Options | None:
        """Options with checks of a driven law that do not miss so much of it, as these may.

        They are a tenth more than are needed, as their number in a part is rounded; None if they
        are more than `max_calls`.
        """
        if self.accused > self.max_calls * distance:
            return None
        checks = math.ceil(1.1 * self.driven_checks * self.gap(unseen) / distance)
        return replace(self, driven_checks=checks)

    def deadline(self) -> float:
        """Time by `time.perf_counter` at which an audit that begins now has to end."""
        return time.perf_counter() + self.seconds

    def up(self, what: str) -> str:
        """Sentence about a time limit that was reached before the work was done."""
        return f"the time was up: {what}. Give more than seconds={self.seconds:g}"


def shared(deadline: float, parts: int) -> float:
    """End of the first of so many equal parts of the time up to a deadline."""
    now = time.perf_counter()
    return now + (deadline - now) / parts


def needed_noncentrality(dof: int, level: float, power: float) -> float:
    """Noncentrality at which chi-square with `dof` exceeds its `level` threshold with `power`."""
    from scipy import special

    return float(special.chndtrinc(special.chdtri(dof, level), dof, 1 - power))


def detectable_bias(num_trials: int, num_cells: int, level: float, power: float) -> float:
    """Smallest total variation of the law of the cells that is found with `power`, at most 1."""
    if num_cells < 2 or num_trials < 1:
        return 1.0
    noncentrality = needed_noncentrality(num_cells - 1, level, power)
    return min(math.sqrt(noncentrality / (4 * num_trials)), 1.0)


def random_checks(shares: Vector, each: int, power: float) -> tuple[list[int], float]:
    r"""Random checks of the parts of a driven law, `each` on average, by their probabilities.

    What they could have missed, in whichever parts, comes with them: parts w that differ with
    probabilities e are missed with :math:`\prod (1 - e)^c \le \exp(-\sum c e)`, and
    :math:`\sum w e \le \max(w / c) \sum c e`.
    """
    total = each * max(shares.size, FEWEST_PARTS)
    checks = np.maximum(np.ceil(total * shares), LEAST_OF_PART).astype(np.int64)
    missed = -math.log1p(-power) * float((shares / checks).max(initial=0.0))
    return checks.tolist(), min(missed, 1.0)


def unseen_bias(num_trials: int, power: float) -> float:
    """Probability of an outcome that would have come at least once with `power`."""
    return float(1.0 - (1.0 - power) ** (1.0 / num_trials)) if num_trials else 1.0


def trials_needed(bias: float, num_cells: int, level: float, power: float) -> int:
    """Number of trials after which every bias of this total variation is found with `power`."""
    cells = max(num_cells, 2)
    return math.ceil(needed_noncentrality(cells - 1, level, power) / (4 * bias**2))
