"""mdsd-opt audit verifier: one decision among K drafts, on laws of all kinds or one problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mdsd_opt.cli.audits.common import MAX_VOCAB_SIZE, Audited, Limits, Scheme, scheme_named
from mdsd_opt.errors import InvalidInput, ProblemTooLarge

if TYPE_CHECKING:
    from mdsd_opt.problem import TransportProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A verifier, and the problem it is put to."""

    verifier: Annotated[
        str,
        "A verifier of the package, module:attribute that is one, or module:function with "
        "(target, draft, drafts, rng) -> token.",
    ]
    problem: Annotated[
        Path | None,
        "Problem to audit it on; without it and --vocab-size, laws of all kinds.",
    ] = None
    scheme: Scheme = "with_replacement"
    vocab_size: Annotated[int | None, "Tokens of one random problem, to audit it on."] = None
    num_drafts: Annotated[int, "Drafts of random problems."] = 3
    lossy: Annotated[
        bool,
        "The verifier is lossy on purpose: how much less than the best it accepts at its "
        "distance from the target, and how much farther than necessary it is.",
    ] = False
    limits: Limits


def run(options: Options) -> Audited:
    """Audit of a verifier on laws of all kinds, or on one problem."""
    from mdsd_opt import auditing
    from mdsd_opt.auditing import audit_portfolio

    name, seed, limits = options.verifier, options.limits.seed, options.limits.given()
    verifier = auditing.load_verifier(name)
    if options.problem is None and options.vocab_size is None and not options.lossy:
        scheme, k = scheme_named(options.scheme), options.num_drafts
        report = audit_portfolio(verifier, seed, scheme=scheme, num_drafts=k, **limits)
        return Audited.of(report, f"{name}: K = {k}, {scheme} drafts")
    problem = _problem(options)
    verdict = auditing.audit(verifier, problem, seed, lossy=options.lossy, **limits)
    of = f"V = {problem.vocab_size:,}, K = {problem.num_drafts}, {problem.drafts.scheme} drafts"
    return Audited.of(verdict, f"{name}: {of}")


def _problem(options: Options) -> TransportProblem:
    """Problem of the file, or random target and draft laws."""
    if options.problem is not None:
        from mdsd_opt.problem import load_problem

        return load_problem(options.problem)
    import numpy as np

    from mdsd_opt.drafts import scheme_maker
    from mdsd_opt.problem import TransportProblem

    make = scheme_maker(scheme_named(options.scheme))
    vocab_size = 8 if options.vocab_size is None else options.vocab_size
    if vocab_size < 1:
        raise InvalidInput(f"--vocab-size is {vocab_size}: give at least 1")
    if vocab_size > MAX_VOCAB_SIZE:
        raise ProblemTooLarge(
            f"--vocab-size is {vocab_size}: random problems end at {MAX_VOCAB_SIZE:,} tokens"
        )
    p, q = np.random.default_rng(options.limits.seed).dirichlet(np.ones(vocab_size), 2)
    return TransportProblem(p, make(q, options.num_drafts))
