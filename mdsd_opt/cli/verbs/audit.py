"""mdsd-opt audit: is a verifier, or what an engine ships, lossless, and how far from optimal?"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.base.files import check_writable
from mdsd_opt.cli import options, server_audits
from mdsd_opt.errors import InvalidInput, MissingExtra, ProblemTooLarge

if TYPE_CHECKING:
    from mdsd_opt.auditing.engines import EngineAudit
    from mdsd_opt.auditing.report import Bar, Report
    from mdsd_opt.cli.view import Form
    from mdsd_opt.problem import TransportProblem


#: Most tokens of a random problem.
MAX_VOCAB_SIZE = 1_000_000


#: What stands in the files of a run until there is a verdict.
_UNFINISHED = "No verdict: the run has not come to its end, and nothing can be said."


@options.gathers_options(
    temperature="Of the trace's target logits; of both sides, as --chain or --text promises it.",
    draft_temperature="Of the trace's draft logits; the target's unless given.",
    **dict.fromkeys(
        ("top_k", "top_p", "min_p"),
        "Filter on the trace's logits, or on both sides, as --chain or --text promises it.",
    ),
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
        "others, module:ADAPTER of your own, or all for a table of those that are installed.",
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
    batch: Annotated[
        int,
        "Of --chain: rows of a batch; 1 for a leading axis of one, from 2 on rows of different "
        "laws and lengths, 0 for no such axis.",
    ] = 0,
    logits: Annotated[
        Path | None,
        "Of --chain and --text: a file with arrays target and draft, to audit on these laws.",
    ] = None,
    vocab_sizes: Annotated[
        str | None, "Of --chain and --text: tokens of the wide laws, as 2048,50000."
    ] = None,
    promise: Annotated[
        str | None,
        "module:function with (text, logits) -> law: what --chain, --text or a server makes of the "
        "target's logits, as penalties, instead of temperature and filters.",
    ] = None,
    draft_promise: Annotated[str | None, "Of --chain: the same for the draft's logits."] = None,
    detect: Annotated[
        float,
        "Nothing passes where a bias above this could have stayed hidden: exit code 3.",
    ] = 0.05,
    tolerate_edge: Annotated[
        float, "Probability of impossible values up to which an edge has exit code 0."
    ] = 1e-12,
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
        int | None, "Sampled calls of each law; by default 100,000 on one problem, else 20,000."
    ] = None,
    seconds: Annotated[
        float | None,
        "Limit of time, named where it is reached; on one problem instead of --trials.",
    ] = None,
    lossy: Annotated[
        bool,
        "The verifier is lossy on purpose: how much less than the best it accepts at its "
        "distance from the target, and how much farther than necessary it is.",
    ] = False,
    method: Annotated[str, "auto, enumeration, driven or sampling."] = "auto",
    sampling: options.SamplingOptions,
    servers: server_audits.ServerOptions,
    false_alarm: Annotated[
        float, "Probability, at most, of calling a faultless verifier lossy."
    ] = 1e-6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    page: options.Page = None,
    junit: Annotated[
        Path | None, "Save the verdict as JUnit's XML, for continuous integration."
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Settle whether a verifier, or a recorded engine, is lossless.

    Exit code 0 for PASS, 1 for FAIL, 3 where too little was seen to say so.
    """
    from mdsd_opt.auditing.report import Bar

    bar = Bar(detect, tolerate_edge)
    others = [verifier, trace, engine, chain, text]
    if not servers.is_asked and others.count(None) != 4:
        raise InvalidInput(
            "give one of --verifier, --chain, --text, --trace and --engine, or --server or "
            "--recorded"
        )
    if lossy and verifier is None:
        raise InvalidInput("--lossy goes with --verifier")
    from mdsd_opt.base.installed import loaded
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.cli.view import Form, present

    form = Form(as_json, page=page)
    if junit is not None:
        check_writable(junit)
    named = {"promise": promise, "draft_promise": draft_promise}
    wanted = {name: spec for name, spec in named.items() if spec is not None}
    if wanted and not servers.is_asked and chain is None and (text is None or draft_promise):
        raise InvalidInput(
            "--promise goes with --chain, --text, --server and --recorded, and --draft-promise "
            "with --chain"
        )
    _begin(page, junit)
    look_here_for_modules()
    promises = {name: loaded(spec) for name, spec in wanted.items()}
    if servers.is_asked:
        from mdsd_opt.cli.report.audits import audit_view

        found, of = server_audits.audited(
            servers, others, sampling, promises.get("promise"), seconds, false_alarm, seed
        )
        present(audit_view(found, of, bar), form)
        leave([(of, found)], bar, junit)
        return
    if engine is not None:
        limit = 3600.0 if seconds is None else seconds
        audit_engines(engine, any_version, limit, seed, form, bar, junit)
        return
    own: dict[str, Any] = {}
    if chain is not None or text is not None:
        own = _laws_and_promise(logits, vocab_sizes, sampling)
        if promises.keys() & own.keys():
            raise InvalidInput(
                "--promise comes instead of temperature and filters: give one of them"
            )
        own |= promises
    elif logits is not None or vocab_sizes is not None:
        raise InvalidInput("--logits and --vocab-sizes go with --chain and --text")
    from mdsd_opt import auditing
    from mdsd_opt.cli.report.audits import audit_view

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

        num_drafts = num_drafts or 2
        report = audit_chain(
            loaded(chain),
            seed,
            takes=takes,
            batch=bool(batch) if batch < 2 else batch,
            library=library,
            num_drafts=num_drafts,
            **own,
            **limits,
        )
        subject = f"{chain}: chains of {num_drafts} drafts"
    elif text is not None:
        from mdsd_opt.auditing.texts import audit_text

        if trials is not None:
            limits["num_texts"] = limits.pop("num_trials")
        report = audit_text(loaded(text), seed, library=library, **own, **limits)
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
    present(audit_view(report, subject, bar), form)
    leave([(subject, report)], bar, junit)


def _begin(page: Path | None, junit: Path | None) -> None:
    """Write files that hold no verdict, in place of an earlier run's, for a run that dies."""
    from mdsd_opt.cli.report.audits import TestCase, save_junit
    from mdsd_opt.cli.view import View, save_page

    if junit is not None:
        save_junit(junit, [TestCase("audit", 2, _UNFINISHED)])
    if page is not None:
        save_page(page, View("mdsd-opt audit", conclusion=[_UNFINISHED]))


def leave(
    found: Sequence[tuple[str, Report | EngineAudit]], bar: Bar, junit: Path | None = None
) -> None:
    """Exit with the code of the worst answer on some subjects, after JUnit's file is written."""
    from mdsd_opt.auditing.report import ANSWERS
    from mdsd_opt.cli.report.audits import TestCase, save_junit

    answers = [bar.answer(report) for _, report in found]
    if junit is not None:
        cases = [
            TestCase(subject, ANSWERS[answer], bar.told(report), report.rows())
            for (subject, report), answer in zip(found, answers, strict=True)
        ]
        save_junit(junit, cases)
    if code := ANSWERS[max(answers, key=list(ANSWERS).index)]:
        raise typer.Exit(code)


def _laws_and_promise(
    logits: Path | None, vocab_sizes: str | None, sampling: options.SamplingOptions
) -> dict[str, Any]:
    """Laws to audit on, and the sampling that the function promises."""
    from mdsd_opt.base.sampling import Sampling

    own: dict[str, Any] = {}
    if logits is not None:
        sample = options.given_sample([logits], None)
        own["laws"] = sample.target, sample.draft
    if vocab_sizes is not None:
        own["vocab_sizes"] = _sizes(vocab_sizes)
    if sampling.draft_temperature is not None:
        raise InvalidInput("--draft-temperature goes with --trace: a promise holds on both sides")
    promise, _ = sampling.sides
    if promise != Sampling():
        own["promise"] = promise
    return own


def _sizes(text: str) -> list[int]:
    sizes = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if not all(2 <= size <= MAX_VOCAB_SIZE for size in sizes):
        raise InvalidInput(
            f"--vocab-sizes is {text!r:.60}: give numbers from 2 to {MAX_VOCAB_SIZE:,} with commas"
        )
    return sizes


def _problem(
    path: Path | None, scheme: str, vocab_size: int, num_drafts: int, seed: int
) -> TransportProblem:
    """Problem of the file, or random target and draft laws."""
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


def audit_engines(
    name: str,
    any_version: bool,
    seconds: float,
    seed: int,
    form: Form,
    bar: Bar,
    junit: Path | None,
) -> None:
    """Audit an engine, or all that are installed and quick; exit code 1 if one is not lossless."""
    # Triton reads this when it is imported, which other engines do as well.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from mdsd_opt.auditing import engines
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
    present(engines_view(audits, missing, bar), form)
    leave([(f"engine {audit.engine.name}", audit) for audit in audits], bar, junit)
