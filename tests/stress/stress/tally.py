"""Counts of what was tried and what was wrong, with every failure printed in full."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

Number = float | Fraction


class Trial:
    """One instance; it is wrong if anything expected of it does not hold."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def that(self, holds: bool, what: str) -> None:
        if not holds:
            self.complaints.append(what)

    def near(self, found: Number, exact: Number, tolerance: float, what: str) -> None:
        """A NaN is near nothing."""
        if not abs(float(found) - float(exact)) <= tolerance:
            self.complaints.append(
                f"{what}: found {float(found)!r}, exact {float(exact)!r}, "
                f"off by {float(found) - float(exact):.3g}, allowed {tolerance:g}"
            )

    def between(self, low: Number, value: Fraction, high: Number, slack: float, what: str) -> None:
        """low - slack <= value <= high + slack; exactly so for Fractions and no slack."""
        room = Fraction(slack)
        if not Fraction(low) - room <= value <= Fraction(high) + room:
            self.complaints.append(
                f"{what}: [{float(low)!r}, {float(high)!r}] does not hold {float(value)!r} "
                f"(below by {float(low - value):.3g}, above by {float(value - high):.3g})"
            )


class Tally:
    """What one area tried from one range of seeds.

    Attributes
    ----------
    counts : dict of str to [int, int]
        Instances and wrong ones, by kind.
    failures : list of str
    """

    def __init__(self, area: str) -> None:
        self.area = area
        self.seed = 0
        self.counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.failures: list[str] = []

    @contextmanager
    def trial(self, kind: str, instance: Callable[[], str]) -> Iterator[Trial]:
        """Count one instance; whatever it raises makes it wrong and is not raised further."""
        trial = Trial()
        try:
            yield trial
        except Exception:
            trial.complaints.append(traceback.format_exc(limit=-4))
        count = self.counts[kind]
        count[0] += 1
        if trial.complaints:
            count[1] += 1
            lines = "\n  ".join(trial.complaints)
            self.failures.append(f"{self.area}:{self.seed} {kind}\n  {lines}\n  {instance()}")
