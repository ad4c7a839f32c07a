"""mdsd-opt audit: is a verifier, or what an engine ships, lossless, and how far from optimal?

Each kind of subject is a function, whose first parameter is the subject. Without a kind,
``audit --chain X`` is ``audit chain X``.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mdsd_opt import auditing, evidence, servers
from mdsd_opt.base.files import check_writable
from mdsd_opt.base.installed import loaded
from mdsd_opt.cli import options
from mdsd_opt.cli.commands import Kinds
from mdsd_opt.cli.options import SAMPLING
from mdsd_opt.cli.output import look_here_for_modules
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Form, View, present, save_page
from mdsd_opt.errors import InvalidInput, MissingExtra, ProblemTooLarge, UnknownName

if TYPE_CHECKING:
    from mdsd_opt.evidence import Bar
    from mdsd_opt.problem import TransportProblem

#: Most tokens of a random problem, and of wide laws.
MAX_VOCAB_SIZE = 1_000_000

_LAWS, _ANSWERS = "Laws, and what is promised", "Answers, and what is promised"
LIMITS = given("evidence:AuditOptions", "num_trials=trials seconds method false_alarm", "Trials")
OF_TEXTS = given(
    "servers:audit_tokens", "drafted logprobs tolerance promise false_alarm rng=seed", _ANSWERS
)
LogitsFile = Annotated[Path | None, "A file with arrays target and draft, to audit on these laws."]


@dataclass(frozen=True, kw_only=True)
class PrintedVerdict(Form):
    """What passes, and where the verdict goes."""

    PANEL: ClassVar[str] = "Verdict"

    detect: Annotated[
        float, "Nothing passes where a bias above this could have stayed hidden: exit code 3."
    ] = 0.05
    tolerate_edge: Annotated[
        float, "Probability of impossible values up to which an edge has exit code 0."
    ] = 1e-12
    junit: Annotated[
        Path | None, "Save the verdict as JUnit's XML, for continuous integration."
    ] = None


@dataclass(frozen=True, slots=True)
class Audited:
    """Reports, each with its subject, and the view of them."""

    reports: Sequence[tuple[str, Any]]
    view: Callable[[Bar], View]

    @classmethod
    def of(cls, report: Any, subject: str) -> Audited:
        """Of one subject."""
        from mdsd_opt.cli.audits import audit_view

        spelled = (re.sub(r"\bseconds=([\d.e+]+)", r"--seconds \1", note) for note in report.notes)
        report = replace(report, notes=tuple(spelled))
        return cls([(subject, report)], lambda bar: audit_view(report, subject, bar))


def chain(
    chain: Annotated[
        str,
        "module:function with (p [n+1, V], q [n, V], drafts [n]) -> tokens, on laws of all kinds.",
    ],
    *,
    batch: Annotated[
        int,
        "Rows of a batch; 1 for a leading axis of one, from 2 on rows of different laws and "
        "lengths, 0 for no such axis.",
    ] = 0,
    asked: Given = given("auditing:audit_chain", "takes library num_drafts rng=seed"),
    logits: LogitsFile = None,
    laws: Given = given("auditing:audit_chain", "vocab_sizes promise draft_promise", _LAWS),
    sampling: Given = SAMPLING,
    limits: Given = LIMITS,
) -> Audited:
    """A function of both models' laws and the drafts of a chain."""
    report = auditing.audit_chain(
        loaded(chain), batch=bool(batch) if batch < 2 else batch,
        **_laws(logits, laws, sampling), **asked, **limits,
    )  # fmt: skip
    return Audited.of(report, f"{chain}: chains of {asked['num_drafts']} drafts")


def text(
    text: Annotated[
        str,
        "module:function with (target, draft) -> tokens, which drafts and verifies by itself; the "
        "models are toys.",
    ],
    *,
    asked: Given = given("auditing:audit_text", "library rng=seed"),
    logits: LogitsFile = None,
    laws: Given = given("auditing:audit_text", "vocab_sizes promise", _LAWS),
    sampling: Given = SAMPLING,
    limits: Given = LIMITS,
) -> Audited:
    """A function that writes texts with toy models."""
    report = auditing.audit_text(loaded(text), **_laws(logits, laws, sampling), **asked, **limits)
    return Audited.of(report, f"{text}: texts of toy models")


def _laws(logits: Path | None, laws: Given, sampling: Given) -> Given:
    """Laws that a function is put to, and what it promises to make of the target's."""
    from mdsd_opt.base.sampling import Sampling

    wanted = dict(laws)
    if logits is not None:
        sample = options.given_sample([logits], None)
        wanted["laws"] = sample.target, sample.draft
    for size in laws.get("vocab_sizes", ()):
        if not 2 <= size <= MAX_VOCAB_SIZE:
            raise InvalidInput(
                f"--vocab-sizes is '{size}': give numbers from 2 to {MAX_VOCAB_SIZE:,} with commas"
            )
    options.refuse("{name} goes with --trace: a promise holds on both sides", "draft_temperature")
    if (promised := Sampling(**sampling)) != Sampling():
        if "promise" in wanted:
            raise InvalidInput(
                "--promise comes instead of temperature and filters: give one of them"
            )
        wanted["promise"] = promised
    return wanted


def tree(
    tree: Annotated[str, "A rule for trees, or module:function with (root, rng) -> tokens."],
    *,
    shape: Annotated[str, "Of the tree: drafts x depth, chain2, ..."] = "2x2",
    asked: Given = given("auditing:audit_portfolio", "scheme rng=seed"),
    limits: Given = LIMITS,
) -> Audited:
    """A rule that accepts several drafts of a tree at once."""
    from mdsd_opt.decoding import get_rule

    rule = loaded(tree) if ":" in tree else get_rule(tree)
    scheme = options.scheme_named(asked.pop("scheme"))
    report = auditing.audit_portfolio(
        getattr(rule, "verify", rule), tree=shape, scheme=scheme, **asked, **limits
    )
    return Audited.of(report, f"{tree}: trees {shape}, {scheme} drafts")


def trace(
    trace: Annotated[
        Path,
        "Recorded steps: a .npz or .safetensors file with arrays target, draft, drafts, tokens; "
        "with parents where drafts are a tree.",
    ],
    *,
    asked: Given = given("auditing:audit_trace", "scheme rng=seed"),
    sampling: Given = SAMPLING,
    limits: Given = given("evidence:AuditOptions", "false_alarm"),
) -> Audited:
    """Steps that an engine recorded."""
    steps = auditing.load_trace(trace)
    asked["scheme"] = str(steps.metadata.get("scheme", asked["scheme"]))
    report = auditing.audit_trace(
        steps.target, steps.draft, steps.drafts, steps.tokens, parents=steps.parents,
        logits=steps.holds_logits, **asked, **limits, **sampling,
    )  # fmt: skip
    return Audited.of(report, f"{trace}: {report.num_trials:,} recorded tokens")


def verifier(
    verifier: Annotated[
        str,
        "A verifier of the package, module:attribute that is one, or module:function with "
        "(target, draft, drafts, rng) -> token.",
    ],
    *,
    problem: Annotated[
        Path | None,
        "Problem to audit it on; without it and --vocab-size, laws of all kinds.",
    ] = None,
    vocab_size: Annotated[int | None, "Tokens of one random problem, to audit it on."] = None,
    asked: Given = given("auditing:audit_portfolio", "scheme num_drafts rng=seed", num_drafts=3),
    lossy: Given = given("auditing:audit", "lossy"),
    limits: Given = LIMITS,
) -> Audited:
    """One decision among K drafts, on laws of all kinds or one problem."""
    asked["scheme"] = options.scheme_named(asked["scheme"])
    verify = auditing.load_verifier(verifier)
    if problem is None and vocab_size is None and not lossy["lossy"]:
        report: Any = auditing.audit_portfolio(verify, **asked, **limits)
        of = f"K = {asked['num_drafts']}, {asked['scheme']} drafts"
        return Audited.of(report, f"{verifier}: {of}")
    on = _problem(problem, 8 if vocab_size is None else vocab_size, **asked)
    report = auditing.audit(verify, on, asked["rng"], **lossy, **limits)
    of = f"V = {on.vocab_size:,}, K = {on.num_drafts}, {on.drafts.scheme} drafts"
    return Audited.of(report, f"{verifier}: {of}")


def _problem(
    path: Path | None, vocab_size: int, scheme: str, num_drafts: int, rng: int
) -> TransportProblem:
    """Problem of the file, or random target and draft laws."""
    import numpy as np

    from mdsd_opt.drafts import scheme_maker
    from mdsd_opt.problem import TransportProblem, load_problem

    if path is not None:
        return load_problem(path)
    make = scheme_maker(scheme)
    if vocab_size < 1:
        raise InvalidInput(f"--vocab-size is {vocab_size}: give at least 1")
    if vocab_size > MAX_VOCAB_SIZE:
        raise ProblemTooLarge(
            f"--vocab-size is {vocab_size}: random problems end at {MAX_VOCAB_SIZE:,} tokens"
        )
    p, q = np.random.default_rng(rng).dirichlet(np.ones(vocab_size), 2)
    return TransportProblem(p, make(q, num_drafts))


def engine(
    engine: Annotated[
        str,
        "What an installed engine ships: transformers, lmdeploy, eagle, vllm, sglang and "
        "others, module:ADAPTER of your own, or all for a table of those that are installed.",
    ],
    *,
    version: Given = given("auditing.engines:get", "any_version"),
    limits: Given = given("auditing.engines:audit_engine", "seconds rng=seed"),
) -> Audited:
    """Functions that an installed engine ships, or all that are quick."""
    # Triton reads this when it is imported, which other engines do as well.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from mdsd_opt.auditing import engines
    from mdsd_opt.cli.audits import engines_view

    is_one, audits, missing = engine != "all", [], []
    for wanted in (engine,) if is_one else engines.names():
        try:
            if not is_one and engines.takes_long(wanted):
                raise InvalidInput("takes more than ten minutes, ask for it by its name")
            found = engines.get(wanted, **version)
        except (InvalidInput, MissingExtra) as error:
            if is_one:
                raise
            missing.append(f"{wanted}: {error}")
            continue
        if not is_one:
            typer.echo(f"auditing {wanted} ...", err=True)
        audits.append(engines.audit_engine(found, **limits))
    for line in missing:
        typer.echo(f"left out {line}", err=True)
    if not audits:
        raise InvalidInput("no engine with an adapter is installed")
    subjects = [(f"engine {audit.engine.name}", audit) for audit in audits]
    return Audited(subjects, lambda bar: engines_view(audits, missing, bar))


def server(
    server: Annotated[str, "Address of a server that runs, http://HOST:PORT, in any language."],
    *,
    asked: Given = given(
        "servers:audit_server",
        "against draft=draft_server api prompts log model length "
        "max_tokens seconds concurrency timeout top",
    ),
    draft_top_k: Annotated[
        int | None, "Of --draft-server: drafts are drawn from so many tokens (llama.cpp: 10)."
    ] = None,
    key_variable: Annotated[str | None, "The environment variable that holds its key."] = None,
    answers: Given = OF_TEXTS,
    sampling: Given = SAMPLING,
) -> Audited:
    """A server that runs, in whatever language it is written."""
    from mdsd_opt.base.sampling import Sampling

    key = None if key_variable is None else os.environ.get(key_variable)
    if key_variable is not None and not key:
        raise InvalidInput(f"--key-variable {key_variable}: it is not set")
    target, draft = Sampling.of_both(**sampling)
    said = draft_top_k is not None or "draft_temperature" in sampling
    if draft_top_k is not None:
        draft = replace(draft, top_k=draft_top_k)
    report = servers.audit_server(
        server, key=key, sampling=target, draft_sampling=draft if said else None,
        progress=sys.stderr.isatty(), **asked, **answers,
    )  # fmt: skip
    return Audited.of(report, server)


def tokens(
    recorded: Annotated[
        Path,
        "Answers with log-probabilities as JSON lines (vLLM, SGLang, llama.cpp, OpenAI), or a log.",
    ],
    *,
    control: Annotated[Path | None, "Answers of the same server without speculation."] = None,
    answers: Given = OF_TEXTS,
    sampling: Given = SAMPLING,
) -> Audited:
    """Answers with log-probabilities that a server has given."""
    from mdsd_opt.base.sampling import Sampling

    target, _ = Sampling.of_both(**sampling)
    report = servers.audit_tokens(recorded, control=control, sampling=target, **answers)
    return Audited.of(report, f"{recorded}: {report.tokens:,} tokens after the first ones")


#: Kinds by name, in the order of the help.
KINDS: dict[str, Callable[..., Audited]] = {
    kind.__name__: kind for kind in (chain, text, tree, trace, verifier, engine, server, tokens)
}

_EXIT_CODES = "Exit code 0 for PASS, 1 for FAIL, 3 where too little was seen to say so."

#: What stands in the files of a run until there is a verdict.
_UNFINISHED = "No verdict: the run has not come to its end, and nothing can be said."


def _judged(kind: Callable[..., Audited]) -> Callable[..., None]:
    """Verb that audits a subject of this kind, shows what came of it, and exits with its code."""

    @wraps(kind)
    def verb(*, verdict: PrintedVerdict, **values: Any) -> None:
        bar = evidence.Bar(verdict.detect, verdict.tolerate_edge)
        _begin(verdict)
        look_here_for_modules()
        result = kind(**values)
        present(result.view(bar), verdict)
        _leave(result, bar, verdict.junit)

    shown = [*inspect.signature(kind, eval_str=True).parameters.values()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shown.append(inspect.Parameter("verdict", keyword, annotation=PrintedVerdict))
    vars(verb)["__signature__"] = inspect.Signature(shown)
    verb.__doc__ = f"{kind.__doc__}\n\n{_EXIT_CODES}"
    return verb


def _begin(verdict: PrintedVerdict) -> None:
    """Write files that hold no verdict, in place of an earlier run's, for a run that dies."""
    from mdsd_opt.cli.audits import TestCase, save_junit

    if verdict.junit is not None:
        check_writable(verdict.junit)
        save_junit(verdict.junit, [TestCase("audit", 2, _UNFINISHED)])
    for path in verdict.files:
        if path.suffix.lower() in (".html", ".htm"):
            save_page(path, View("mdsd-opt audit", conclusion=[_UNFINISHED]))


def _leave(result: Audited, bar: Bar, junit: Path | None) -> None:
    """Exit with the code of the worst answer on the subjects, after JUnit's file is written."""
    from mdsd_opt.cli.audits import TestCase, save_junit
    from mdsd_opt.evidence import ANSWERS

    answers = [bar.answer(report) for _, report in result.reports]
    if junit is not None:
        cases = [
            TestCase(subject, ANSWERS[answer], bar.told(report), report.rows())
            for (subject, report), answer in zip(result.reports, answers, strict=True)
        ]
        save_junit(junit, cases)
    if code := ANSWERS[max(answers, key=list(ANSWERS).index)]:
        raise typer.Exit(code)


def _chosen(words: list[str], _: list[str]) -> list[str]:
    """Words for the kind whose subject is an option among them: ``--chain X`` is ``chain X``."""
    subjects = {
        f"--{next(iter(inspect.signature(x).parameters))}": kind for kind, x in KINDS.items()
    }
    parts = [word.partition("=") for word in words]
    named = [n for n, (word, _, _) in enumerate(parts) if word in subjects]
    if not named and words and not words[0].startswith("-"):
        raise UnknownName.among("kind of audit", words[0], KINDS)
    if len(named) != 1:
        raise InvalidInput(
            f"give one of {', '.join(subjects)} alone, or the kind first, as mdsd-opt "
            "audit chain module:function, and its options behind it"
        )
    (n,) = named
    option, is_joined, subject = parts[n]
    return [subjects[option], *words[:n], *[subject] * bool(is_joined), *words[n + 1 :]]


audit = Kinds(
    "audit",
    {name: _judged(kind) for name, kind in KINDS.items()},
    "Settle whether a verifier, or a recorded engine, is lossless.\n\nEach kind has options "
    "of its own, as mdsd-opt audit chain --help says. Without a kind, mdsd-opt audit --chain X is "
    "mdsd-opt audit chain X, and so on; of tokens it is --recorded.\n\n" + _EXIT_CODES,
    _chosen,
)
