"""Texts that a function wrote with one pair of models, and the checks they are put to."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.output_checks import TEXTS, law_checks, merged_cells
from mdsd_opt.auditing.randomness.serving import served
from mdsd_opt.auditing.report import Check, Interval
from mdsd_opt.auditing.settings import Settings, detectable_bias
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.texts.report import Trial
from mdsd_opt.auditing.texts.rounds import Rounds
from mdsd_opt.auditing.texts.session import Session, log_failure, log_impossible, texts_of
from mdsd_opt.auditing.texts.text_law import position_checks
from mdsd_opt.auditing.texts.toys import Tables
from mdsd_opt.auditing.trees.texts import Texts

Vector = NDArray[np.float64]

#: If the first calls all fail, no others are made.
_HOPELESS_CALLS = 10

#: Calls in which it is watched whether the audit is ever asked for a number.
_WATCHED = 20

#: p-value below which a position is named, once the law is known to be wrong.
_NAMED = 1e-3

_WORDS = TEXTS._replace(dependence="texts that depend on earlier ones")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """Texts, completed by the target and numbered.

    Attributes
    ----------
    numbers : ndarray of int64, shape (N,)
        As `Texts` numbers them.
    events : list of list of str
        How their tokens came, see `Rounds.events`.
    wrong, failed : ViolationLog
        Impossible texts; calls that gave none.
    restarting, notes : tuple of str
        Generators that begin anew in call after call; what could not be done.
    """

    tables: Tables
    texts: Texts
    numbers: NDArray[np.int64]
    events: list[list[str]]
    num_calls: int
    seconds: float
    wrong: ViolationLog = field(default_factory=ViolationLog)
    failed: ViolationLog = field(default_factory=ViolationLog)
    restarting: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    position_checks: tuple[Check, ...] = ()
    distance: float = 0.0
    interval: Interval | None = None
    tolerance: None = None

    @property
    def law(self) -> Vector:
        """Observed frequencies."""
        return np.bincount(self.numbers, minlength=self.texts.law.size) / max(self.numbers.size, 1)

    @property
    def is_hopeless(self) -> bool:
        """Whether every call failed."""
        return self.failed.count == self.num_calls

    @property
    def position(self) -> int | None:
        """The first token whose law given those before it seems wrong."""
        odd = (n for n, check in enumerate(self.position_checks) if check.p_value < _NAMED)
        return next(odd, None)

    def detectable_bias(self, settings: Settings) -> float:
        """The smallest total variation that is found with the power wanted."""
        order = np.arange(self.texts.law.size)
        cells = merged_cells(self.texts.law, order, self.numbers.size).probabilities.size
        level = settings.level(self.checks)
        return detectable_bias(self.numbers.size, cells, level, settings.power)

    def trial(self) -> Trial:
        """As reports list it."""
        return Trial.on(
            self.tables,
            method="sampling",
            total_variation=self.distance,
            num_trials=self.num_calls,
            seconds=self.seconds,
        )


def checked_sample(
    session: Session,
    number: int,
    rng: np.random.Generator,
    settings: Settings,
    deadline: float,
) -> Sample:
    """Texts, and their checks; none of those where calls failed."""
    sample = sampled(session, number, rng, deadline)
    texts, numbers = sample.texts, sample.numbers
    if not numbers.size or sample.failed.count:
        return sample
    order = np.arange(texts.law.size)
    cells = merged_cells(texts.law, order, numbers.size)
    each = position_checks(texts, numbers, rng)
    found = statistics.distance(numbers, texts.law, settings.confidence, cells.of_token)
    return replace(
        sample,
        checks=(*law_checks(texts.law, order, numbers, rng, _WORDS), *each),
        position_checks=each,
        distance=found[0],
        interval=found[1],
    )


def sampled(session: Session, number: int, rng: np.random.Generator, deadline: float) -> Sample:
    """Texts until there are enough, or time is up, or all that is seen are failures."""
    began, tables, texts = time.perf_counter(), session.tables, texts_of(session.tables)
    wrong, failed = ViolationLog(), ViolationLog()
    numbers: list[int] = []
    events: list[list[str]] = []
    met: set[Hashable] = set()
    num_calls, is_served = 0, False
    with served(rng) as serving:
        while num_calls < number and failed.count < max(num_calls, _HOPELESS_CALLS):
            if num_calls and time.perf_counter() > deadline:
                break
            rounds = Rounds()
            is_watched = num_calls < _WATCHED
            before = rng.bit_generator.state if is_watched else None
            with serving.call():
                outcome = session.outcome(rounds.hear)
            num_calls += 1
            if is_watched:
                serving.check()
                is_served |= bool(rng.bit_generator.state != before)
                met.add(outcome)
            if not isinstance(outcome, tuple):
                log_failure(outcome, wrong, failed)
            elif not texts.law[texts.place(outcome)].any():
                log_impossible(outcome, tables, "", wrong)
            else:
                numbers.append(texts.completed(outcome, rng))
                events.append(rounds.events(outcome))
    notes: tuple[str, ...] = ()
    if len(met) > 1 and not is_served:
        notes = (
            "the outcome varied although no draw was served: its random numbers come from where "
            "the audit does not reach",
        )
    return Sample(
        tables=tables,
        texts=texts,
        numbers=np.array(numbers, dtype=np.int64),
        events=events,
        num_calls=num_calls,
        seconds=time.perf_counter() - began,
        wrong=wrong,
        failed=failed,
        restarting=serving.restarting,
        notes=notes,
    )
