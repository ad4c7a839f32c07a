"""Audits of one rule on laws of every kind: single tokens, or whole texts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.causes import behaviour, broken_side
from mdsd_opt.auditing.laws import SmallLaws, WideLaws, standard_laws, telling_laws, wide_laws
from mdsd_opt.auditing.pace import TIMED, Pace
from mdsd_opt.auditing.portfolio import PortfolioReport, Tried
from mdsd_opt.auditing.replay import Case, Replay
from mdsd_opt.auditing.subject import (
    AlwaysFails,
    Subject,
    TreeVerify,
    as_verifier,
    check_arguments,
)
from mdsd_opt.auditing.tree_rule import AuditedRule, TreeAuditReport, TreeSample, report_of
from mdsd_opt.auditing.verifier_audit import METHODS, OneProblem
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.seeds import Rng, generator_of
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
        on_trees = OnTrees(verify, topology, make, settings, promises, asked=asked.num_trials)
        return on_trees.report(small, wide, rng)
    if promise is not None:
        raise InvalidInput("promise goes with tree: a verifier of single tokens is given laws")
    name = scheme if isinstance(scheme, str) else ""
    return _on_single_tokens(verify, make, name, settings, rng)


def fixed_tree(tree: str | Topology) -> Topology:
    """The tree, parsed; `InvalidInput` for one that grows."""
    topology = parse_topology(tree) if isinstance(tree, str) else tree
    if not isinstance(topology, Topology):
        raise InvalidInput(
            f"the tree is {tree!r:.60}: give a fixed one, such as 2x3, none that grows"
        )
    return topology


def _on_single_tokens(
    verify: Any, make: SchemeMaker, scheme: str, options: Options, rng: np.random.Generator
) -> PortfolioReport:
    num_drafts, small = options.num_drafts, standard_laws(options.num_drafts)
    every: list[SmallLaws | WideLaws] = [*small, *wide_laws(1)]
    laws = [one for one in every if one.vocab_size >= num_drafts]
    share = options.false_alarm / len(every)
    each = replace(options, false_alarm=share, seconds=math.inf, progress=False)  # see `rest`
    is_function = not hasattr(verify, "conditional_law") and not _draws_itself(verify)
    is_function &= as_verifier(verify) is None and callable(verify)
    drives = is_plain = options.method == "auto" and is_function
    pace = Pace(options.deadline(), options.progress)
    if is_function:
        check_arguments(verify, "target, draft, drafts, rng")
        verify = pace.counting(verify)

    def judge(one: SmallLaws | WideLaws, make: SchemeMaker, trials: int, rest: float) -> Any:
        method = "driven" if is_plain else options.method
        is_wide = one.vocab_size > small[0].vocab_size
        if method == "driven" and (is_wide or (is_plain and not drives)):
            method = "sampling"
        seconds = math.inf if _draws_itself(verify) else rest
        probes = pace.affordable(0.02, each.edge_probes, 0)
        own = replace(each, num_trials=trials, method=method, seconds=seconds, edge_probes=probes)
        return OneProblem(verify, problem_of(one, make), rng, own).report()

    def problem_of(one: SmallLaws | WideLaws, make: SchemeMaker) -> TransportProblem:
        return TransportProblem(one.target(()), make(one.draft(()), num_drafts))

    tried: list[Tried] = []

    def try_all() -> Replay | None:
        nonlocal drives
        if is_function:
            OneProblem(verify, problem_of(small[0], make), rng, each).time_calls()
            if pace.is_short(needed):
                telling = partial(judge, telling_laws(1), make, _LOOK, math.inf)
                first = _tried(telling_laws(1), num_drafts, telling)
                if first.verdict_class == LOSSY:
                    tried.append(first)
                    return None
        replay = None
        if pace.affordable(0.2, _REPLAYED) == _REPLAYED:
            replay = _repeated_decisions(verify, small, make, options, rng)
        if replay is not None:
            replay.run(deadline=shared(pace.deadline, _REPLAY_PARTS))
            drives &= not replay.differing
        drives &= pace.affordable(0.5 / len(small), _DRIVEN) == _DRIVEN
        for n, one in enumerate(laws):
            if tried and pace.late:
                break
            rest = shared(pace.deadline, len(laws) - n) - time.perf_counter()
            judged = partial(judge, one, make, options.num_trials, max(rest, _LEAST_SECONDS))
            tried.append(_tried(one, num_drafts, judged))
        return replay

    needed = _DRIVEN_TOKENS * len(small) + 2 * options.num_trials + _REPLAYED
    replay = None
    with pace.stopping():
        replay = try_all()
    if pace.stopped and not tried:
        raise KeyboardInterrupt
    drafts_from = scheme.replace("_", " ")
    report = _combined(tried, laws, pace, needed, replay, drafts_from=drafts_from)
    if report.example is not None:
        report = replace(report, example=replace(report.example, seed=options.seed))
    if num_drafts < 2 or not scheme or ":" in scheme or pace.stopped or pace.late or len(tried) < 2:
        return report
    others = []
    for other in SINGLE_MODEL_SCHEMES:
        rest = pace.deadline - time.perf_counter()
        if other == scheme or rest <= 0:
            continue
        try:
            beside = judge(small[0], scheme_maker(other), _OTHER_TRIALS, rest)
            others.append(f"{other.replace('_', ' ')}: {beside.verdict_class}")
        except ForeignFault:
            raise
        except (InvalidInput, UnsupportedScheme):
            others.append(f"{other.replace('_', ' ')}: refused")
    told = ", ".join(others) or "not tried, as the time was up"
    note = f"on drafts that are drawn in other ways: {told}"
    return replace(report, notes=(*report.notes, note))


def _repeated_decisions(
    verify: Any,
    small: Sequence[SmallLaws],
    make: SchemeMaker,
    options: Options,
    rng: np.random.Generator,
) -> Replay | None:
    """Decisions to repeat; None for the package's own verifiers and those that draw drafts."""
    if as_verifier(verify) is not None or _draws_itself(verify):
        return None
    calls, cases = [0], list[Case]()

    def case(subject: Subject, drafts: Any) -> Case:
        def answer(rng: np.random.Generator) -> Any:
            calls[0] += 1
            return subject.token(drafts, rng)

        return answer

    for laws in small[:2]:
        drafts = make(laws.draft(()), options.num_drafts)
        subject = Subject(verify, TransportProblem(laws.target(()), drafts), False)
        cases += [case(subject, row) for row in drafts.sample(rng, _REPEATED // 2)]
    return Replay(cases, lambda: calls[0], int(rng.integers(2**31)))


def _draws_itself(verify: Any) -> bool:
    return hasattr(as_verifier(verify) or verify, "simulate")


@dataclass(slots=True, eq=False)
class OnTrees:
    """Audit of a rule for trees of drafts on laws of every kind.

    Wide laws come first, with few calls, which show what is cut by rank or by size; then it is
    looked for answers that depend on earlier calls; small laws are driven, and so exact; the other
    calls go to the wide laws.
    """

    verify: TreeVerify
    tree: Topology
    make: SchemeMaker
    options: Options
    promises: Promises = (None, None)
    kind: type[AuditedRule] = AuditedRule
    asked: int | None = None  # calls on each law, where their number was given
    rng: np.random.Generator = field(init=False, repr=False)
    _counting: TreeVerify = field(init=False, repr=False)
    pace: Pace = field(default_factory=Pace)
    driven: int = 0
    undriven: int = 0
    beside: int | None = None  # calls on each small law once a suspected fault was examined
    tried: list[Tried] = field(default_factory=list)
    begun: dict[int, TreeSample | InvalidInput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._counting = self.pace.counting(self.verify)

    def report(
        self,
        small: Sequence[SmallLaws],
        wide: Sequence[WideLaws],
        rng: np.random.Generator,
        notes: tuple[str, ...] = (),
    ) -> PortfolioReport:
        """Report of all laws; together they share the rate of false alarms."""
        shares = len(small) + len(wide)
        self.options = replace(self.options, false_alarm=self.options.false_alarm / shares)
        self.pace = Pace(self.options.deadline(), self.options.progress)
        self._counting, self.rng = self.pace.counting(self.verify), rng
        needed = sum(map(self._wide_calls, wide)) + _DRIVEN * len(small) + _REPLAYED
        replay = None
        with self.pace.stopping():
            replay = self._on_all(small, wide, needed)
        if self.pace.stopped:
            self._add_begun(wide)
            if not self.tried:
                raise KeyboardInterrupt
        every: list[SmallLaws | WideLaws] = [*small, *wide]
        report = _combined(self.tried, every, self.pace, needed, replay, notes)
        if report.verdict_class != LOSSY or self.pace.stopped:
            return report
        every.append(telling_laws(self.tree.depth + 1))
        met = [(one.law, one.vocab_size) for one in self.tried if one.report is not None]
        judged = [one for one in every if (one.name, one.vocab_size) in met]
        with self.pace.stopping():
            report = replace(report, cause=self._cause(judged, report.worst) or report.cause)
        notes = (*report.notes, *filter(None, [self.pace.stopped]))
        return replace(report, notes=notes, seconds=time.perf_counter() - self.pace.began)

    def _on_all(
        self, small: Sequence[SmallLaws], wide: Sequence[WideLaws], needed: int
    ) -> Replay | None:
        """Try the rule on all laws, or on those for which there is time."""
        total = len(small) + 2 * len(wide) + 1
        with progress_bar("laws", total, self.options.progress) as advance:
            self._time_calls([*small[:1], *wide[:1]])
            if self.pace.is_short(needed) and small and wide and self._looks_wrong():
                return None
            for n, laws in enumerate(wide):
                try:
                    sample = TreeSample(self.rule(laws), self.rng)
                    first = min(_FIRST_CALLS, self.options.num_trials)
                    sample.sample(self.pace.affordable(0.2, first), self.pace.deadline)
                    self.begun[n] = sample
                except (AlwaysFails, NoTokenLeft) as error:
                    self.begun[n] = error
                advance(1)
            replay = None
            if self.pace.affordable(0.2, _REPLAYED) == _REPLAYED:
                replay = self._replayed([*small[:1], *wide[:1]])
            advance(1)
            for one in small:
                if self.tried and self.pace.late:
                    break
                judge = partial(self._on_small, one, replay)
                self.tried.append(_tried(one, one.fitting(self.tree).num_nodes, judge))
                advance(1)
            self._add_begun(wide, advance)
        return replay

    def _time_calls(self, laws: Sequence[SmallLaws | WideLaws]) -> None:
        """Make some calls on each, which tell how long they take."""
        with suppress(AlwaysFails, NoTokenLeft):
            for one in laws:
                TreeSample(self.rule(one), np.random.default_rng(0)).sample(TIMED // len(laws))

    def _looks_wrong(self) -> bool:
        """Whether some dozens of calls on telling laws show a fault, which is then kept."""
        laws = telling_laws(self.tree.depth + 1)

        def judge() -> TreeAuditReport:
            sample = TreeSample(self.rule(laws), np.random.default_rng(1))
            sample.sample(_LOOK)
            return sample.report(replace(self.options, edge_probes=0))

        one = _tried(laws, self.tree.num_nodes, judge)
        if one.verdict_class == LOSSY:
            self.tried.append(one)
        return bool(self.tried)

    def _add_begun(
        self, wide: Sequence[WideLaws], advance: Callable[[int], None] = lambda n: None
    ) -> None:
        """Add what wide laws show: after more calls, if no fault was found, and there is time."""
        is_lossy = any(one.verdict_class == LOSSY for one in self.tried)

        def finished(sample: TreeSample | InvalidInput, laws: WideLaws) -> TreeAuditReport:
            if isinstance(sample, InvalidInput):
                raise sample
            if is_lossy or self.pace.late:
                return sample.report()
            return sample.settled(self.pace.deadline, number=self._wide_calls(laws))

        for n, first in self.begun.items():
            judge = partial(finished, first, wide[n])
            self.tried.append(_tried(wide[n], self.tree.num_nodes, judge))
            advance(1)

    def _wide_calls(self, laws: WideLaws) -> int:
        if self.asked is not None:
            return self.asked
        return next(calls for most, calls in _CALLS_UP_TO if laws.vocab_size <= most)

    def rule(
        self,
        laws: SmallLaws | WideLaws,
        applied: tuple[bool, bool] = (False, False),
        **changes: Any,
    ) -> AuditedRule:
        by_place = isinstance(laws, WideLaws)
        probes = self.pace.affordable(0.02, self.options.edge_probes, 0)
        options = replace(self.options, progress=False, edge_probes=probes)
        if not by_place:
            options = replace(options, edge_probes=min(probes, 64), **changes)
        return self.kind(
            self._counting, laws.target, laws.draft, laws.fitting(self.tree), self.make, options,
            self.promises, by_place=by_place, applied=applied,
        )  # fmt: skip

    def _on_small(self, one: SmallLaws, replay: Replay | None) -> TreeAuditReport:
        seconds = max(self.pace.deadline - time.perf_counter(), 0.1) / 2  # to drive, then to sample
        if replay is None or not replay.differing:
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

    def _replayed(self, laws: Sequence[SmallLaws | WideLaws]) -> Replay | None:
        if self.options.num_trials < _FIRST_CALLS:
            return None
        cases: list[Case] = []
        for one in laws:
            with suppress(NoTokenLeft):
                rule = self.rule(one)
                for _ in range(_REPEATED // len(laws)):
                    cases.append(partial(rule.outcome, rule.drawn(self.rng)))
        if not cases:
            return None
        replay = Replay(cases, lambda: self.pace.calls, int(self.rng.integers(2**31)))
        replay.run(deadline=self.pace.deadline)
        return replay

    def _cause(self, laws: Sequence[SmallLaws | WideLaws], worst: Tried) -> str:
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


def _combined(
    tried: Sequence[Tried],
    laws: Sequence[SmallLaws | WideLaws],
    pace: Pace,
    needed: int,
    replay: Replay | None,
    notes: tuple[str, ...] = (),
    drafts_from: str = "",
) -> PortfolioReport:
    """Report of the laws that were tried, which names the others and says what they need."""
    if pace.stopped:
        notes += (pace.stopped,)
    elif replay is not None:
        notes += replay.note_after(pace.deadline)
    met = {(one.law, one.vocab_size) for one in tried}
    left = [one.name for one in laws if (one.name, one.vocab_size) not in met]
    is_lossy = any(one.verdict_class == LOSSY for one in tried)
    cut = (note for one in tried if one.report is not None for note in one.report.notes)
    is_cut = pace.late or any(note.startswith(TIME_UP) for note in cut)
    if is_cut and not (pace.stopped or (is_lossy and left)):
        small = [one.name for one in laws if isinstance(one, SmallLaws)]
        driven = sum(one.report is not None and one.report.method == "driven" for one in tried)
        done = f"{driven} of {len(small)} small laws were driven; " if small else ""
        notes += (pace.time_up(needed, done),)
    if left:
        notes += (f"not tried: {', '.join(left)}",)
    report = PortfolioReport.of(tried, pace.began, notes, drafts_from)
    is_unsure = left or (replay is not None and replay.differing)
    if report.clean and left:
        report = replace(report, detectable_bias=1.0)
    if report.verdict_class == LOSSLESS and is_unsure:
        return replace(report, verdict_class=NO_DEVIATION, detectable_bias=1.0)
    return report


def _tried(laws: SmallLaws | WideLaws, num_drafts: int, judge: Callable[[], Any]) -> Tried:
    """Result of one pair of laws, refusals included."""
    try:
        return Tried.of(laws, "1 draft" if num_drafts == 1 else f"{num_drafts} drafts", judge())
    except (AlwaysFails, ProblemTooLarge, NoTokenLeft) as error:
        deliberate = True  # nothing can be judged on these laws
        if isinstance(error, AlwaysFails):
            deliberate = error.deliberate and laws.has_zeros
        return Tried(laws.name, laws.vocab_size, "", None, str(error), deliberate)
