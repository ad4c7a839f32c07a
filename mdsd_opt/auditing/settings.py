r"""Settings of an audit, validated once, and the bias that a chi-square check then detects.

If the law of k cells is off by a total variation of :math:`\delta`, the noncentrality of chi-square
after N trials is :math:`N \sum_b d_b^2 / p_b \ge N (\sum_b |d_b|)^2 = 4 N \delta^2` by the
Cauchy-Schwarz inequality. The smallest noncentrality that is found with the wanted power therefore
gives a bias that is found whatever its shape.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import special

from mdsd_opt.auditing.report import Check
from mdsd_opt.base.array_types import Vector
from mdsd_opt.base.checked import checked_tolerance
from mdsd_opt.drafts.counting import MAX_SAMPLED
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName

#: Total variation attributed to rounding, in float64 and where float32 has a part in it.
FINE, COARSE = 1e-9, 1e-6

#: Number of calls made on each law even if time is up.
LEAST_CALLS = 200

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
            value: Any = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < 1):
                raise InvalidInput(f"{name} is {value!r}: give a number between 0 and 1")

    @property
    def accused(self) -> float:
        """Logarithm of the e-value that makes an accusation."""
        return -math.log(self.false_alarm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ErrorRates):
    """Options of an audit, checked once.

    Budgets are counts, so that a seed gives the same verdict on every machine; `seconds` is a limit
    beside them, which a report names where it was reached.

    Attributes
    ----------
    method : str
        One of `methods`.
    num_trials : int
        Sampled outcomes of each law, at most.
    max_calls : int
        Calls for driving one law, at most.
    seconds : float
        Time limit of the whole audit.
    num_drafts : int
        Draft tokens of a trial.
    tolerance : float or None
        Total variation put down to rounding; None for what the types of the draws suggest.
    max_trees, edge_probes, driven_checks : int
        As in `mdsd_opt.audit_tree`.
    seed : int or None
        Seed of the audit; None where it was given a generator.
    """

    method: str = "auto"
    methods: tuple[str, ...] = ("auto", "driven", "sampling")
    num_trials: int
    max_calls: int = MAX_CALLS
    seconds: float = math.inf
    num_drafts: int = 1
    tolerance: float | None = None
    max_trees: int = 100
    edge_probes: int = 512
    driven_checks: int = 100
    progress: bool | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.method not in self.methods:
            raise UnknownName.among("method", self.method, self.methods)
        ErrorRates.__post_init__(self)
        for name in ("num_trials", "max_calls"):
            value: Any = getattr(self, name)
            if not (isinstance(value, (int, np.integer)) and value >= 1):
                raise InvalidInput(f"{name} is {value!r}: give an integer of at least 1")
        seconds: Any = self.seconds
        number: Any = seconds if isinstance(seconds, Real) else -1
        if not (0 < number <= sys.float_info.max or number == math.inf):
            raise InvalidInput(f"seconds is {seconds!r}: give a positive number")
        if self.tolerance is not None:
            checked_tolerance("tolerance", self.tolerance, or_zero=True)
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
        """False-alarm rate of one check of weight one."""
        return self.false_alarm / max(sum(check.weight for check in checks), 1.0)

    def deadline(self) -> float:
        """Time by `time.perf_counter` at which an audit that begins now has to end."""
        return time.perf_counter() + self.seconds

    def up(self, what: str) -> str:
        """Sentence about a time limit that was reached before the work was done."""
        return f"the time was up: {what}. Give more than seconds={self.seconds:g}"


def generator_of(rng: Any) -> np.random.Generator:
    """The given generator, or a fresh one from an integer seed."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        return np.random.default_rng(int(rng))
    raise InvalidInput(
        f"rng is {rng!r}: give numpy.random.default_rng(seed), or the seed, so that the audit can "
        "be repeated"
    )


def seed_of(rng: Any) -> int | None:
    """The seed, where one was given instead of a generator."""
    return int(rng) if isinstance(rng, (int, np.integer)) else None


def needed_noncentrality(dof: int, level: float, power: float) -> float:
    """Noncentrality at which chi-square with `dof` exceeds its `level` threshold with `power`."""
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
