"""Repeats calls with the same random numbers: does an answer depend on earlier calls?

A function without memory gives the same answer to the same laws, drafts and random numbers. One
that does not is not wrong by that alone (it may have drawn its numbers ahead), but it cannot be
driven, and what it does in some calls only has to be looked for in these calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.subject import outcome_of

#: Answers one call with the given generator.
Case = Callable[[np.random.Generator], Hashable]

#: Number of repeated calls at first, and after everything else.
CALLS, _MORE_CALLS = 8_192, 1_024

#: Number of chances that a fault in every n-th call has to show.
_CHANCES = 4


@dataclass(slots=True, eq=False)
class Replay:
    """Calls that are repeated, and those whose answer differed.

    `counter` gives the calls of the function so far, those for other ends included; by it the
    `differing` ones are counted.
    """

    cases: Sequence[Case]
    counter: Callable[[], int]
    seed: int
    calls: int = 0
    differing: list[int] = field(default_factory=list)
    _answers: dict[int, Hashable] = field(default_factory=dict)

    def run(self, number: int = CALLS, deadline: float = math.inf) -> None:
        """Repeat the cases in random order, after a call of each in which generators are met."""
        rng = np.random.default_rng(self.seed)
        order = np.random.default_rng([self.seed, self.calls])
        states = [
            np.random.default_rng([self.seed, 0, n]).bit_generator.state
            for n in range(len(self.cases))
        ]
        with served(rng) as serving:
            repeated = order.integers(len(self.cases), size=number).tolist()
            for turn, n in enumerate([*range(len(self.cases)), *repeated]):
                if time.perf_counter() > deadline:
                    break
                rng.bit_generator.state = states[n]
                serving.restart()
                with serving.inside:
                    answer = outcome_of(lambda n=n: self.cases[n](serving.rng))  # type: ignore[misc]
                if turn < len(self.cases):
                    continue
                self.calls += 1
                if self._answers.setdefault(n, answer) != answer:
                    self.differing.append(self.counter())

    def note_after(self, deadline: float) -> tuple[str, ...]:
        """Notes on all repeated calls, after a last round; empty if there was no time."""
        if not self.differing:
            self.run(_MORE_CALLS, deadline)
        return (self.note,) if self.calls >= _CHANCES else ()

    @property
    def period(self) -> int:
        """Greatest n such that all calls that differ are a multiple of n calls apart."""
        return math.gcd(*(n - self.differing[0] for n in self.differing)) or 1

    def is_suspect(self) -> bool:
        """Whether the latest call is one of those that may differ."""
        return self.period == 1 or (self.counter() - self.differing[0]) % self.period == 0

    @property
    def note(self) -> str:
        if not self.differing:
            return (
                f"no answer depended on earlier calls, in {self.calls:,} repeated ones: a fault in "
                f"every n-th call would have shown for n up to {self.calls // _CHANCES:,}, one "
                f"after n calls for n up to {self.counter():,}"
            )
        every = f", all a multiple of {self.period:,} calls apart" if self.period > 1 else ""
        return (
            "answers depend on earlier calls, or on random numbers from elsewhere: the same laws, "
            f"drafts and random numbers gave another answer in {len(self.differing):,} of "
            f"{self.calls:,} repeated calls{every}"
        )
