"""Texts that a function wrote with one pair of models, and checks of them."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from mdsd_opt.auditing.model_texts import PlaceLaws
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.seen_texts import ByPlace, Numbered, Seen, by_place
from mdsd_opt.auditing.subject import HOPELESS_CALLS, ViolationLog
from mdsd_opt.auditing.texts.report import Trial
from mdsd_opt.auditing.texts.rounds import Rounds
from mdsd_opt.auditing.texts.session import Session, log_failure, log_impossible
from mdsd_opt.auditing.texts.text_law import position_checks, variations
from mdsd_opt.auditing.texts.toys import AnyTables
from mdsd_opt.evidence import LEAST_CALLS, Check, Example, Interval, Options, pointed

#: Number of calls that show whether the audit is ever asked for a random number.
_WATCHED = 20

#: p-value below which a position is named, once the law is known to be wrong.
_NAMED = 1e-3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """Texts of a session, and results of its calls.

    Attributes
    ----------
    written : Numbered or ByPlace
        Texts, completed by the target.
    events : list of list of str
        Kinds of the tokens, see `Rounds.events`.
    wrong, failed : ViolationLog
        Impossible texts; calls that gave none.
    restarting, notes : tuple of str
        Generators that begin anew in call after call; what could not be done.
    seen : Seen or None
        None where nothing was looked at.
    checks : tuple of Check
        None of those of a sample in which calls failed.
    position : int or None
        First token whose law given those before it seems wrong.
    """

    tables: AnyTables
    written: Numbered | ByPlace
    events: list[list[str]] = field(default_factory=list)
    num_calls: int = 0
    seconds: float = 0.0
    wrong: ViolationLog = field(default_factory=ViolationLog)
    failed: ViolationLog = field(default_factory=ViolationLog)
    restarting: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: Seen | None = None
    checks: tuple[Check, ...] = ()
    position: int | None = None
    tolerance: None = None

    @classmethod
    def none(cls, session: Session) -> Sample:
        """No text so far."""
        tables = session.tables
        written: Numbered | ByPlace
        if isinstance(session.target, PlaceLaws):
            written = by_place(session.target, PlaceLaws(tables.draft, tables.length))
        else:
            written = Numbered(session.texts)
        return cls(tables=tables, written=written)

    @property
    def is_hopeless(self) -> bool:
        """Whether every call failed."""
        return self.failed.count == self.num_calls

    @property
    def distance(self) -> float:
        """Total variation from the law that is right, once it was looked at."""
        return 0.0 if self.seen is None else self.seen.distance

    @property
    def points_to(self) -> str:
        """What the texts point to, be it by chance; empty where to nothing."""
        return pointed(self.checks, self.interval)

    @property
    def interval(self) -> Interval | None:
        """Interval of the distance."""
        return None if self.seen is None else self.seen.interval

    @property
    def first_token_variation(self) -> float:
        """Total variation of the first token's law, as observed."""
        if isinstance(self.written, Numbered):
            return variations(self.written.texts, self.written.law)[0]
        return 0.0 if self.seen is None else self.seen.first

    def example(self) -> Example:
        """Text, or token of a wide law, that deviates most."""
        return self.written.example(0 if self.seen is None else self.seen.place)

    def trial(self) -> Trial:
        """Trial as reports list it."""
        return Trial.on(
            self.tables,
            method="sampling",
            total_variation=self.distance,
            num_trials=self.num_calls,
            seconds=self.seconds,
        )


def checked_sample(
    session: Session,
    rng: np.random.Generator,
    options: Options,
    deadline: float,
    earlier: Sample | None = None,
) -> Sample:
    """Texts, those of an earlier sample among them, and checks; none where calls failed."""
    sample = sampled(session, options.num_trials, rng, deadline, earlier)
    written = sample.written
    if isinstance(written, ByPlace):
        seen = written.examined(rng, options.confidence)
        return replace(
            sample,
            seen=seen,
            checks=() if sample.failed.count else seen.checks,
            position=seen.place if seen.interval.low > 0 else None,
        )
    if not written.size or sample.failed.count:
        return sample
    each = position_checks(written.texts, written.numbers, rng)
    seen = written.examined(rng, options.confidence)
    odd = (n for n, check in enumerate(each) if check.p_value < _NAMED)
    return replace(sample, seen=seen, checks=(*seen.checks, *each), position=next(odd, None))


def sampled(
    session: Session,
    number: int,
    rng: np.random.Generator,
    deadline: float,
    earlier: Sample | None = None,
) -> Sample:
    """Sample until there are enough texts, or time is up, or all calls are failures."""
    began, tables = time.perf_counter(), session.tables
    sample = earlier or Sample.none(session)
    written, events, wrong, failed = sample.written, sample.events, sample.wrong, sample.failed
    met: set[Hashable] = set()
    num_calls, is_served = sample.num_calls, False
    with served(rng) as serving:
        while num_calls < number and failed.count < max(num_calls, HOPELESS_CALLS):
            if num_calls >= LEAST_CALLS and time.perf_counter() > deadline:
                break
            rounds = Rounds()
            is_watched = num_calls < _WATCHED
            before = serving.progress if is_watched else None
            with serving.call():
                outcome = session.outcome(rounds.hear)
            num_calls += 1
            if is_watched:
                serving.check()
                is_served |= serving.progress != before
                met.add(outcome)
            if not isinstance(outcome, tuple):
                log_failure(outcome, wrong, failed)
            elif written.add(outcome, rng):
                events.append(rounds.events(outcome))
            else:
                log_impossible(outcome, tables, "", wrong)
    notes = sample.notes
    if len(met) > 1 and not is_served:
        notes = (
            "the outcome varied although no draw was served: its random numbers come from where "
            "the audit does not reach",
        )
    return replace(
        sample,
        num_calls=num_calls,
        seconds=sample.seconds + time.perf_counter() - began,
        restarting=tuple(dict.fromkeys((*sample.restarting, *serving.restarting))),
        notes=notes,
    )
