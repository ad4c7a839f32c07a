"""Is a verifier lossless? Its law by enumeration where it states one; its calls by sampling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.audit_report import AuditReport
from mdsd_opt.auditing.causes import cause
from mdsd_opt.auditing.draft_audit import drawn_tuples, examine
from mdsd_opt.auditing.edges import edge_violations
from mdsd_opt.auditing.enumerated import (
    ConditionalLaw,
    DrivenLaw,
    EnumeratedLaw,
    enumerate_law,
    exposed_law,
    fits,
)
from mdsd_opt.auditing.findings import Accepted, Findings, FoundLaw
from mdsd_opt.auditing.output_checks import (
    LISTED_TOKENS,
    acceptance_check,
    by_ratio,
    deviations,
    merged_cells,
    num_bins,
    output_checks,
    points_of,
    succession_check,
    uniformity_checks,
)
from mdsd_opt.auditing.report import Coverage, Level, TokenDeviation
from mdsd_opt.auditing.settings import COARSE, DEFAULT_SECONDS, FINE, Limits, Settings, generator_of
from mdsd_opt.auditing.standing import Judge
from mdsd_opt.auditing.subject import (
    NO_TOKEN,
    Subject,
    ViolationLog,
    load_verifier,
    simulated,
    simulation,
)
from mdsd_opt.base.array_types import Tokens, Vector
from mdsd_opt.base.checked import checked_tolerance
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName
from mdsd_opt.problem import TransportProblem

Sampler = Callable[[np.random.Generator, int], Any]

METHODS = ("auto", "enumeration", "driven", "sampling")

#: Draws on which a verifier is held against the law it states about itself.
_SAMPLER_TRIALS = 10_000


def audit(
    verify: Any,
    problem: TransportProblem,
    rng: np.random.Generator | int,
    num_trials: int | None = None,
    *,
    seconds: float | None = None,
    batched: bool = False,
    method: str = "auto",
    sample: Sampler | None = None,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    confidence: float = 0.99,
    tolerance: float | None = None,
    max_tuples: int = 20_000,
    edge_probes: int = 512,
    driven_checks: int = 200,
    lossy: bool = False,
    progress: bool | None = None,
) -> AuditReport:
    r"""Settle whether a verifier is lossless: whether its output follows the target exactly.

    Lossless means :math:`\sum_x \Pr(x)\,\Pr(y \mid x) = p_y`. The law given the drafts may be
    anything (that freedom is what verifiers differ in), so no test of it can tell right from wrong:
    what is tested is the law of the output, that outputs are independent of earlier ones (of the
    one before; of those L calls before, for every L within the first 131,072 calls; and by how
    counts in 8, 16, 32, ... calls in a row scatter, where the same random numbers come back in no
    order), that the acceptance rate does not exceed the optimum, which no lossless verifier can,
    and that no token of probability zero comes out, not even at a uniform of exactly 0.

    An engine may ignore `rng` and draw from PyTorch (if that is imported when `audit` is called),
    from Python's `random` or from `numpy.random`: such draws are answered by the audit, in the type
    asked for, see `mdsd_opt.auditing.served`. Draws that cannot be answered are refused.

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
    rng : numpy.random.Generator or int
    num_trials : int, optional
        Calls, each with drafts of its own: by default 100,000, or as many as 45 seconds allow.
    seconds : float, optional
        Time for the calls, instead of their number or as a limit to it, and for finding a driven
        law (45 unless given; what takes longer is refused). How many calls there were, and
        which bias they can see (`detectable_bias`), is in the report; it can be repeated to the
        last digit with that number of trials.
    batched : bool
        `verify` takes (N, K) drafts and returns (N,) tokens.
    method : str
        "enumeration" of all draft tuples, from the stated conditional law; "driven", the same from
        a law found by driving the callable through chosen random numbers, exact up to the random
        checks that the report counts (small problems, rules with a few uniforms, choices by weight
        and races of exponentials, see `mdsd_opt.auditing.driving`);
        "sampling"; "auto" enumerates where a law is stated and there are at most `max_tuples`
        tuples, and samples otherwise. Enumeration proves or refutes that the stated law is
        lossless; up to 10,000 trials then hold the calls against that law, and can see a departure
        of the reported `detectable_bias`.
    sample : callable, optional
        ``(rng, size) -> (size, K)`` drafts, to be used instead of the scheme's own: audits drafting
        and verification of an engine together. Implies sampling; the report says of both whether
        they are right.
    false_alarm : float
        Probability, at most, that a lossless verifier is called lossy.
    power : float
        With which the reported `detectable_bias` is found.
    confidence : float
        Of the intervals.
    tolerance : float, optional
        Total variation that enumeration puts down to rounding: by default 1e-9, and 1e-6 for a
        driven callable that draws in float32 or coarser, by weights of float32, or runs races.
    max_tuples : int
        Limit of enumeration.
    edge_probes : int
        Calls at most with a draw at an end of what its type can hold, such as a uniform of 0.
    driven_checks : int
        Random calls for each draft tuple that a driven law must foretell.
    lossy : bool
        The rule is lossy on purpose: judge it against the frontier of acceptance and distance. The
        report's `standing` says which acceptance the best rule has at its distance, and which
        distance the best rule needs for its acceptance, see `mdsd_opt.relax`. Calls that do not
        follow the law stated, and drafts that do not follow theirs, stay wrong.
    progress : bool, optional
        Whether to draw a bar on stderr; by default on a terminal, if it takes longer than a second.

    Returns
    -------
    AuditReport

    Raises
    ------
    InvalidInput
        `verify` is no verifier: it raises on every call, or answers a batch in the wrong shape.
        Failures on some drafts only are violations in the report.
    UnservedDraw
        A callable draws random numbers that the audit cannot answer.
    UnsupportedScheme
        A verifier of this package is not made for these drafts.
    ProblemTooLarge
        The frontier of such drafts is out of reach (`lossy`).
    """
    limits = Limits.of(num_trials, seconds, problem.num_drafts)
    settings = Settings(false_alarm, power, confidence, limits.num_trials, problem.num_drafts)
    if tolerance is not None:
        checked_tolerance("tolerance", tolerance, or_zero=True)
    if method not in METHODS:
        raise UnknownName.among("method", method, METHODS)
    rng = generator_of(rng)
    judge = Judge.of(problem) if lossy else None
    if isinstance(verify, str) and ":" in verify:
        verify = load_verifier(verify)
    simulate = simulation(verify, problem)
    if simulate is not None:
        if sample is not None or method not in ("auto", "sampling"):
            raise InvalidInput("what draws its own drafts is audited by sampling, without sample")
        if seconds is not None:
            raise InvalidInput(
                "what draws its own drafts takes all trials at once: give num_trials"
            )
        log = ViolationLog()
        drafts, tokens = simulated(simulate, problem, rng, settings.num_trials, log)
        trials = _Trials(problem, drafts, tokens, log)
        return _judged(trials.sampled(settings, (ViolationLog(), 0), True, rng), judge)
    subject = Subject(verify, problem, batched)
    drive_until = time.perf_counter() + (DEFAULT_SECONDS if seconds is None else seconds)
    law = _law_to_enumerate(subject, verify, method, sample, max_tuples, driven_checks, drive_until)
    if law is None:
        drawn = problem.drafts if sample is None else sample
        trials = _drawn_trials(
            subject, drawn, settings.num_trials, limits, rng, ViolationLog(), progress
        )
        edges = edge_violations(subject, rng, edge_probes)
        return _judged(trials.sampled(settings, edges, sample is not None, rng), judge)
    output = enumerate_law(subject, law, max_tuples, progress)
    driven = law if isinstance(law, DrivenLaw) else None
    if tolerance is None:
        tolerance = COARSE if driven is not None and driven.coarse else FINE
    log = ViolationLog()
    if driven is not None:
        driven.log_violations(output, log)
    else:
        for token in np.flatnonzero((problem.target <= 0) & (output.output > 0)).tolist():
            log.add("impossible token", (), f"token {token} has probability zero, yet comes out")
    # The law is one thing, the sampler that should follow it another.
    most = min(settings.num_trials, _SAMPLER_TRIALS)
    trials = _drawn_trials(subject, problem.drafts, most, limits, rng, log, progress)
    found = trials.under_law(settings, output, driven, tolerance, rng)
    found = replace(found, edges=edge_violations(subject, rng, edge_probes))
    return _judged(found, judge, output.output)


@dataclass(frozen=True, slots=True, eq=False)
class _Trials:
    """Drafts (N, K), the tokens (N,) that came of them, and what went wrong."""

    problem: TransportProblem
    drafts: Tokens
    tokens: Tokens
    log: ViolationLog

    def sampled(
        self,
        settings: Settings,
        edges: tuple[ViolationLog, int],
        drafts_too: bool,
        rng: np.random.Generator,
    ) -> Findings:
        """What they show by themselves."""
        p, found = self.problem.target, self._findings(settings)
        valid = self.tokens[self.tokens != NO_TOKEN]
        counts = np.bincount(valid, minlength=p.size)
        possible = valid[p[valid] > 0]
        checks = output_checks(self.problem, possible, rng)
        if found.optimum is not None and found.accepted is not None:
            above = statistics.at_most(*found.accepted, found.optimum + 1e-12)
            checks = (*checks, acceptance_check(above))
        wrong_drafts = None
        if drafts_too:
            evidence = examine(self.drafts, self.problem.drafts, rng)
            checks, wrong_drafts = (*checks, *evidence.checks), evidence.log
        return replace(
            found,
            checks=checks,
            outcomes=possible.size,
            tokens=deviations(counts, p),
            cause=cause(counts / max(valid.size, 1), p, self.problem.drafts, valid.size),
            wrong_drafts=wrong_drafts,
            edges=edges,
        )

    def under_law(
        self,
        settings: Settings,
        law: EnumeratedLaw,
        driven: DrivenLaw | None,
        tolerance: float,
        rng: np.random.Generator,
    ) -> Findings:
        """What the law shows that they should follow, and whether they do."""
        p, valid = self.problem.target, self.tokens != NO_TOKEN
        difference = law.output - p
        failing = max(1.0 - float(law.output.sum()), 0.0) if driven is not None else 0.0
        distance = 0.5 * (float(np.abs(difference).sum()) + failing)
        fits = failing > tolerance or distance <= tolerance
        points, unexpected = law.transformed(self.drafts[valid], self.tokens[valid], rng)
        if unexpected:
            whose = "stated law" if driven is None else "law found by driving it"
            text = f"{unexpected} tokens that the {whose} rules out"
            self.log.add("impossible token", (), text)
        drawn_from = law.output / (law.output.sum() or 1.0)
        order = by_ratio(p, self.problem.drafts)
        alone = statistics.recurrence(points_of(drawn_from, order, self.tokens[valid], rng), rng)
        name, looks_for = "sampler against its law", "calls that do not follow it"
        earlier = "calls that depend on earlier ones"
        checks = (
            *uniformity_checks(points, rng, name, looks_for),
            succession_check(alone, points, rng, "succession", earlier),
        )
        worst = np.argsort(-np.abs(difference), kind="stable")[:LISTED_TOKENS].tolist()
        return replace(
            self._findings(settings),
            coverage=law.coverage,
            cause="" if fits else cause(law.output, p, self.problem.drafts),
            law=FoundLaw(
                distance=distance,
                excess=float(np.maximum(difference, 0.0).sum()),
                tolerance=tolerance,
                num_checks=None if driven is None else driven.num_checks,
                acceptance_rate=law.acceptance_rate,
                impossible_mass=float(law.output[p <= 0].sum()),
                trials_p_value=0.0 if unexpected else settings.combined(checks),
            ),
            checks=checks,
            outcomes=points.size,
            cells=num_bins(points.size),
            tokens=tuple(
                TokenDeviation(i, float(p[i]), float(law.output[i]), None)
                for i in worst
                if abs(difference[i]) > tolerance
            ),
        )

    def _findings(self, settings: Settings) -> Findings:
        """What they show whatever they are held against."""
        p, valid = self.problem.target, self.tokens != NO_TOKEN
        tokens = self.tokens[valid]
        among = (self.drafts[valid] == tokens[:, None]).any(axis=1)
        cells = merged_cells(p, by_ratio(p, self.problem.drafts), self.tokens.size)
        return Findings(
            settings=settings,
            num_trials=self.tokens.size,
            distance=statistics.distance(tokens, p, settings.confidence, cells.of_token),
            cells=cells.probabilities.size,
            wrong_tokens=self.log,
            accepted=Accepted(int(among.sum()), tokens.size),
            optimum=optimum(self.problem),
            coverage=Coverage(
                (
                    Level(
                        float(among.mean()) if among.size else 0.0,
                        float((~among).mean()) if among.size else 0.0,
                        np.unique(tokens[~among]).size > 1,
                    ),
                )
            ),
        )


def _judged(found: Findings, judge: Judge | None, law: Vector | None = None) -> AuditReport:
    report = found.report(AuditReport, subject="verifier")
    return report if judge is None else replace(report, standing=judge.standing(report, law))


def _drawn_trials(
    subject: Subject,
    sample: Any,
    num_trials: int,
    limits: Limits,
    rng: np.random.Generator,
    log: ViolationLog,
    progress: bool | None,
) -> _Trials:
    """Trials until there are enough or time is up."""
    deadline = limits.deadline()
    drafts: list[Tokens] = []
    tokens: list[Tokens] = []
    left = num_trials
    with progress_bar("calls", num_trials, progress) as advance:
        while left and not (tokens and time.perf_counter() > deadline):
            rows = drawn_tuples(sample, subject.problem.drafts, rng, min(left, limits.chunk))
            given = subject.outcomes(rows, rng, log, deadline, advance)
            drafts.append(rows[: len(given)])
            tokens.append(given)
            left -= len(rows)
    return _Trials(subject.problem, np.concatenate(drafts), np.concatenate(tokens), log)


def optimum(problem: TransportProblem) -> float | None:
    """alpha*, or None if no solver here can tell."""
    from mdsd_opt.solvers import solve

    try:
        return float(solve(problem).upper_bound)
    except (ProblemTooLarge, MemoryError):
        return None


def _law_to_enumerate(
    subject: Subject,
    verify: Any,
    method: str,
    sample: Sampler | None,
    max_tuples: int,
    driven_checks: int,
    deadline: float,
) -> ConditionalLaw | None:
    if sample is not None and method in ("enumeration", "driven"):
        raise InvalidInput(
            f"method {method!r} enumerates the scheme's own drafts: leave out sample"
        )
    if method == "driven":
        return DrivenLaw(subject, driven_checks, deadline)
    if method == "sampling" or sample is not None:
        return None
    law = exposed_law(subject, verify)
    if method == "enumeration" and law is None:
        raise InvalidInput(
            "method 'enumeration' needs a verifier of mdsd_opt or a callable with an attribute "
            "conditional_law(target, draft, drafts); try 'driven' or 'sampling'"
        )
    return law if method == "enumeration" or fits(subject, max_tuples) else None
