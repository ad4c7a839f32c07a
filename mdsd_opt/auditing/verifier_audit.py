"""Is a verifier lossless? Its law by enumeration where it states one; its calls by sampling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.cells import by_ratio, merged_cells
from mdsd_opt.auditing.draft_audit import drawn_tuples, examine
from mdsd_opt.auditing.driving import DrivenLaw
from mdsd_opt.auditing.edges import edge_violations
from mdsd_opt.auditing.enumerated import (
    ConditionalLaw,
    EnumeratedLaw,
    enumerate_law,
    exposed_law,
    fits,
)
from mdsd_opt.auditing.findings import Accepted, Findings
from mdsd_opt.auditing.output_checks import (
    LISTED_TOKENS,
    deviations,
    num_bins,
    output_checks,
    uniformity_checks,
)
from mdsd_opt.auditing.report import ACCEPTANCE_WEIGHT, AuditReport, Check, TokenDeviation
from mdsd_opt.auditing.settings import COARSE, FINE, Limits, Settings, generator_of
from mdsd_opt.auditing.standing import Judge
from mdsd_opt.auditing.subject import (
    NO_TOKEN,
    Subject,
    Tokens,
    ViolationLog,
    load_verifier,
    simulated,
    simulation,
)
from mdsd_opt.base.checked import checked_tolerance
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName
from mdsd_opt.problem import TransportProblem

Vector = NDArray[np.float64]
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
) -> AuditReport:
    r"""Settle whether a verifier is lossless: whether its output follows the target exactly.

    Lossless means :math:`\sum_x \Pr(x)\,\Pr(y \mid x) = p_y`. The law given the drafts may be
    anything (that freedom is what verifiers differ in), so no test of it can tell right from wrong:
    what is tested is the law of the output, that successive outputs are independent, that the
    acceptance rate does not exceed the optimum, which no lossless verifier can, and that no token
    of probability zero comes out, not even at a uniform of exactly 0.

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
        Time for the calls, instead of their number or as a limit to it. How many there were, and
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
    log = ViolationLog()
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
        drafts, tokens = simulated(simulate, problem, rng, settings.num_trials, log)
        return _sampled_report(
            problem, drafts, tokens, log, (ViolationLog(), 0), True, settings, rng, judge
        )
    subject = Subject(verify, problem, batched)
    law = _law_to_enumerate(subject, verify, method, sample, max_tuples, driven_checks)
    if law is not None:
        enumerated = enumerate_law(subject, law, max_tuples)
        driven = law if isinstance(law, DrivenLaw) else None
        if tolerance is None:
            tolerance = COARSE if driven is not None and driven.coarse else FINE
        return _enumerated_report(
            subject, enumerated, driven, settings, limits, tolerance, edge_probes, rng, judge
        )
    foreign = sample is not None
    drafts, tokens = _trials(
        subject, sample if foreign else problem.drafts, settings.num_trials, limits, rng, log
    )
    settings = replace(settings, num_trials=len(tokens))
    edges = edge_violations(subject, rng, edge_probes)
    return _sampled_report(problem, drafts, tokens, log, edges, foreign, settings, rng, judge)


def _trials(
    subject: Subject,
    sample: Any,
    num_trials: int,
    limits: Limits,
    rng: np.random.Generator,
    log: ViolationLog,
) -> tuple[Tokens, Tokens]:
    """Drafts (N, K) and output tokens (N,), until there are enough or time is up."""
    deadline = limits.deadline()
    drafts: list[Tokens] = []
    tokens: list[Tokens] = []
    left = num_trials
    while left and not (tokens and time.perf_counter() > deadline):
        rows = drawn_tuples(sample, subject.problem.drafts, rng, min(left, limits.chunk))
        given = subject.outcomes(rows, rng, log, deadline)
        drafts.append(rows[: len(given)])
        tokens.append(given)
        left -= len(rows)
    return np.concatenate(drafts), np.concatenate(tokens)


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
) -> ConditionalLaw | None:
    if sample is not None and method in ("enumeration", "driven"):
        raise InvalidInput(
            f"method {method!r} enumerates the scheme's own drafts: leave out sample"
        )
    if method == "driven":
        return DrivenLaw(subject, driven_checks)
    if method == "sampling" or sample is not None:
        return None
    law = exposed_law(subject, verify)
    if method == "enumeration" and law is None:
        raise InvalidInput(
            "method 'enumeration' needs a verifier of mdsd_opt or a callable with an attribute "
            "conditional_law(target, draft, drafts); try 'driven' or 'sampling'"
        )
    return law if method == "enumeration" or fits(subject, max_tuples) else None


def _enumerated_report(
    subject: Subject,
    law: EnumeratedLaw,
    driven: DrivenLaw | None,
    settings: Settings,
    limits: Limits,
    tolerance: float,
    edge_probes: int,
    rng: np.random.Generator,
    judge: Judge | None,
) -> AuditReport:
    problem = subject.problem
    difference = law.output - problem.target
    failing = max(1.0 - float(law.output.sum()), 0.0) if driven is not None else 0.0
    total_variation = 0.5 * (float(np.abs(difference).sum()) + failing)
    log = ViolationLog()
    if driven is not None:
        driven.log_violations(law, log)
    else:
        for token in np.flatnonzero((problem.target <= 0) & (law.output > 0)).tolist():
            log.add("impossible token", (), f"token {token} has probability zero, yet comes out")
    # The law is one thing, the sampler that should follow it another.
    most = min(settings.num_trials, _SAMPLER_TRIALS)
    drafts, tokens = _trials(subject, problem.drafts, most, limits, rng, log)
    settings = replace(settings, num_trials=len(tokens))
    valid = tokens != NO_TOKEN
    points, unexpected = law.transformed(drafts[valid], tokens[valid], rng)
    if unexpected:
        whose = "stated law" if driven is None else "law found by driving it"
        log.add("impossible token", (), f"{unexpected} tokens that the {whose} rules out")
    checks = uniformity_checks(
        points, rng, "sampler against its law", "calls that do not follow it"
    )
    p_value = 0.0 if unexpected else settings.combined(checks)
    sampler_fails = p_value < settings.false_alarm
    fits_target = total_variation <= tolerance
    ratio_cells = merged_cells(
        problem.target, by_ratio(problem.target, problem.drafts), tokens.size
    )
    worst = np.argsort(-np.abs(difference), kind="stable")[:LISTED_TOKENS].tolist()
    calls = Findings(
        subject="verifier",
        settings=settings,
        checks=checks,
        distance=statistics.distance(
            tokens[valid], problem.target, settings.confidence, ratio_cells.of_token
        ),
        outcomes=points.size,
        cells=num_bins(points.size),
        tokens=tuple(
            TokenDeviation(i, float(problem.target[i]), float(law.output[i]), None)
            for i in worst
            if abs(difference[i]) > tolerance
        ),
        wrong_tokens=log,
        accepted=_accepted(drafts, tokens),
        optimum=optimum(problem),
        edges=edge_violations(subject, rng, edge_probes),
    ).report()
    report = replace(
        calls,
        lossless=calls.lossless and fits_target,
        method="enumeration" if driven is None else "driven",
        p_value=p_value if sampler_fails and fits_target else None,
        total_variation=total_variation,
        acceptance_rate=law.acceptance_rate,
        law_proven_lossless=fits_target if driven is None else None,
        num_checks=None if driven is None else driven.num_checks,
        impossible_mass=float(law.output[problem.target <= 0].sum()),
        tolerance=tolerance,
        sampled_acceptance_rate=calls.acceptance_rate if valid.any() else None,
        sampler_p_value=p_value,
    )
    if judge is None:
        return report
    return replace(report, standing=judge.standing(report, law.output))


def _accepted(drafts: Tokens, tokens: Tokens) -> Accepted:
    valid = tokens != NO_TOKEN
    among = (drafts == tokens[:, None])[valid].any(axis=1)
    return Accepted(int(among.sum()), int(valid.sum()))


def _sampled_report(
    problem: TransportProblem,
    drafts: Tokens,
    tokens: Tokens,
    log: ViolationLog,
    edges: tuple[ViolationLog, int],
    drafts_too: bool,
    settings: Settings,
    rng: np.random.Generator,
    judge: Judge | None,
) -> AuditReport:
    p = problem.target
    valid = tokens[tokens != NO_TOKEN]
    possible = valid[p[valid] > 0]
    accepted = _accepted(drafts, tokens)
    alpha = optimum(problem)
    checks = output_checks(problem, possible, rng)
    if alpha is not None:
        above = statistics.at_most(*accepted, alpha + 1e-12)
        looks_for = "acceptance above the optimum"
        checks = (*checks, Check("acceptance", looks_for, above, weight=ACCEPTANCE_WEIGHT))
    wrong_drafts = None
    if drafts_too:
        evidence = examine(drafts, problem.drafts, rng)
        checks, wrong_drafts = (*checks, *evidence.checks), evidence.log
    ratio_cells = merged_cells(p, by_ratio(p, problem.drafts), tokens.size)
    report = Findings(
        subject="verifier",
        settings=settings,
        checks=checks,
        distance=statistics.distance(valid, p, settings.confidence, ratio_cells.of_token),
        outcomes=possible.size,
        cells=ratio_cells.probabilities.size,
        tokens=deviations(np.bincount(valid, minlength=p.size), p),
        wrong_tokens=log,
        wrong_drafts=wrong_drafts,
        accepted=accepted,
        optimum=alpha,
        edges=edges,
    ).report()
    return report if judge is None else replace(report, standing=judge.standing(report))
