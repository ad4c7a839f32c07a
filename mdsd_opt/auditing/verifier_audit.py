"""Audit of a verifier: its law by enumeration if it states one, its calls by sampling."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.audit_report import AuditReport, standing_of
from mdsd_opt.auditing.causes import cause
from mdsd_opt.auditing.checks import (
    LISTED_TOKENS,
    TOKENS,
    Sight,
    acceptance_check,
    by_ratio,
    deviations,
    law_checks,
    merged_cells,
    optimum,
    output_checks,
    uniformity_checks,
)
from mdsd_opt.auditing.draft_audit import drawn_tuples, examine
from mdsd_opt.auditing.driven_laws import found_law, settled_law
from mdsd_opt.auditing.driving import Budget
from mdsd_opt.auditing.edges import edge_violations
from mdsd_opt.auditing.enumerated import (
    ConditionalLaw,
    DrivenLaw,
    EnumeratedLaw,
    enumerate_law,
    exposed_law,
    fits,
)
from mdsd_opt.auditing.findings import AcceptedCount, Findings, FoundLaw
from mdsd_opt.auditing.pace import LOOKS, TIMED, Pace, settled, unsettled
from mdsd_opt.auditing.subject import (
    NO_TOKEN,
    AlwaysFails,
    Subject,
    ViolationLog,
    as_verifier,
    load_verifier,
    simulated,
    simulation,
)
from mdsd_opt.base.arrays import Vector
from mdsd_opt.base.checked import MAX_SAMPLED, Rng, check_truth, generator_of
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import (
    LOSSY,
    Check,
    Coverage,
    Level,
    LimitKeywords,
    Options,
    TokenDeviation,
    Violation,
    budgeted,
    options_of,
    shared,
    statistics,
)
from mdsd_opt.evidence import AuditOptions as AuditOptions
from mdsd_opt.problem import TransportProblem, checked_problem
from mdsd_opt.solvers import CostCurve, frontier_of

Sampler = Callable[[np.random.Generator, int], Any]

METHODS = ("auto", "enumeration", "driven", "sampling")

#: Number of draws for comparing a verifier with the law it states: enough to see a bias of .05.
_SAMPLER_TRIALS = 16_384

#: Most random checks of all draft tuples, and least of each, where driving was not asked for.
_MOST_CHECKS, _LEAST_CHECKS = 10_000, 20

#: Number of trials if neither it nor a time is given, and number of trials drawn at once.
_DEFAULT_TRIALS, _CHUNK = 100_000, 65_536

#: Calls that look for a fault of a slow function first; those that drive one tuple of drafts, as
#: if there were so many tuples at least.
_FIRST_CALLS, _DRIVEN, _FEWEST = 2_000, 300, 16

#: Most calls at the edges of draws.
_EDGE_PROBES = 512


@foreign("the function under audit")
def audit(
    verify: Any,
    problem: TransportProblem,
    rng: Rng = 0,
    num_trials: int | None = None,
    *,
    batched: bool = False,
    sample: Sampler | None = None,
    lossy: bool = False,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[LimitKeywords],
) -> AuditReport:
    r"""Decide whether a verifier is lossless: whether its output follows the target exactly.

    Lossless means :math:`\sum_x \Pr(x)\,\Pr(y \mid x) = p_y`. The law given the drafts may be
    anything (that freedom is what verifiers differ in), so no test of it can tell right from wrong:
    what is tested is the law of the output, that outputs are independent of earlier ones (of the
    one before; of those L calls before, for every L within the first 131,072 calls; and by how
    counts in 8, 16, 32, ... calls in a row scatter, where the same random numbers come back in no
    order), that the acceptance rate does not exceed the optimum, which no lossless verifier can,
    and that no token of probability zero comes out, not even at a uniform of exactly 0.

    An engine may ignore `rng` and draw from PyTorch (if that is imported when `audit` is called),
    from Python's `random` or from `numpy.random`: their generators are seeded by the audit, or such
    draws are answered, in the type asked for. States that are put back, copied or seeded anew bring
    their numbers back, see `mdsd_opt.auditing.served`.

    Parameters
    ----------
    verify : callable, Verifier or str
        ``(target, draft, drafts, rng) -> token`` with ``target`` the (V,) probabilities, ``draft``
        q (a list of q_k for independent drafts, the scheme itself where there is no single q),
        ``drafts`` (K,) token ids in draw order padded with -1, and ``rng`` a numpy Generator. Or a
        `Verifier`, its name, or ``"module:attribute"``. A callable may state its law in an
        attribute ``conditional_law(target, draft, drafts)`` that returns (V,) probabilities. Where
        drafts and output come from shared random numbers: an object with a method
        ``simulate(problem, rng, size)`` that returns tokens of shape (size, K) and (size,).
    problem : TransportProblem
        Target and drafts.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    num_trials : int, optional
        Calls, each with drafts of its own: by default 100,000, or as many as `seconds` allow. How
        many there were, and which bias they can see (`detectable_bias`), is in the report, which
        can be repeated to the last digit with that number.
    batched : bool
        `verify` takes (N, K) drafts and returns (N,) tokens. All rows have one law: rows of
        different laws are audited by `audit_chain` with ``batch=B``.
    sample : callable, optional
        ``(rng, size) -> (size, K)`` drafts, to be used instead of the scheme's own: audits drafting
        and verification of an engine together. Implies sampling; the report says of both whether
        they are right.
    lossy : bool
        The rule is lossy on purpose: judge it against the frontier of acceptance and distance. The
        report's `standing` says which acceptance the best rule has at its distance, and which
        distance the best rule needs for its acceptance, see `mdsd_opt.relax`. Calls that do not
        follow the law stated, and drafts that do not follow theirs, stay wrong.
    options : AuditOptions
        Its method is "enumeration" of all draft tuples, from the stated conditional law; "driven",
        the same from a law found by driving the callable through chosen random numbers, exact up to
        the random checks that the report counts (small problems, rules with a few uniforms, choices
        by weight and races of exponentials, see `mdsd_opt.auditing.driving`; what cannot be driven
        is sampled, and a note says why); "sampling"; "auto" enumerates where a law is stated and
        there are at most `max_tuples` tuples, drives what can be driven within `max_calls` calls if
        it is not `batched` (and in half of the `seconds`), and samples the rest. Enumeration proves
        or refutes that the stated law is lossless; up to 16,384 trials (all, where "auto" drives)
        then hold the calls against that law, and can see a departure of the reported
        `detectable_bias`. Where all calls would take minutes, and no limit of time is given, it is
        20 seconds, in which faults are looked for first. There are 512 probes of edges, and 200
        checks of each draft tuple, with "auto" fewer where there are more than 50 tuples.
    **keywords
        The same by their names, such as ``method="sampling"``.

    Returns
    -------
    AuditReport

    Raises
    ------
    InvalidInput
        `verify` is no verifier: it raises on every call, or answers a batch in the wrong shape.
        Failures on some drafts only are violations in the report.
    UnsupportedScheme
        A verifier of this package is not made for these drafts.
    ProblemTooLarge
        The frontier of such drafts is out of reach (`lossy`).
    """
    check_truth(batched=batched, lossy=lossy)
    checked_problem(problem)
    asked = options_of(options, {**keywords, "num_trials": num_trials})
    is_limited = asked.seconds is not None and math.isfinite(asked.seconds)
    by_time, most = asked.num_trials is None and is_limited, _DEFAULT_TRIALS
    if by_time:
        probes = _EDGE_PROBES if asked.edge_probes is None else asked.edge_probes
        most = max(MAX_SAMPLED // max(problem.num_drafts, 4) - probes, 1)
    options = budgeted(
        asked, rng, methods=METHODS, num_trials=most, num_drafts=problem.num_drafts,
        edge_probes=_EDGE_PROBES, driven_checks=200,
    )  # fmt: skip
    if isinstance(verify, str) and ":" in verify:
        verify = load_verifier(verify)
    pace = Pace(options.deadline(), options.progress)
    one = OneProblem(verify, problem, generator_of(rng), options, batched, sample, lossy, pace)
    with pace.stopping():
        return one.report(by_time)
    if not (one.tokens.size and pace.calls):
        raise KeyboardInterrupt
    return one.glance(options, pace.stopped)


class OneProblem:
    """Audit of a verifier on one problem, as `audit` describes it: its calls, and what they say.

    There are drafts (N, K), the tokens (N,) that were output, failures, and calls at the edges.
    Without a pace nothing is found out of how long a call takes.
    """

    def __init__(
        self,
        verify: Any,
        problem: TransportProblem,
        rng: np.random.Generator,
        options: Options,
        batched: bool = False,
        sample: Sampler | None = None,
        lossy: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self.problem, self._rng, self._options = problem, rng, options
        self._costs = CostCurve.of(frontier_of(problem)) if lossy else None
        self._verify, self._sample = verify, sample
        self._simulate = simulation(verify, problem)
        is_counted = not batched and as_verifier(verify) is None and callable(verify)
        self._pace = pace if is_counted and self._simulate is None else None
        if self._simulate is None:
            counted = verify if self._pace is None else self._pace.counting(verify)
            self._subject = Subject(counted, problem, batched)
        self._drawn = problem.drafts if sample is None else sample
        self.drafts = np.empty((0, problem.num_drafts), np.int64)
        self.tokens = np.empty(0, np.int64)
        self._log = ViolationLog()
        self._edges: tuple[ViolationLog, int] | None = None

    def time_calls(self) -> None:
        """Make some calls that count for nothing but how long they take."""
        rng = np.random.default_rng(0)
        rows = drawn_tuples(self._drawn, self.problem.drafts, rng, TIMED)
        with suppress(AlwaysFails):
            self._subject.outcomes(rows, rng, ViolationLog(), [])

    def report(self, by_time: bool = False) -> AuditReport:
        """Report after all calls; `by_time`: after as many as the seconds allow, however few."""
        options = self._options
        if self._simulate is not None:
            if self._sample is not None or options.method not in ("auto", "sampling"):
                raise InvalidInput(
                    "what draws its own drafts is audited by sampling, without sample"
                )
            if math.isfinite(options.seconds):
                raise InvalidInput(
                    "what draws its own drafts takes all trials at once: give num_trials"
                )
            return settled(self._of_simulated, options)[0]
        problem, deadline, needed = self.problem, options.deadline(), 0
        law = self._law_to_enumerate()
        if (pace := self._pace) is not None:
            self.time_calls()
            to_drive, needed = 0, _DEFAULT_TRIALS if by_time else options.num_trials
            if law is not None:
                needed = min(needed, _SAMPLER_TRIALS)
            if isinstance(law, DrivenLaw):
                tuples = problem.drafts.count_tuples()
                to_drive = min(options.max_calls, _DRIVEN * max(tuples, _FEWEST))
                needed += to_drive
            if pace.is_short(needed) and pace.affordable(1.0, needed) < needed:
                first = replace(options, num_trials=pace.affordable(0.3, _FIRST_CALLS))
                self._draw(first, pace.deadline)
                glance = self.glance(options)
                if glance.verdict_class == LOSSY and self._costs is None:
                    return glance
            deadline = pace.deadline
            if options.method == "auto" and pace.affordable(0.5, to_drive, 0) < to_drive:
                law = None
            probes = pace.affordable(0.02, options.edge_probes, 0)
            options = replace(options, edge_probes=probes)
        if isinstance(law, DrivenLaw):
            law.budget.deadline = shared(deadline, 2)

        def up(done: str) -> str:
            return options.up(done) if pace is None else pace.time_up(needed, f"{done}; ")

        def cut(wanted: int) -> tuple[str, ...]:
            if by_time or self.tokens.size >= wanted:
                return ()
            return (up(f"{self.tokens.size:,} of {wanted:,} calls were made"),)

        output, known, notes, rare = None, None, tuple[str, ...](), ViolationLog()
        driven = law if isinstance(law, DrivenLaw) else None

        def drive(settings: Options) -> tuple[EnumeratedLaw, FoundLaw]:
            nonlocal driven
            assert isinstance(law, DrivenLaw)
            driven = law.anew(settings)
            output = enumerate_law(self._subject, driven, options)
            known = self._found(output, driven, options)
            if not known.is_doubtful:
                driven.log_violations(output, self._log)
            return output, known

        if driven is not None:
            found, notes = settled_law(drive, driven.options, up)
            output, known = found or (None, None)
            if known is None or known.is_doubtful:
                driven.log_found(self._log, rare)
        elif law is not None:
            output = enumerate_law(self._subject, law, options)
            known = self._found(output, None, options)
        if output is None or known is None or known.is_doubtful:

            def of_calls(options: Options) -> list[AuditReport]:
                self._draw(options, deadline)
                late = cut(options.num_trials)
                self._probe(options, rare.listed)
                findings = self._sampled(options)
                return [self._reported(replace(findings, notes=(*notes, *late)))]

            report = settled(of_calls, options, deadline)[0]
            if output is None or known is None or report.verdict_class == LOSSY:
                return report
            findings = self._under_law(options, output, known)
            return self._reported(replace(findings, notes=report.notes), output.output)
        if driven is None:
            for token in np.flatnonzero((problem.target <= 0) & (output.output > 0)).tolist():
                message = f"token {token} has probability zero, yet comes out"
                self._log.add("impossible token", (), message)
        # The law is one thing, the sampler that should follow it another.
        fewer = options
        if driven is None or options.method == "driven":
            fewer = replace(options, num_trials=min(options.num_trials, _SAMPLER_TRIALS))

        def under_law(options: Options) -> list[AuditReport]:
            self._draw(options, deadline)
            findings = replace(
                self._under_law(options, output, known), notes=cut(options.num_trials)
            )
            self._probe(options)
            edges = self._edges or findings.edges
            return [self._reported(replace(findings, edges=edges), output.output)]

        return settled(under_law, fewer, deadline)[0]

    def _of_simulated(self, options: Options) -> list[AuditReport]:
        assert self._simulate is not None
        size = options.num_trials - self.tokens.size
        drafts, tokens = simulated(self._simulate, self.problem, self._rng, size, self._log)
        self.drafts = np.concatenate([self.drafts, drafts])
        self.tokens = np.concatenate([self.tokens, tokens])
        return [self._reported(self._sampled(options))]

    def _draw(self, options: Options, deadline: float) -> None:
        rest, drafts, tokens = options.num_trials - self.tokens.size, [self.drafts], [self.tokens]
        try:
            with progress_bar("calls", max(rest, 0), options.progress) as advance:
                while rest > 0 and not (tokens[-1].size and time.perf_counter() > deadline):
                    size = self._drawn, self.problem.drafts, self._rng, min(rest, _CHUNK)
                    drafts.append(drawn_tuples(*size))
                    self._subject.outcomes(
                        drafts[-1], self._rng, self._log, tokens, deadline, advance
                    )
                    rest -= len(drafts[-1])
        finally:  # Ctrl-C leaves what there was
            self.tokens = np.concatenate(tokens)
            self.drafts = np.concatenate(drafts)[: self.tokens.size]

    def _probe(self, options: Options, rare: Sequence[Violation] = ()) -> None:
        """Call at the edges of the draws, once; what is rare belongs to them."""
        if self._edges is None:
            self._edges = edge_violations(self._subject, self._rng, options.edge_probes)
            for one in rare:
                self._edges[0].add(one.kind, one.drafts, one.message, one.mass)

    def _reported(self, findings: Findings, law: Vector | None = None) -> AuditReport:
        """Report of findings and, of a rule that is lossy on purpose, where it stands."""
        report = AuditReport.of(findings, "verifier")
        rate = report.acceptance_rate
        if self._costs is None or rate is None:
            return report
        intervals = report.total_variation_interval, report.acceptance_interval
        place = report.total_variation, rate, intervals
        standing = standing_of(*place, self._costs, self.problem.target, law)
        return replace(report, standing=standing)

    def glance(self, options: Options, *notes: str) -> AuditReport:
        """Report on the calls so far, at the least part of the false alarms that a look has."""
        at = replace(options, false_alarm=options.false_alarm * LOOKS[-1][1])
        report = self._reported(replace(self._sampled(at), notes=notes))
        return unsettled(replace(report, false_alarm=options.false_alarm))

    def _sampled(self, options: Options) -> Findings:
        p, findings = self.problem.target, self._findings(options)
        valid = self.tokens[self.tokens != NO_TOKEN]
        counts = np.bincount(valid, minlength=p.size)
        possible = valid[p[valid] > 0]
        checks, sight = output_checks(self.problem, possible, self._rng)
        if findings.optimum is not None and findings.accepted is not None:
            above = statistics.at_most(*findings.accepted, findings.optimum + 1e-12)
            checks = (*checks, acceptance_check(above))
        wrong_drafts = None
        if self._sample is not None or self._simulate is not None:
            evidence = examine(self.drafts, self.problem.drafts, self._rng)
            checks, wrong_drafts = (*checks, *evidence.checks), evidence.log
        return replace(
            findings,
            checks=checks,
            sight=sight if possible.size else Sight(0, int((p > 0).sum())),
            tokens=deviations(counts, p),
            cause=cause(counts / max(valid.size, 1), p, self.problem.drafts, valid.size),
            wrong_drafts=wrong_drafts,
        )

    def _under_law(self, options: Options, law: EnumeratedLaw, known: FoundLaw) -> Findings:
        """Findings from the law that the samples should follow, and whether they do."""
        p, valid, rng = self.problem.target, self.tokens != NO_TOKEN, self._rng
        difference = law.output - p
        fails = known.num_checks is not None and law.output.sum() < 1 - known.tolerance
        points, unexpected = law.transformed(self.drafts[valid], self.tokens[valid], rng)
        if unexpected:
            whose = "stated law" if known.num_checks is None else "law found by driving it"
            text = f"{unexpected} tokens that the {whose} rules out"
            self._log.add("impossible token", (), text)
        drawn_from = law.output / (law.output.sum() or 1.0)
        tokens = self.tokens[valid]
        order, tokens = by_ratio(p, self.problem.drafts), tokens[drawn_from[tokens] > 0]
        of_output, sight = law_checks(drawn_from, order, tokens, rng, TOKENS)
        name, looks_for = "sampler against its law", "calls that do not follow it"
        earlier = "calls that depend on earlier ones"
        checks = (
            *uniformity_checks(points, rng, name, looks_for),
            *of_output,
            Check("calls in a row", earlier, statistics.recurrence(points, rng)),
        )
        worst = np.argsort(-np.abs(difference), kind="stable")[:LISTED_TOKENS].tolist()
        return replace(
            self._findings(options),
            coverage=law.coverage,
            cause="" if known.fits or fails else cause(law.output, p, self.problem.drafts),
            law=replace(known, trials_p_value=0.0 if unexpected else options.combined(checks)),
            checks=checks,
            sight=sight,
            tokens=tuple(
                TokenDeviation(i, float(p[i]), float(law.output[i]), None)
                for i in worst
                if abs(difference[i]) > known.tolerance
            ),
        )

    def _found(self, law: EnumeratedLaw, driven: DrivenLaw | None, options: Options) -> FoundLaw:
        driver, rate = None if driven is None else driven.driver, law.acceptance_rate
        is_meant, target = self._costs is not None, self.problem.target
        return found_law(law.output, target, options, driver, rate, is_meant)

    def _findings(self, options: Options) -> Findings:
        """Findings that do not depend on the law they are compared with."""
        p, valid = self.problem.target, self.tokens != NO_TOKEN
        tokens = self.tokens[valid]
        among = (self.drafts[valid] == tokens[:, None]).any(axis=1)
        hits, calls = int(among.sum()), max(tokens.size, 1)
        several = np.unique(tokens[~among]).size > 1
        level = Level(hits / calls, (tokens.size - hits) / calls, several)
        cells = merged_cells(p, by_ratio(p, self.problem.drafts), self.tokens.size)
        return Findings(
            options=options,
            num_trials=self.tokens.size,
            distance=statistics.distance(tokens, p, options.confidence, cells.of_token),
            wrong_tokens=self._log,
            edges=self._edges or (ViolationLog(), 0),
            accepted=AcceptedCount(hits, tokens.size),
            optimum=optimum(self.problem),
            coverage=Coverage((level,)),
        )

    def _law_to_enumerate(self) -> ConditionalLaw | None:
        options, sample, subject = self._options, self._sample, self._subject
        method, can_be_listed = options.method, fits(subject, options.max_tuples)
        if sample is not None and method in ("enumeration", "driven"):
            raise InvalidInput(
                f"method {method!r} enumerates the scheme's own drafts: leave out sample"
            )
        if method == "sampling" or sample is not None:
            return None
        law = None if method == "driven" else exposed_law(subject, self._verify)
        can_drive = not subject.batched and can_be_listed
        if method == "driven" or (method == "auto" and law is None and can_drive):
            parts = subject.problem.drafts.count_tuples()
            checks = options.driven_checks
            if method == "auto":
                checks = min(checks, max(_LEAST_CHECKS, _MOST_CHECKS // parts))
            budget = Budget(options.max_calls, parts=parts)
            return DrivenLaw(subject, replace(options, driven_checks=checks), budget, self._rng)
        if method == "enumeration" and law is None:
            raise InvalidInput(
                "method 'enumeration' needs a verifier of mdsd_opt or a callable with an attribute "
                "conditional_law(target, draft, drafts); try 'driven' or 'sampling'"
            )
        return law if method == "enumeration" or can_be_listed else None
