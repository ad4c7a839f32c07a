"""Is a function lossless that drafts by itself? The law of the texts it writes with toy models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mdsd_opt.auditing.driving import Undrivable
from mdsd_opt.auditing.report import EDGE, LOSSLESS, LOSSY, NOT_JUDGED
from mdsd_opt.auditing.settings import Settings, generator_of
from mdsd_opt.auditing.texts.driven_law import DrivenText, driven_text
from mdsd_opt.auditing.texts.report import TextAuditReport
from mdsd_opt.auditing.texts.rounds import counted
from mdsd_opt.auditing.texts.sample import Sample, checked_sample, sampled
from mdsd_opt.auditing.texts.session import LIBRARIES, Generate, Session
from mdsd_opt.auditing.texts.text_law import After, split_by_event, variations
from mdsd_opt.auditing.texts.toys import Tables
from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.errors import InvalidInput, UnknownName

METHODS = ("auto", "driven", "sampling")

#: Tokens of the sampled texts at V = 3, at least and at most.
_LONG, _LONGEST = 5, 11

#: Different texts of a law that is driven, at most.
_MAX_DRIVEN = 100

#: Of the time for all, until the first sample and until driving end.
_FIRST_SHARE, _DRIVING_SHARE = 0.3, 0.7

#: Seconds for driving a function that a sample has found wrong.
_ONCE_FOUND = 10.0

#: Texts that tell what came before a token whose driven law is wrong, and seconds for them.
_TELLING_TEXTS, _TELLING_SECONDS = 1_000, 5.0


def audit_text(
    generate: Generate,
    rng: np.random.Generator | int = 0,
    length: int = 3,
    library: str = "numpy",
    *,
    method: str = "auto",
    num_texts: int = 4_000,
    seconds: float = 60.0,
    progress: bool | None = None,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    tolerance: float | None = None,
    driven_checks: int = 100,
) -> TextAuditReport:
    r"""Settle whether a function that drafts, verifies and keeps state by itself is lossless.

    It is given two models, and writes the beginning of a text: in one step or in a session of
    many. What is missing of `length` tokens is completed by the target; lossless means that the law
    of all of them is the target's,

    .. math:: \sum_y \Pr(y) \prod_{i > |y|} p(t_i \mid t_{<i}) = \prod_i p(t_i \mid t_{<i})

    over the outputs y that a text t begins with. A session can be wrong where each decision is
    right: random numbers used again at the next step, drafts that end where their last token is
    unlikely, caches that keep refused tokens, a seed that is set anew in every call.

    Parameters
    ----------
    generate : callable
        ``(target, draft) -> tokens``: at least one token of a text, from the empty one on, as a
        list, an array or a tensor. Random numbers may come from `numpy.random`, `random`, PyTorch,
        or from generators that it makes, see `mdsd_opt.auditing.served`. The models are tables of
        random laws. With ``library="numpy"``: ``model(ids) -> logits`` of shape (len(ids) + 1, V),
        of what follows each beginning of the text, the empty one included. With
        ``library="torch"``: modules, ``model(ids) -> output`` with ``output.logits`` of shape
        (1, n, V) for ids of shape (1, n), where a first token of id 0, which is not returned,
        stands before the text; ``past_key_values`` (or ``cache``, as transformers 5.24 calls it) is
        taken, as tuples or as an object with `update` and `crop`, and handed back.
    rng : numpy.random.Generator or int
    length : int
        Tokens that are compared, 1 to 11. Up to four are driven; sampled are five or more.
    library : str
        "numpy" or "torch".
    method : str
        "driven": the law on small vocabularies, found by calling the function at chosen random
        numbers, exact up to the random checks that the report counts; "sampling"; "auto" does both,
        and only samples what can't be driven in the time.
    num_texts : int
        Sampled of each pair of models.
    seconds : float
        For everything; the report says how far it came.
    progress : bool, optional
        Whether to draw a bar on stderr; by default on a terminal, if it takes longer than a second.
    false_alarm : float
        Probability, at most, that sampling calls a lossless function lossy.
    power : float
        With which the reported `detectable_bias` is found.
    tolerance : float, optional
        Total variation of a driven law put down to rounding: by default 1e-9, and 1e-6 where
        anything is float32 or coarser.
    driven_checks : int
        Random calls that each driven law must foretell.

    Returns
    -------
    TextAuditReport
        Where calls raise, or return no tokens, it is "not judged".

    Raises
    ------
    InvalidInput
        It was to be driven, and cannot be.
    UnservedDraw
        It draws random numbers that the audit cannot answer.

    Notes
    -----
    What is said of accepted and refused drafts is read off the questions to the models. Positions
    are not looked at: a wrong ``position_ids`` shows nothing.
    """
    if not callable(generate):
        raise InvalidInput(
            f"generate is a {type(generate).__name__}: give a callable (target, draft) -> tokens"
        )
    if length not in range(1, _LONGEST + 1):
        raise InvalidInput(f"length is {length!r}: give an integer from 1 to {_LONGEST}")
    for name, given, known in (("library", library, LIBRARIES), ("method", method, METHODS)):
        if given not in known:
            raise UnknownName.among(name, given, known)
    checked_amount("seconds", seconds)
    if tolerance is not None:
        checked_tolerance("tolerance", tolerance, or_zero=True)
    settings = Settings(false_alarm, power, 0.99, num_texts)
    audit = _TextAudit(
        generate, generator_of(rng), int(length), library, settings, tolerance, driven_checks
    )
    return audit.report(method, seconds, progress)


def _sampled_tables(length: int) -> tuple[Tables, Tables]:
    """Longer texts, and a vocabulary in which a cut of the likeliest tokens shows."""
    return Tables(3, max(length, _LONG), 36), Tables(32, min(length, 3), 46)


def _driven_tables(length: int) -> Iterator[Tables]:
    """Small ones, with all that can go wrong in them: residuals of several tokens, zeros."""
    every = (
        Tables(2, length, 6),
        Tables(3, length, 16),
        Tables(3, length, 26, memory=1, zeros=True),
        Tables(2, length, 56, memory=1),
    )
    return (tables for tables in every if tables.vocab_size**length <= _MAX_DRIVEN)


@dataclass(slots=True, eq=False)
class _TextAudit:
    """What has been found so far."""

    generate: Generate
    rng: np.random.Generator
    length: int
    library: str
    settings: Settings
    tolerance: float | None
    checks: int
    samples: list[Sample] = field(default_factory=list)
    laws: list[DrivenText] = field(default_factory=list)
    undrivable: Undrivable | None = None

    def report(self, method: str, seconds: float, progress: bool | None) -> TextAuditReport:
        """Try all pairs of models until one shows something, or time is up."""
        began = time.perf_counter()
        long, wide = _sampled_tables(self.length)
        small = list(_driven_tables(self.length)) if method != "sampling" else []
        with progress_bar("pairs of models", len(small) + 2, progress) as advance:
            if method != "driven":
                self._sample(long, began + _FIRST_SHARE * seconds)
                advance(1)
            if not any(sample.is_hopeless for sample in self.samples):
                self._drive(small, began + _DRIVING_SHARE * seconds, advance)
                if method == "driven" and not self.laws:
                    raise self.undrivable or InvalidInput(
                        f"texts of {self.length} tokens are too many to drive: sample them"
                    )
                if method != "driven" and not self._is_wrong:
                    undriven = [t for t in small if t not in {law.tables for law in self.laws}]
                    for tables in (wide, *undriven[:1]):
                        self._sample(tables, began + seconds)
        return self._found(began)

    @property
    def _p_value(self) -> float:
        return self.settings.combined([c for sample in self.samples for c in sample.checks])

    @property
    def _sample_is_wrong(self) -> bool:
        found = self._p_value < self.settings.false_alarm
        return found or any(sample.wrong.count for sample in self.samples)

    @property
    def _is_wrong(self) -> bool:
        return self._sample_is_wrong or any(not law.is_right for law in self.laws)

    def _class(self, failed: bool) -> str:
        if self._sample_is_wrong or any(law.is_lossy for law in self.laws):
            return LOSSY
        if failed:
            return NOT_JUDGED
        return EDGE if self._is_wrong else LOSSLESS

    def _session(self, tables: Tables) -> Session:
        return Session(self.generate, tables, self.library)

    def _sample(self, tables: Tables, deadline: float) -> None:
        session, number = self._session(tables), self.settings.num_trials
        self.samples.append(checked_sample(session, number, self.rng, self.settings, deadline))

    def _drive(
        self, small: Sequence[Tables], deadline: float, advance: Callable[[int], None]
    ) -> None:
        """Laws on small vocabularies, one after the other, up to the first that is wrong."""
        for tables in small:
            now, is_known = time.perf_counter(), self._is_wrong
            until = min(now + _ONCE_FOUND, deadline) if is_known else (now + deadline) / 2
            try:
                self.laws.append(self._driven(tables, until, deadline))
            except Undrivable as error:
                self.undrivable = error
            advance(1)
            if self._is_wrong or not self.laws:
                return

    def _driven(self, tables: Tables, until: float, deadline: float) -> DrivenText:
        """A law; one that is wrong is driven without putting anything together."""
        session, merges = self._session(tables), tables.vocab_size > 2
        law = driven_text(session, self.checks, merges, self.tolerance, until)
        if law.fits or not law.num_merged:
            return law
        return driven_text(session, self.checks, False, self.tolerance, deadline)

    def _found(self, began: float) -> TextAuditReport:
        """The report; what it says of distances is of the law that shows the most."""
        settings, is_wrong, by_sample = self.settings, self._is_wrong, self._sample_is_wrong
        parts: list[Sample | DrivenText] = [*self.laws, *self.samples]
        failed = [part.failed for part in parts if part.failed.count]
        kind = self._class(bool(failed))
        logs = failed if kind == NOT_JUDGED else [part.wrong for part in parts]
        shown: Sample | DrivenText
        samples = list(self.samples)
        if self.laws and (not by_sample or not all(law.fits for law in self.laws)):
            shown = max(self.laws, key=lambda law: law.distance)
            if is_wrong or not samples:
                until = time.perf_counter() + _TELLING_SECONDS
                session = self._session(shown.tables)
                samples.append(sampled(session, _TELLING_TEXTS, self.rng, until))
            telling = samples[-1]
        else:
            shown = telling = min(samples, key=lambda each: settings.combined(each.checks))
        position = shown.position if is_wrong else None
        split: tuple[After, ...] = ()
        if position is not None:
            split = split_by_event(telling.texts, telling.numbers, telling.events, position)
        causes = {name: None for sample in samples for name in sample.restarting if is_wrong}
        events = [event for sample in samples for event in sample.events]
        notes = [note for sample in self.samples[:1] for note in sample.notes]
        if self.undrivable is not None and not (is_wrong or notes):
            notes.append(f"not driven: {self.undrivable.reason}")
        return TextAuditReport(
            lossless=kind == LOSSLESS,
            verdict_class=kind,
            method=shown.trial().method,
            vocab_size=shown.tables.vocab_size,
            length=shown.tables.length,
            total_variation=shown.distance,
            total_variation_interval=shown.interval,
            first_token_variation=variations(shown.texts, shown.law)[0],
            position=position,
            after=split,
            causes=tuple(f"{name} begins anew in every call" for name in causes),
            tried=tuple(part.trial() for part in parts),
            met=counted(events),
            notes=tuple(notes),
            num_trials=sum(sample.num_calls for sample in self.samples),
            num_checks=sum(law.num_checks for law in self.laws) if self.laws else None,
            tolerance=shown.tolerance,
            p_value=self._p_value if any(sample.checks for sample in self.samples) else None,
            false_alarm=settings.false_alarm,
            power=settings.power,
            detectable_bias=self.samples[0].detectable_bias(settings) if self.samples else None,
            checks=tuple(check for sample in self.samples for check in sample.checks),
            violations=tuple(violation for log in logs for violation in log.listed),
            num_violations=sum(log.count for log in logs),
            num_edge_probes=None if self.laws else 0,
            edge_mass=max(
                (law.edge_mass for law in self.laws if law.edge_mass is not None), default=None
            ),
            seconds=time.perf_counter() - began,
        )
