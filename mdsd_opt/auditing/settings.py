r"""How sure an audit shall be, validated once, and which bias a chi-square check then sees.

If the law of k cells is off by a total variation of :math:`\delta`, the noncentrality of chi-square
after N trials is :math:`N \sum_b d_b^2 / p_b \ge N (\sum_b |d_b|)^2 = 4 N \delta^2` by the
Cauchy-Schwarz inequality. The smallest noncentrality that is found with the wanted power therefore
gives a bias that is found whatever its shape.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import special

from mdsd_opt.auditing.report import Check
from mdsd_opt.errors import InvalidInput, ProblemTooLarge

#: Draft tokens that an audit may draw; it holds all of them.
MAX_DRAWN = 200_000_000

#: Total variation put down to rounding, in float64 and where float32 has a part in it.
FINE, COARSE = 1e-9, 1e-6

#: Trials, and seconds for them, where neither is given: with what comes after, within a minute.
_DEFAULT_TRIALS, DEFAULT_SECONDS = 100_000, 45.0

#: Trials at most where only time is given, and those drawn at once.
_MOST_TRIALS, _CHUNK = 50_000_000, 65_536


@dataclass(frozen=True, slots=True)
class Limits:
    """How many trials there may be, how long they may take, how many are drawn at once."""

    num_trials: int
    seconds: float
    chunk: int

    @classmethod
    def of(cls, num_trials: int | None, seconds: float | None, num_drafts: int) -> Limits:
        """From what was asked for; None where nothing was."""
        given: Any = seconds
        if given is not None and not (isinstance(given, Real) and float(given) > 0):
            raise InvalidInput(f"seconds is {seconds!r}: give a positive number")
        if num_trials is not None:
            return cls(num_trials, math.inf if seconds is None else seconds, num_trials)
        if seconds is None:
            return cls(_DEFAULT_TRIALS, DEFAULT_SECONDS, _DEFAULT_TRIALS)
        return cls(min(_MOST_TRIALS, MAX_DRAWN // max(num_drafts, 1)), seconds, _CHUNK)

    def deadline(self) -> float:
        """Of `time.perf_counter`, for trials that begin now."""
        return time.perf_counter() + self.seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """False-alarm rate, power, confidence of intervals, and number of trials."""

    false_alarm: float
    power: float
    confidence: float
    num_trials: int
    num_drafts: int = 1

    def __post_init__(self) -> None:
        for name in ("false_alarm", "power", "confidence"):
            value: Any = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < 1):
                raise InvalidInput(f"{name} is {value!r}: give a number between 0 and 1")
        trials: Any = self.num_trials
        if not (isinstance(trials, (int, np.integer)) and trials >= 1):
            raise InvalidInput(f"num_trials is {trials!r}: give an integer of at least 1")
        if trials * self.num_drafts > MAX_DRAWN:
            raise ProblemTooLarge(
                f"{trials} trials of K={self.num_drafts} drafts are over the limit of "
                f"{MAX_DRAWN:,} tokens: take fewer trials or drafts"
            )

    def combined(self, checks: Sequence[Check], of_drafts: bool = False) -> float:
        """p-value of the checks of one kind, by weighted Bonferroni over those of both kinds."""
        total = sum(check.weight for check in checks)
        each = [total * (c.p_value / c.weight) for c in checks if c.of_drafts == of_drafts]
        return min(1.0, *each) if each else 1.0

    def level(self, checks: Sequence[Check]) -> float:
        """False-alarm rate of one check of weight one."""
        return self.false_alarm / max(sum(check.weight for check in checks), 1.0)


def generator_of(rng: Any) -> np.random.Generator:
    """A generator as it is, or a fresh one from an integer seed."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        return np.random.default_rng(int(rng))
    raise InvalidInput(
        f"rng is {rng!r}: give numpy.random.default_rng(seed), or the seed, so that the audit can "
        "be repeated"
    )


def needed_noncentrality(dof: int, level: float, power: float) -> float:
    """Noncentrality at which chi-square with `dof` exceeds its `level` threshold with `power`."""
    return float(special.chndtrinc(special.chdtri(dof, level), dof, 1 - power))


def detectable_bias(num_trials: int, num_cells: int, level: float, power: float) -> float:
    """Smallest total variation of the law of the cells that is found with `power`, or infinity."""
    if num_cells < 2 or num_trials < 1:
        return math.inf
    bias = math.sqrt(needed_noncentrality(num_cells - 1, level, power) / (4 * num_trials))
    return bias if bias <= 1.0 else math.inf


def trials_needed(bias: float, num_cells: int, level: float, power: float) -> int:
    """Trials after which every bias of this total variation is found with `power`."""
    cells = max(num_cells, 2)
    return math.ceil(needed_noncentrality(cells - 1, level, power) / (4 * bias**2))
