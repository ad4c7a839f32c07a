"""Texts that a function wrote with one pair of models, and checks of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.by_place import ByPlace
from mdsd_opt.auditing.output_checks import TEXTS, Cells, law_checks, merged_cells
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.report import Check, Interval
from mdsd_opt.auditing.settings import LEAST_CALLS, Options, detectable_bias
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.texts.report import Trial
from mdsd_opt.auditing.texts.rounds import Rounds
from mdsd_opt.auditing.texts.session import Session, log_failure, log_impossible
from mdsd_opt.auditing.texts.text_law import position_checks, variations
from mdsd_opt.auditing.texts.toys import AnyTables, RowTables, Text
from mdsd_opt.auditing.trees.texts import Texts

Vector = NDArray[np.float64]

#: Number of first calls that all fail after which no others are made.
_HOPELESS_CALLS = 10

#: Number of calls that show whether the audit is ever asked for a random number.
_WATCHED = 20

#: Number of groups of texts for the bias that the report states.
_GROUPS = 16

#: p-value below which a position is named, once the law is known to be wrong.
_NAMED = 1e-3

_WORDS = TEXTS._replace(dependence="texts that depend on earlier ones")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Written:
    """Results of a session's calls, beside the texts themselves.

    Attributes
    ----------
    events : list of list of str
        Kinds of the tokens, see `Rounds.events`.
    wrong, failed : ViolationLog
        Impossible texts; calls that gave none.
    restarting, notes : tuple of str
        Generators that begin anew in call after call; what could not be done.
    distance, interval : float and Interval or None
        Total variation from the law that is right, once it was looked at.
    """

    tables: AnyTables
    events: list[list[str]]
    num_calls: int
    seconds: float
    wrong: ViolationLog
    failed: ViolationLog
    restarting: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    distance: float = 0.0
    interval: Interval | None = None
    tolerance: None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether every call failed."""
        return self.failed.count == self.num_calls

    def trial(self) -> Trial:
        """Trial as reports list it."""
        return Trial.on(
            self.tables,
            method="sampling",
            total_variation=self.distance,
            num_trials=self.num_calls,
            seconds=self.seconds,
        )

    @property
    def all_fields(self) -> dict[str, Any]:
        """Values by name, for a sample that says more."""
        return {each.name: getattr(self, each.name) for each in fields(Written)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample(Written):
    """Texts, completed by the target and numbered.

    Attributes
    ----------
    numbers : ndarray of int64, shape (N,)
        Numbers of the texts, by `Texts`.
    """

    texts: Texts
    numbers: NDArray[np.int64]
    position_checks: tuple[Check, ...] = ()

    @property
    def law(self) -> Vector:
        """Observed frequencies of the texts."""
        return np.bincount(self.numbers, minlength=self.texts.law.size) / max(self.numbers.size, 1)

    @property
    def position(self) -> int | None:
        """First token whose law given those before it seems wrong."""
        odd = (n for n, check in enumerate(self.position_checks) if check.p_value < _NAMED)
        return next(odd, None)

    @property
    def first_token_variation(self) -> float:
        """Total variation of the first token's law, as observed."""
        return variations(self.texts, self.law)[0]

    def detectable_bias(self, options: Options) -> float:
        """Smallest total variation between groups of texts that is found with the power."""
        cells = _grouped(self).probabilities.size
        level = options.level(self.checks)
        return detectable_bias(self.numbers.size, cells, level, options.power)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WideSample(Written):
    """Texts over a wide vocabulary, by the places of their tokens."""

    num_cells: int
    first_token_variation: float
    position: int | None

    def detectable_bias(self, options: Options) -> float:
        """Smallest total variation between classes of tokens that is found with the power."""
        level = options.level(self.checks)
        return detectable_bias(self.num_calls, self.num_cells, level, options.power)


def wide_sample(
    session: Session, rng: np.random.Generator, options: Options, deadline: float
) -> WideSample:
    """Texts over a wide vocabulary, and their checks."""
    tables = session.tables
    assert isinstance(tables, RowTables)
    places = [session.target((0,) * n) for n in range(tables.length)]
    texts = ByPlace(places, [tables.draft((0,) * n) for n in range(tables.length)])

    def take(outcome: Text) -> bool:
        return texts.add(outcome, rng) is None

    told = _written(session, options.num_trials, rng, deadline, take)
    seen = texts.examined(rng, options.confidence)
    looked_at: dict[str, Any] = {
        "distance": seen.distance[0],
        "interval": seen.distance[1],
        "checks": () if told.failed.count else tuple(seen.checks),
    }
    return WideSample(
        **told.all_fields | looked_at,
        num_cells=seen.num_cells,
        first_token_variation=seen.first,
        position=seen.place if seen.distance[1].low > 0 else None,
    )


def checked_sample(
    session: Session, rng: np.random.Generator, options: Options, deadline: float
) -> Sample:
    """Texts, and their checks; none of those where calls failed."""
    sample = sampled(session, options.num_trials, rng, deadline)
    texts, numbers = sample.texts, sample.numbers
    if not numbers.size or sample.failed.count:
        return sample
    order = np.arange(texts.law.size)
    cells = merged_cells(texts.law, order, numbers.size)
    each = position_checks(texts, numbers, rng)
    found = statistics.distance(numbers, texts.law, options.confidence, cells.of_token)
    groups = _grouped(sample)
    scores = statistics.split_scores(groups.counts(numbers), groups.probabilities, rng)[0]
    grouped = Check("groups of texts", "any change between them", statistics.chi_square(scores))
    return replace(
        sample,
        checks=(*law_checks(texts.law, order, numbers, rng, _WORDS), grouped, *each),
        position_checks=each,
        distance=found[0],
        interval=found[1],
    )


def _grouped(sample: Sample) -> Cells:
    """Groups of texts that begin alike, few enough for a bias of .05 to be found."""
    law = sample.texts.law
    return merged_cells(law, np.arange(law.size), sample.numbers.size, _GROUPS)


def sampled(session: Session, number: int, rng: np.random.Generator, deadline: float) -> Sample:
    """Sample until there are enough texts, or time is up, or all calls are failures."""
    texts = session.texts
    numbers: list[int] = []

    def take(outcome: Text) -> bool:
        if not texts.law[texts.place(outcome)].any():
            return False
        numbers.append(texts.completed(outcome, rng))
        return True

    told = _written(session, number, rng, deadline, take)
    return Sample(**told.all_fields, texts=texts, numbers=np.array(numbers, dtype=np.int64))


def _written(
    session: Session,
    number: int,
    rng: np.random.Generator,
    deadline: float,
    take: Callable[[Text], bool],
) -> Written:
    """Results of calls of the function; `take` keeps a text, or says that it is impossible."""
    began = time.perf_counter()
    wrong, failed = ViolationLog(), ViolationLog()
    events: list[list[str]] = []
    met: set[Hashable] = set()
    num_calls, is_served = 0, False
    with served(rng) as serving:
        while num_calls < number and failed.count < max(num_calls, _HOPELESS_CALLS):
            if num_calls >= LEAST_CALLS and time.perf_counter() > deadline:
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
            elif take(outcome):
                events.append(rounds.events(outcome))
            else:
                log_impossible(outcome, session.tables, "", wrong)
    notes: tuple[str, ...] = ()
    if len(met) > 1 and not is_served:
        notes = (
            "the outcome varied although no draw was served: its random numbers come from where "
            "the audit does not reach",
        )
    return Written(
        tables=session.tables,
        events=events,
        num_calls=num_calls,
        seconds=time.perf_counter() - began,
        wrong=wrong,
        failed=failed,
        restarting=serving.restarting,
        notes=notes,
    )
