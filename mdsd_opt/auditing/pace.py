"""How long calls of a function under audit take, and how many of them there is time for.

Looks at a sample: where the evidence points to a fault but settles nothing, calls are added.

Each look examines all outcomes so far, at a share of its own of the rate of false alarms. These add
up to one, so that a faultless sampler is accused in any look with the stated rate at most (union
bound), whatever it is that makes an audit go on.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mdsd_opt.auditing.randomness import Serving
from mdsd_opt.base.checked import MAX_SAMPLED
from mdsd_opt.base.foreign import stoppable
from mdsd_opt.evidence import LEAST_CALLS, LOSSY, NOT_SETTLED, TIME_UP, Options, Report

Case = TypeVar("Case")
Outcome = TypeVar("Outcome")

#: Calls that tell how long one takes.
TIMED = 32

#: Seconds that an audit takes without a limit if it is known to end; else its limit; seconds until
#: it says how far it is, where there is no terminal, and then after twice as many each time.
_PATIENCE, _SECONDS, _SILENT = 60.0, 20.0, 15.0


@dataclass(slots=True, eq=False)
class Pace:
    """Calls that were counted, and the time that is left for others, up to the `deadline`."""

    deadline: float = math.inf
    progress: bool | None = None
    calls: int = 0
    stopped: str = ""
    began: float = field(default_factory=lambda: time.perf_counter())  # whose clock tests move
    _silent_until: float = _SILENT
    _spent: list[float] = field(default_factory=list)  # seconds of the first calls
    _timed: tuple[float, int] | None = None  # when these were made, and how many

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, each call of which is counted."""

        @functools.wraps(function, updated=())
        def counted(*given: Any) -> Any:
            self.calls += 1
            passed = time.perf_counter() - self.began
            if passed > self._silent_until:
                self._silent_until = 2 * passed
                if self.progress is None and not sys.stderr.isatty():
                    print(f"audit: {self.calls:,} calls in {passed:,.0f} s", file=sys.stderr)
            answer = function(*given)
            if len(self._spent) < TIMED:
                self._spent.append(time.perf_counter() - self.began - passed)
            return answer

        return counted

    @property
    def seconds(self) -> float:
        """Seconds that a call takes at least: others wait for imports, or the machine's load."""
        return sorted(self._spent)[len(self._spent) // 4] if self._spent else 0.0

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.deadline

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Run a block up to its end, or the user's Ctrl-C, which `stopped` then tells."""
        with stoppable() as is_users:
            try:
                yield
            except KeyboardInterrupt:
                if not is_users():
                    raise
                self.stopped = f"stopped by you after {self.calls:,} calls"

    def affordable(self, share: float, most: int, fewest: int = LEAST_CALLS) -> int:
        """Calls for a share of the time that is left, at the function's speed."""
        rest = max(self.deadline - time.perf_counter(), 0.0)
        calls = share * rest / max(self.seconds, 1e-9)
        return most if calls >= most else max(int(calls), min(most, fewest))

    def is_short(self, needed: int) -> bool:
        """Whether so many calls take long, or longer than there is time.

        Without a limit those that take minutes get one.
        """
        self._timed = time.perf_counter(), self.calls
        if math.isfinite(self.deadline):
            return self.affordable(1.0, needed) < needed
        if self.seconds * needed > _PATIENCE:
            self.deadline = self.began + _SECONDS
        return self.seconds * needed > _SECONDS

    def time_up(self, needed: int, done: str = "") -> str:
        """Sentence about what was left undone, and what time it takes."""
        since, calls = self._timed or (self.began, 0)
        pace = (time.perf_counter() - since) / max(self.calls - calls, 1)
        needed = max(needed, self.calls)
        seconds = math.ceil(1.2 * needed * pace / 10) * 10
        return (
            f"{TIME_UP}: {done}all of it needs about {needed:,} calls, {seconds / 60:,.1f} minutes "
            f"at the speed of this function: give seconds={seconds}"
        )


def outcomes(
    cases: Iterable[Case],
    call: Callable[[Case, Any], Outcome],
    serving: Serving,
    deadline: float,
    made: int = 0,
) -> Iterator[tuple[Case, Outcome]]:
    """Cases and the outcomes of calls on them, given the generator served, up to the deadline.

    So many calls were `made` before; `LEAST_CALLS` are made even if time is up.
    """
    for n, case in enumerate(cases, made):
        if n >= LEAST_CALLS and time.perf_counter() > deadline:
            return
        with serving.inside:
            outcome = call(case, serving.rng)
        serving.check()
        yield case, outcome


R = TypeVar("R", bound=Report)

#: Calls up to each look, as a multiple of those asked for, and its share of the false-alarm rate.
LOOKS = ((1, 0.9), (3, 0.09), (9, 0.01))


def settled(
    look: Callable[[Options], list[R]], options: Options, deadline: float = math.inf
) -> list[R]:
    """Reports of the first look after which nothing points to a fault, or of the last one.

    A look reports on all outcomes after ``options.num_trials`` calls in all, at the rate of false
    alarms of the options it is given. No other one begins after the deadline.
    """
    reports: list[R] = []
    for times, share in LOOKS:
        calls, late = options.num_trials * times, time.perf_counter() > deadline
        if reports and (late or calls * options.num_drafts > MAX_SAMPLED):
            if late:
                note = options.up("more calls might have settled it")
                reports = [replace(one, notes=(*one.notes, note)) for one in reports]
            break
        at = replace(options, num_trials=calls, false_alarm=options.false_alarm * share)
        reports = [replace(one, false_alarm=options.false_alarm) for one in look(at)]
        if any(x.verdict_class == LOSSY for x in reports) or not any(x.points_to for x in reports):
            return reports
    return [unsettled(one) for one in reports]


def unsettled(report: R) -> R:
    """The report, "not settled" if it points to a fault."""
    return replace(report, verdict_class=NOT_SETTLED) if report.points_to else report
