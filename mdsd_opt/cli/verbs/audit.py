"""mdsd-opt audit: is a verifier, or what an engine ships, lossless, and how far from optimal?"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput, MissingExtra, ProblemTooLarge

if TYPE_CHECKING:
    from mdsd_opt.auditing.engines import EngineAudit
    from mdsd_opt.auditing.report import Report
    from mdsd_opt.cli.view import Form
    from mdsd_opt.problem import TransportProblem


#: Most tokens of a random problem.
MAX_VOCAB_SIZE = 1_000_000


@options.gathers_options(
    temperature="Of the trace's target logits.",
    draft_temperature="Of the trace's draft logits; the target's unless given.",
    **dict.fromkeys(("top_k", "top_p", "min_p"), "Filter on the trace's logits."),
)
def audit(
    *,
    verifier: Annotated[
        str | None,
        "A verifier of the package, module:attribute that is one, or module:function with "
        "(target, draft, drafts, rng) -> token.",
    ] = None,
    trace: Annotated[
        Path | None,
        "Recorded steps instead: a .npz or .safetensors file with arrays target, draft, "
        "drafts, tokens; with parents where drafts are a tree.",
    ] = None,
    engine: Annotated[
        str | None,
        "What an installed engine ships: transformers, lmdeploy, eagle, vllm, sglang and "
        "others, or all for a table of those that are installed.",
    ] = None,
    text: Annotated[
        str | None,
        "module:function with (target, draft) -> tokens, which drafts and verifies by itself; the "
        "models are toys.",
    ] = None,
    any_version: Annotated[bool, "Call versions of an engine that were not tested."] = False,
    chain: Annotated[
        str | None,
        "module:function with (p [n+1, V], q [n, V], drafts [n]) -> tokens, on laws of all kinds.",
    ] = None,
    takes: Annotated[
        str, "Of --chain: probabilities, logits or log_probabilities."
    ] = "probabilities",
    batch: Annotated[bool, "Of --chain: with a leading axis of one."] = False,
    library: Annotated[str, "Of --chain and of the models of --text: numpy or torch."] = "numpy",
    problem: Annotated[
        Path | None,
        "Problem to audit a verifier on; without it and --vocab-size, laws of all kinds.",
    ] = None,
    scheme: Annotated[
        str, "How the drafts of random problems or of the trace were sampled."
    ] = "with_replacement",
    vocab_size: Annotated[
        int | None, "Tokens of one random problem, to audit a verifier on it."
    ] = None,
    num_drafts: Annotated[
        int | None, "Drafts of random problems (by default 3) and chains (2)."
    ] = None,
    trials: Annotated[
        int | None, "Sampled verifications; by default 100,000, or what 45 seconds allow."
    ] = None,
    seconds: Annotated[float | None, "Time for them instead."] = None,
    lossy: Annotated[
        bool,
        "The verifier is lossy on purpose: how much less than the best it accepts at its "
        "distance from the target, and how much farther than necessary it is.",
    ] = False,
    method: Annotated[str, "auto, enumeration, driven or sampling."] = "auto",
    sampling: options.Sampling,
    false_alarm: Annotated[
        float, "Probability, at most, of calling a faultless verifier lossy."
    ] = 1e-6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    page: options.Report = None,
    as_json: options.AsJson = False,
) -> None:
    """Settle whether a verifier, or a recorded engine, is lossless.

    Exit code 1 if it is not, 3 if that could not be judged.
    """
    if [verifier, trace, engine, chain, text].count(None) != 4:
        raise InvalidInput("give one of --verifier, --chain, --text, --trace and --engine")
    if lossy and verifier is None:
        raise InvalidInput("--lossy goes with --verifier")
    from mdsd_opt.cli.view import Form, present

    form = Form(as_json, page=page)
    if engine is not None:
        audit_engines(engine, any_version, 45.0 if seconds is None else seconds, seed, form)
        return
    from mdsd_opt import auditing
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.cli.report.audits import audit_view

    look_here_for_modules()
    report: Report
    limits: dict[str, Any] = {
        "method": method,
        "false_alarm": false_alarm,
        "progress": sys.stderr.isatty(),
    }
    if seconds is not None:
        limits["seconds"] = seconds
    if trials is not None:
        limits["num_trials"] = trials
    if chain is not None:
        from mdsd_opt.auditing.chains import audit_chain
        from mdsd_opt.base.installed import loaded

        num_drafts = num_drafts or 2
        report = audit_chain(
            loaded(chain),
            seed,
            takes=takes,
            batch=batch,
            library=library,
            num_drafts=num_drafts,
            **limits,
        )
        subject = f"{chain}: chains of {num_drafts} drafts"
    elif text is not None:
        from mdsd_opt.auditing.texts import audit_text
        from mdsd_opt.base.installed import loaded

        if trials is not None:
            limits["num_texts"] = limits.pop("num_trials")
        report = audit_text(loaded(text), seed, library=library, **limits)
        subject = f"{text}: texts of toy models"
    elif verifier is not None and problem is None and vocab_size is None and not lossy:
        from mdsd_opt.auditing.on_laws import audit_portfolio

        num_drafts = num_drafts or 3
        scheme = scheme if ":" in scheme else scheme.replace("-", "_")
        report = audit_portfolio(
            auditing.load_verifier(verifier), seed, scheme=scheme, num_drafts=num_drafts, **limits
        )
        subject = f"{verifier}: K = {num_drafts}, {scheme} drafts"
    elif verifier is not None:
        given = _problem(problem, scheme, vocab_size or 8, num_drafts or 3, seed)
        found = auditing.load_verifier(verifier)
        report = auditing.audit(found, given, seed, lossy=lossy, **limits)
        subject = (
            f"{verifier}: V = {given.vocab_size:,}, K = {given.num_drafts}, "
            f"{given.drafts.scheme} drafts"
        )
    else:
        assert trace is not None
        steps = auditing.load_trace(trace)
        report = auditing.audit_trace(
            steps.target,
            steps.draft,
            steps.drafts,
            steps.tokens,
            scheme=str(steps.metadata.get("scheme", scheme)),
            parents=steps.parents,
            logits=steps.holds_logits,
            false_alarm=false_alarm,
            rng=seed,
            **asdict(sampling),
        )
        subject = f"{trace}: {report.num_trials:,} recorded tokens"
    present(audit_view(report, subject), form)
    _exit(report.verdict_class, getattr(report, "faultless", report.lossless))


def _problem(
    path: Path | None, scheme: str, vocab_size: int, num_drafts: int, seed: int
) -> TransportProblem:
    """The problem of the file, or random target and draft laws."""
    if path is not None:
        from mdsd_opt.problem.files import load_problem

        return load_problem(path)
    import numpy as np

    from mdsd_opt.drafts.by_name import scheme_maker
    from mdsd_opt.problem import TransportProblem

    make = scheme_maker(scheme if ":" in scheme else scheme.replace("-", "_"))
    if vocab_size < 1:
        raise InvalidInput(f"--vocab-size is {vocab_size}: give at least 1")
    if vocab_size > MAX_VOCAB_SIZE:
        raise ProblemTooLarge(
            f"--vocab-size is {vocab_size}: random problems end at {MAX_VOCAB_SIZE:,} tokens"
        )
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(vocab_size), 2)
    return TransportProblem(p, make(q, num_drafts))


def audit_engines(name: str, any_version: bool, seconds: float, seed: int, form: Form) -> None:
    """Audit an engine, or all that are installed and quick; exit code 1 if one is not lossless."""
    # Triton reads this when it is imported, which other engines do as well.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from mdsd_opt.auditing import engines
    from mdsd_opt.auditing.report import worst_class
    from mdsd_opt.cli.report.audits import engines_view
    from mdsd_opt.cli.view import present

    audits: list[EngineAudit] = []
    missing: list[str] = []
    for wanted in engines.names() if name == "all" else (name,):
        if name == "all" and engines.takes_long(wanted):
            missing.append(f"{wanted}: takes more than ten minutes, ask for it by its name")
            continue
        try:
            engine = engines.get(wanted, any_version=any_version)
        except (InvalidInput, MissingExtra) as error:
            if name != "all":
                raise
            missing.append(f"{wanted}: {error}")
            continue
        if name == "all":
            typer.echo(f"auditing {wanted} ...", err=True)
        audits.append(engines.audit_engine(engine, seed, seconds))
    for line in missing:
        typer.echo(f"left out {line}", err=True)
    if not audits:
        raise InvalidInput("no engine with an adapter is installed")
    present(engines_view(audits, missing), form)
    worst = worst_class(audit.verdict_class for audit in audits)
    _exit(worst, worst == "lossless")


def _exit(verdict_class: str, faultless: bool) -> None:
    """End with 3 where nothing could be judged, and with 1 where something is wrong."""
    if verdict_class == "not judged":
        raise typer.Exit(3)
    if not faultless:
        raise typer.Exit(1)
