"""Audits of one rule on laws of every kind: single tokens, or whole texts."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.causes import behaviour, broken_side
from mdsd_opt.auditing.laws import SmallLaws, WideLaws, standard_laws, telling_laws, wide_laws
from mdsd_opt.auditing.pace import TIMED, Pace
from mdsd_opt.auditing.portfolio import PortfolioReport, Tried
from mdsd_opt.auditing.replay import Case, Replay
from mdsd_opt.auditing.subject import (
    AlwaysFails,
    Subject,
    as_verifier,
    check_arguments,
)
from mdsd_opt.auditing.tree_rule import AuditedRule, TreeAuditReport, TreeSample, report_of
from mdsd_opt.auditing.verifier_audit import METHODS, OneProblem
from mdsd_opt.base.checked import Rng, generator_of, of_kind
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, SchemeMaker, checked_num_drafts, scheme_maker
from mdsd_opt.errors import ForeignFault, InvalidInput, ProblemTooLarge, UnsupportedScheme
from mdsd_opt.evidence import (
    LOSSLESS,
    LOSSY,
    NO_DEVIATION,
    TIME_UP,
    AuditOptions,
    NoTokenLeft,
    OptionKeywords,
    Options,
    Promise,
    Promises,
    Report,
    both_sides,
    budgeted,
    options_of,
    shared,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.trees import Topology, parse_topology

#: Calls on each wide law at first; most faults show by then, and the rest comes after driving.
_FIRST_CALLS = 2_000

#: Calls on each law that is sampled, on a wide law, and on one as steep as that of 2,048 tokens,
#: unless their number is given: with these a bias of .05 is found, whatever its direction.
CALLS, WIDE_CALLS, LONG_CALLS = 20_000, 14_000, 21_000

#: Number of calls that are repeated.
_REPEATED = 32

#: Vocabulary sizes up to which so many calls are made; above, calls take long, and fewer are made.
_CALLS_UP_TO = ((64, WIDE_CALLS), (4_096, LONG_CALLS), (50_000, 12_000), (math.inf, 4_000))

#: Most calls, as a multiple of the usual number, that examine a law with a suspected fault, and
#: most calls on each of the other laws once that is found to be lossy.
_MOST_SUSPECT, _BESIDE_SUSPECT = 16, 4_000

#: After so many laws that cannot be driven, the others are sampled at once.
_HOPELESS = 2

#: Calls that find whose filters are missing, if the law is not driven; calls with a signature,
#: each of which is made twice, of a function that takes long.
_SIDE_CALLS, _SIGN_CALLS = 4_000, 40

#: Calls on the law where faults show first.
_LOOK = 100

#: Calls that drive a small law, about, and that look for answers that depend on earlier ones.
_DRIVEN, _REPLAYED = 7_000, 9_216

#: Part of the time in which calls are repeated is one of so many.
_REPLAY_PARTS = 5

#: Seconds of a law after the time is up: its least number of calls is made.
_LEAST_SECONDS = 1e-3

#: Calls that drive a small law of single tokens and hold others against it, about.
_DRIVEN_TOKENS = 22_000

#: Trials of each law under schemes other than the one asked for.
_OTHER_TRIALS = 4_000


@foreign("the function under audit")
def audit_portfolio(
    verify: Any,
    rng: Rng = 0,
    *,
    tree: str | Topology | None = None,
    scheme: str | SchemeMaker = "with_replacement",
    num_drafts: int = 2,
    promise: Promise | None = None,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[OptionKeywords],
) -> PortfolioReport:
    r"""Decide whether a verifier is lossless on laws of all kinds, where no law is given.

    They are random, peaked, sharp and nearly equal ones, one with ties, one of falling masses whose
    draft is reversed, one equal to its draft, some with zeros on either side, a certain target, a
    certain draft where there is one draft at a time, a random law of 32 tokens and one of 2,048
    with a long tail; the report says what each of them showed, how often drafts were accepted and
    refused, and, where K drafts of one token are verified, what comes of drafts that are drawn in
    other ways.

    Parameters
    ----------
    verify : callable, Verifier or str
        As in `mdsd_opt.audit`; with a `tree`, as in `mdsd_opt.audit_tree`.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    tree : str or Topology, optional
        "2x3", "chain2", ...: what is judged is the law of whole texts. Levels that are too many for
        a wide vocabulary are cut.
    scheme : str or callable
        Scheme by which drafts are drawn.
    num_drafts : int
        K, where there is no tree.
    promise : Sampling or callable, optional
        What the rule makes of logits, with a `tree`, see `mdsd_opt.audit_tree`.
    options : AuditOptions
        Its budgets are those of `mdsd_opt.audit_chain`, with 128 probes of edges; without a `tree`,
        wide laws are sampled as often as the others. Methods are those of `mdsd_opt.audit`.
    **keywords
        The same by their names, such as ``num_trials=2_000``.

    Returns
    -------
    PortfolioReport

    Raises
    ------
    InvalidInput
        The verifier fails on every call.
    """
    asked, make = options_of(options, keywords), scheme_maker(scheme)
    num_drafts = checked_num_drafts(num_drafts)
    own = {"num_trials": CALLS, "edge_probes": 128, "driven_checks": 65}
    settings = budgeted(asked, rng, methods=METHODS, num_drafts=num_drafts, **own)
    rng = generator_of(rng)
    if tree is not None:
        topology = fixed_tree(tree)
        check_arguments(verify, "root, rng")
        small = standard_laws(max(topology.num_drafts.values()))
        wide = wide_laws(topology.depth + 1)
        promises = both_sides(promise)
        of_tree: Any = {"tree": topology, "promises": promises}
        return OnTrees(verify, make, settings, asked.num_trials, **of_tree).report(small, wide, rng)
    if promise is not None:
        raise InvalidInput("promise goes with tree: a verifier of single tokens is given laws")
    name = scheme.replace("_", " ") if isinstance(scheme, str) else ""
    on_tokens = OnTokens(verify, make, settings, drafts_from=name)
    if on_tokens.is_function:
        check_arguments(verify, "target, draft, drafts, rng")
    small = [one for one in standard_laws(num_drafts) if one.vocab_size >= num_drafts]
    wide = [one for one in wide_laws(1) if one.vocab_size >= num_drafts]
    return on_tokens.report(small, wide, rng)


def fixed_tree(tree: str | Topology) -> Topology:
    """The tree, parsed; `InvalidInput` for one that grows."""
    topology = parse_topology(tree) if isinstance(tree, str) else tree
    return of_kind(topology, Topology, "the tree", "a fixed one, such as 2x3, none that grows")


Laws = SmallLaws | WideLaws


@dataclass(slots=True, eq=False)
class OnLaws(ABC):
    """Audit of one function on laws of every kind: where faults show, then where nothing is hidden.

    A slow function is first looked at where faults show at once. Wide laws come first, with few
    calls; then it is looked for answers that depend on earlier calls; small laws are driven, and so
    exact; the other calls go to the wide laws. What is called, and how, the classes below say.
    """

    verify: Any
    make: SchemeMaker
    options: Options
    asked: int | None = None  # calls on each law, where their number was given
    drafts_from: str = ""  # scheme in words
    rng: np.random.Generator = field(init=False, repr=False)
    counting: Any = field(init=False, repr=False)
    pace: Pace = field(default_factory=Pace)
    needed: int = 0  # calls, about
    replay: Replay | None = None
    tried: list[Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counting = self.pace.counting(self.verify)

    @property
    @abstractmethod
    def length(self) -> int:
        """Most tokens that a call gives."""

    @abstractmethod
    def drafts_on(self, laws: Laws) -> int:
        """Number of drafts of a call."""

    @abstractmethod
    def calls_on(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> int:
        """Number of all calls, about."""

    @abstractmethod
    def time_calls(self, laws: Sequence[Laws]) -> None:
        """Make some calls on each, which tell how long they take."""

    @abstractmethod
    def look(self, laws: Laws) -> Report:
        """Report after some dozens of calls."""

    @abstractmethod
    def begin(self, n: int, laws: WideLaws) -> None:
        """Make the first calls on the n-th wide laws."""

    @abstractmethod
    def replayed(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> Replay | None:
        """Calls that were repeated; None where that says nothing."""

    @abstractmethod
    def judge(self, laws: SmallLaws, parts: int) -> Report:
        """Report on laws, in one of so many parts of the time that is left."""

    @abstractmethod
    def finish(self, n: int, laws: WideLaws, parts: int) -> None:
        """Add what the n-th wide laws show: after more calls, if there is time for them.

        There is one of so many parts of the time that is left.
        """

    @abstractmethod
    def explained(
        self, report: PortfolioReport, small: Sequence[SmallLaws], wide: Sequence[WideLaws]
    ) -> PortfolioReport:
        """The report of all laws, with what else is worth a look."""

    def report(
        self,
        small: Sequence[SmallLaws],
        wide: Sequence[WideLaws],
        rng: np.random.Generator,
        notes: tuple[str, ...] = (),
    ) -> PortfolioReport:
        """Report of all laws; together they share the rate of false alarms."""
        share = self.options.false_alarm / (len(small) + len(wide))
        self.options = replace(self.options, false_alarm=share)
        self.pace, self.rng = Pace(self.options.deadline(), self.options.progress), rng
        self.counting = self.pace.counting(self.verify)
        self.needed = self.calls_on(small, wide)
        with self.pace.stopping():
            self._on_all(small, wide)
        if self.pace.stopped:
            for n, one in enumerate(wide):
                self.finish(n, one, 1)
            if not self.tried:
                raise KeyboardInterrupt
        report = self._combined([*small, *wide], notes)
        if not self.pace.stopped:
            with self.pace.stopping():
                report = self.explained(report, small, wide)
            if self.pace.stopped:
                report = replace(report, notes=(*report.notes, self.pace.stopped))
        return replace(report, seconds=time.perf_counter() - self.pace.began)

    def _on_all(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> None:
        """Try the function on all laws, or on those for which there is time."""
        total = len(small) + 2 * len(wide) + 1
        with progress_bar("laws", total, self.options.progress) as advance:
            self.time_calls([*small[:1], *wide[:1]])
            if self.pace.is_short(self.needed) and small and wide:
                telling = telling_laws(self.length)
                first = self.tried_on(telling, partial(self.look, telling))
                if first.verdict_class == LOSSY:
                    self.tried.append(first)
                    return
            for n, laws in enumerate(wide):
                self.begin(n, laws)
                advance(1)
            if self.pace.affordable(0.2, _REPLAYED) == _REPLAYED:
                self.replay = self.replayed(small, wide)
            advance(1)
            for n, one in enumerate(small):
                if self.tried and self.pace.late:
                    break
                parts = len(small) + len(wide) - n
                self.tried.append(self.tried_on(one, partial(self.judge, one, parts)))
                advance(1)
            for n, laws in enumerate(wide):
                self.finish(n, laws, len(wide) - n)
                advance(1)

    @property
    def remembers(self) -> bool:
        """Whether answers were met that depend on earlier calls."""
        return self.replay is not None and bool(self.replay.differing)

    def replaying(self, cases: Sequence[Case], deadline: float) -> Replay | None:
        """Repeated calls of some cases; None without any."""
        if not cases:
            return None
        replay = Replay(cases, lambda: self.pace.calls, int(self.rng.integers(2**31)))
        replay.run(deadline=deadline)
        return replay

    def tried_on(self, laws: Laws, judge: Callable[[], Any]) -> Tried:
        """Result of one pair of laws, refusals included."""
        number = self.drafts_on(laws)
        drafts = "1 draft" if number == 1 else f"{number} drafts"
        try:
            return Tried.of(laws, drafts, judge())
        except (AlwaysFails, ProblemTooLarge, NoTokenLeft) as error:
            deliberate = True  # nothing can be judged on these laws
            if isinstance(error, AlwaysFails):
                deliberate = error.deliberate and laws.has_zeros
            return Tried(laws.name, laws.vocab_size, "", None, str(error), deliberate)

    def _combined(self, laws: Sequence[Laws], notes: tuple[str, ...]) -> PortfolioReport:
        """Report of the laws that were tried, which names the others and says what they need."""
        tried, pace = self.tried, self.pace
        if pace.stopped:
            notes += (pace.stopped,)
        elif self.replay is not None:
            notes += self.replay.note_after(pace.deadline)
        met = {(one.law, one.vocab_size) for one in tried}
        left = [one.name for one in laws if (one.name, one.vocab_size) not in met]
        is_lossy = any(one.verdict_class == LOSSY for one in tried)
        cut = (note for one in tried if one.report is not None for note in one.report.notes)
        is_cut = pace.late or any(note.startswith(TIME_UP) for note in cut)
        if is_cut and not (pace.stopped or (is_lossy and left)):
            small = [one.name for one in laws if isinstance(one, SmallLaws)]
            driven = sum(one.report is not None and one.report.method == "driven" for one in tried)
            done = f"{driven} of {len(small)} small laws were driven; " if small else ""
            notes += (pace.time_up(self.needed, done),)
        if left:
            notes += (f"not tried: {', '.join(left)}",)
        report = PortfolioReport.of(tried, pace.began, notes, self.drafts_from)
        if report.clean and left:
            report = replace(report, detectable_bias=1.0)
        if report.verdict_class == LOSSLESS and (left or self.remembers):
            return replace(report, verdict_class=NO_DEVIATION, detectable_bias=1.0)
        return report


@dataclass(slots=True, eq=False)
class OnTokens(OnLaws):
    """Audit of a verifier of single tokens on laws of every kind."""

    @property
    def length(self) -> int:
        return 1

    def calls_on(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> int:
        return _DRIVEN_TOKENS * len(small) + 2 * self.options.num_trials + _REPLAYED

    def drafts_on(self, laws: Laws) -> int:
        return self.options.num_drafts

    @property
    def is_function(self) -> bool:
        """Whether calls are all there is: no law is stated, and drafts are given."""
        stated = hasattr(self.verify, "conditional_law") or _draws_itself(self.verify)
        return not stated and as_verifier(self.verify) is None and callable(self.verify)

    def one(
        self, laws: Laws, trials: int, make: SchemeMaker | None = None, **own: Any
    ) -> OneProblem:
        """Audit of one problem."""
        drafts = (make or self.make)(laws.draft(()), self.options.num_drafts)
        probes = self.pace.affordable(0.02, self.options.edge_probes, 0)
        own = {"seconds": math.inf, "progress": False, "edge_probes": probes, **own}
        options = replace(self.options, num_trials=trials, **own)
        verify = self.counting if self.is_function else self.verify
        return OneProblem(verify, TransportProblem(laws.target(()), drafts), self.rng, options)

    def time_calls(self, laws: Sequence[Laws]) -> None:
        if self.is_function:
            self.one(laws[0], 1).time_calls()

    def look(self, laws: Laws) -> AuditReport:
        return self.one(laws, _LOOK, method="sampling").report()

    def begin(self, n: int, laws: WideLaws) -> None:
        """Nothing: all calls of a law are made at once."""

    def judge(
        self,
        laws: Laws,
        parts: int,
        trials: int | None = None,
        make: SchemeMaker | None = None,
    ) -> AuditReport:
        method = self.options.method
        if method == "auto" and self.is_function:
            drives = self.pace.affordable(0.5 / parts, _DRIVEN) == _DRIVEN
            drives &= not self.remembers
            method = "driven" if drives and isinstance(laws, SmallLaws) else "sampling"
        elif method == "driven" and isinstance(laws, WideLaws):
            method = "sampling"
        trials = self.options.num_trials if trials is None else trials
        return self.one(laws, trials, make, method=method, seconds=self._rest(parts)).report()

    def _rest(self, parts: int) -> float:
        """Seconds for one law of so many."""
        if _draws_itself(self.verify):
            return math.inf
        rest = shared(self.pace.deadline, parts) - time.perf_counter()
        return max(rest, _LEAST_SECONDS)

    def finish(self, n: int, laws: WideLaws, parts: int) -> None:
        if not (self.pace.stopped or self.pace.late):
            self.tried.append(self.tried_on(laws, partial(self.judge, laws, parts)))

    def replayed(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> Replay | None:
        """Repeated decisions; None of the package's own verifiers and those that draw drafts."""
        if as_verifier(self.verify) is not None or _draws_itself(self.verify):
            return None
        cases = list[Case]()
        for laws in small[:2]:
            drafts = self.make(laws.draft(()), self.options.num_drafts)
            subject = Subject(self.counting, TransportProblem(laws.target(()), drafts), False)
            rows = drafts.sample(self.rng, _REPEATED // 2)
            cases += [partial(subject.token, row) for row in rows]
        return self.replaying(cases, shared(self.pace.deadline, _REPLAY_PARTS))

    def explained(
        self, report: PortfolioReport, small: Sequence[SmallLaws], wide: Sequence[WideLaws]
    ) -> PortfolioReport:
        """The report, and what comes of drafts that are drawn in other ways."""
        name, others = self.drafts_from.replace(" ", "_"), []
        is_known = bool(name) and ":" not in name
        if self.options.num_drafts < 2 or not is_known or self.pace.late or len(self.tried) < 2:
            return report
        for other in SINGLE_MODEL_SCHEMES:
            if other == name or self.pace.late:
                continue
            try:
                make = scheme_maker(other)
                beside = self.judge(small[0], 1, _OTHER_TRIALS, make)
                others.append(f"{other.replace('_', ' ')}: {beside.verdict_class}")
            except ForeignFault:
                raise
            except (InvalidInput, UnsupportedScheme):
                others.append(f"{other.replace('_', ' ')}: refused")
        told = ", ".join(others) or "not tried, as the time was up"
        note = f"on drafts that are drawn in other ways: {told}"
        return replace(report, notes=(*report.notes, note))


def _draws_itself(verify: Any) -> bool:
    return hasattr(as_verifier(verify) or verify, "simulate")


@dataclass(slots=True, eq=False)
class OnTrees(OnLaws):
    """Audit of a rule for trees of drafts on laws of every kind."""

    tree: Topology = field(kw_only=True)
    promises: Promises = (None, None)
    kind: type[AuditedRule] = AuditedRule
    driven: int = 0
    undriven: int = 0
    beside: int | None = None  # calls on each small law once a suspected fault was examined
    begun: dict[int, TreeSample | InvalidInput] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return self.tree.depth + 1

    def drafts_on(self, laws: Laws) -> int:
        return laws.fitting(self.tree).num_nodes

    def calls_on(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> int:
        return sum(map(self._wide_calls, wide)) + _DRIVEN * len(small) + _REPLAYED

    def time_calls(self, laws: Sequence[Laws]) -> None:
        with suppress(AlwaysFails, NoTokenLeft):
            for one in laws:
                TreeSample(self.rule(one), np.random.default_rng(0)).sample(TIMED // len(laws))

    def look(self, laws: Laws) -> TreeAuditReport:
        sample = TreeSample(self.rule(laws), np.random.default_rng(1))
        sample.sample(_LOOK)
        return sample.report(replace(self.options, edge_probes=0))

    def begin(self, n: int, laws: WideLaws) -> None:
        try:
            sample = TreeSample(self.rule(laws), self.rng)
            first = min(_FIRST_CALLS, self.options.num_trials)
            sample.sample(self.pace.affordable(0.2, first), self.pace.deadline)
            self.begun[n] = sample
        except (AlwaysFails, NoTokenLeft) as error:
            self.begun[n] = error

    def finish(self, n: int, laws: WideLaws, parts: int) -> None:
        if n not in self.begun:
            return
        sample, is_lossy = self.begun.pop(n), any(x.verdict_class == LOSSY for x in self.tried)

        def judge() -> TreeAuditReport:
            if isinstance(sample, InvalidInput):
                raise sample
            if is_lossy or self.pace.late or self.pace.stopped:
                return sample.report()
            return sample.settled(self.pace.deadline, number=self._wide_calls(laws))

        self.tried.append(self.tried_on(laws, judge))

    def _wide_calls(self, laws: WideLaws) -> int:
        if self.asked is not None:
            return self.asked
        return next(calls for most, calls in _CALLS_UP_TO if laws.vocab_size <= most)

    def rule(
        self,
        laws: Laws,
        applied: tuple[bool, bool] = (False, False),
        **changes: Any,
    ) -> AuditedRule:
        by_place = isinstance(laws, WideLaws)
        probes = self.pace.affordable(0.02, self.options.edge_probes, 0)
        options = replace(self.options, progress=False, edge_probes=probes)
        if not by_place:
            options = replace(options, edge_probes=min(probes, 64), **changes)
        return self.kind(
            self.counting, laws.target, laws.draft, laws.fitting(self.tree), self.make, options,
            self.promises, by_place=by_place, applied=applied,
        )  # fmt: skip

    def judge(self, one: SmallLaws, parts: int) -> TreeAuditReport:
        seconds = max(self.pace.deadline - time.perf_counter(), 0.1) / 2  # to drive, then to sample
        if (replay := self.replay) is None or not replay.differing:
            hopeless = self.undriven >= _HOPELESS and not self.driven
            hopeless |= self.pace.affordable(0.5, _DRIVEN) < _DRIVEN
            method = "sampling" if hopeless else self.options.method
            calls = self.pace.affordable(0.2, self.options.num_trials)
            rule = self.rule(one, seconds=seconds, method=method, num_trials=calls)
            report = report_of(rule, self.rng)
            self.driven += report.method == "driven"
            self.undriven += report.method != "driven"
            return report
        if self.beside is not None:
            rule = self.rule(one, num_trials=self.beside)
            return TreeSample(rule, self.rng).settled(self.pace.deadline)
        wanted = self.options.num_trials
        rule = self.rule(one, num_trials=wanted * min(replay.period, _MOST_SUSPECT))
        report = TreeSample(rule, self.rng).settled(self.pace.deadline, replay.is_suspect)
        is_lossy = report.verdict_class == LOSSY
        self.beside = min(_BESIDE_SUSPECT, wanted) if is_lossy else wanted
        return report

    def replayed(self, small: Sequence[SmallLaws], wide: Sequence[WideLaws]) -> Replay | None:
        laws: list[Laws] = [*small[:1], *wide[:1]]
        if self.options.num_trials < _FIRST_CALLS:
            return None
        cases: list[Case] = []
        for one in laws:
            with suppress(NoTokenLeft):
                rule = self.rule(one)
                for _ in range(_REPEATED // len(laws)):
                    cases.append(partial(rule.outcome, rule.drawn(self.rng)))
        return self.replaying(cases, self.pace.deadline)

    def explained(
        self, report: PortfolioReport, small: Sequence[SmallLaws], wide: Sequence[WideLaws]
    ) -> PortfolioReport:
        """The report, with the cause of a fault where a signature fits."""
        if report.verdict_class != LOSSY:
            return report
        every: list[Laws] = [*small, *wide, telling_laws(self.length)]
        met = [(one.law, one.vocab_size) for one in self.tried if one.report is not None]
        judged = [one for one in every if (one.name, one.vocab_size) in met]
        return replace(report, cause=self._cause(judged, report.worst) or report.cause)

    def _cause(self, laws: Sequence[Laws], worst: Tried) -> str:
        """Cause whose signature fits, or the side of which the promise is not kept.

        It takes a number of calls, within the limit that was asked for alone, on the laws where the
        deviation is worst, as what holds on others need not be why. Where tokens are impossible,
        signatures say little: then it is looked for on the first laws, unless there are such
        tokens, too.
        """
        place, end = (worst.law, worst.vocab_size), self.pace.began + self.options.seconds
        there = next(one for one in laws if (one.name, one.vocab_size) == place)
        is_driven, seen = worst.report.method == "driven", worst.report.num_trials

        def is_right(applied: tuple[bool, bool]) -> bool:
            if (seconds := end - time.perf_counter()) <= 0:
                return False
            if is_driven:
                rule = self.rule(there, applied, num_trials=_SIDE_CALLS, seconds=seconds)
                clean = report_of(rule, self.rng).clean
            else:
                sample = TreeSample(self.rule(there, applied), self.rng)
                for calls in (min(seen, _LOOK), min(4 * seen, _SIDE_CALLS)):
                    sample.sample(calls, end)
                    if not (clean := sample.report().clean):
                        break
            return clean and time.perf_counter() <= end

        if side := broken_side(is_right, self.promises):
            return side
        one = laws[0] if there.has_zeros else there
        if one.has_zeros:
            return ""
        is_short = math.isinf(end) and math.isfinite(self.pace.deadline)
        calls = _SIGN_CALLS if is_short else math.inf
        return behaviour(self.verify, self.rule(one).drawn, one.vocab_size, self.rng, end, calls)
