"""mdsd-opt audit: is a verifier, or what an engine ships, lossless, and how far from optimal?

Each kind of subject is one file with the dataclass of its `Options`, the first of which is the
subject, and `run`. `audit`, without a kind, takes the options of all: ``audit --chain X`` is
``audit chain X``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from mdsd_opt.base.files import check_writable
from mdsd_opt.cli.audits import (
    chain,
    engine,
    server,
    streams,
    text,
    tokens,
    trace,
    tree,
    verifier,
)
from mdsd_opt.cli.audits.common import Audited, VerdictOptions
from mdsd_opt.cli.options import gathered_as, options_of, read_by_typer
from mdsd_opt.errors import InvalidInput

#: Modules of the kinds by name, in the order of the help.
KINDS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (chain, text, tree, trace, verifier, streams, engine, server, tokens)
}

#: What stands in the files of a run until there is a verdict.
_UNFINISHED = "No verdict: the run has not come to its end, and nothing can be said."


def told_of(kind: str) -> str:
    """Sentence on a kind: what its module says behind its name."""
    sentence = str(KINDS[kind].__doc__).partition(": ")[2]
    return sentence[0].upper() + sentence[1:]


def run_kind(kind: str, values: Mapping[str, Any]) -> None:
    """Audit a subject of this kind, show what came of it, and exit with its code."""
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.cli.view import Form, present
    from mdsd_opt.evidence import Bar

    module, verdict = KINDS[kind], gathered_as(VerdictOptions, values)
    options = gathered_as(module.Options, values)
    bar = Bar(verdict.detect, verdict.tolerate_edge)
    form = Form(as_json=verdict.as_json, page=verdict.page)
    if verdict.junit is not None:
        check_writable(verdict.junit)
    _begin(verdict)
    look_here_for_modules()
    result: Audited = module.run(options)
    present(result.view(bar), form)
    _leave(result, bar, verdict.junit)


def _begin(verdict: VerdictOptions) -> None:
    """Write files that hold no verdict, in place of an earlier run's, for a run that dies."""
    from mdsd_opt.cli.report.audits import TestCase, save_junit
    from mdsd_opt.cli.view import View, save_page

    if verdict.junit is not None:
        save_junit(verdict.junit, [TestCase("audit", 2, _UNFINISHED)])
    if verdict.page is not None:
        save_page(verdict.page, View("mdsd-opt audit", conclusion=[_UNFINISHED]))


def _leave(result: Audited, bar: Any, junit: Path | None) -> None:
    """Exit with the code of the worst answer on the subjects, after JUnit's file is written."""
    from mdsd_opt.cli.report.audits import TestCase, save_junit
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


_EXIT_CODES = "Exit code 0 for PASS, 1 for FAIL, 3 where too little was seen to say so."


def command_of(kind: str) -> Callable[..., None]:
    """Command of a kind: its subject is an argument, all else are options."""

    def command(**values: Any) -> None:
        run_kind(kind, values)

    subject, *others = options_of(KINDS[kind].Options)
    origin, (option,) = subject.annotation.__origin__, subject.annotation.__metadata__
    argument = typer.Argument(help=option.help, metavar=subject.name.upper())
    first = subject.replace(annotation=Annotated[origin, argument])
    command.__doc__ = f"{told_of(kind)}\n\n{_EXIT_CODES}"
    return read_by_typer(command, [first, *others, *options_of(VerdictOptions)])


def audit(context: typer.Context, **values: Any) -> None:
    """Settle whether a verifier, or a recorded engine, is lossless.

    Each kind has options of its own, as mdsd-opt audit chain --help says. Without a kind,
    mdsd-opt audit --chain X is mdsd-opt audit chain X, and so on; of tokens it is --recorded.

    Exit code 0 for PASS, 1 for FAIL, 3 where too little was seen to say so.
    """
    asked = {name: value for name, value in values.items() if value is not None}
    if context.invoked_subcommand is None:
        run_kind(_kind_asked(asked), asked)
    elif asked:
        name = next(iter(asked)).replace("_", "-")
        raise InvalidInput(f"--{name} goes behind the kind: {context.invoked_subcommand} ...")


def _all_options() -> list[inspect.Parameter]:
    """Options of all kinds, each once, hidden, and None where it is not given."""
    parameters: dict[str, inspect.Parameter] = {}
    for group in (*(module.Options for module in KINDS.values()), VerdictOptions):
        for option in options_of(group):
            argument = copy(option.annotation.__metadata__[0])
            argument.hidden = True
            origin: Any = option.annotation.__origin__
            hint = Annotated[origin | None, argument]
            parameters.setdefault(option.name, option.replace(annotation=hint, default=None))
    return list(parameters.values())


read_by_typer(
    audit,
    [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        *_all_options(),
    ],
)

_PROMISES = (
    "--promise goes with --chain, --text, --server and --recorded, and --draft-promise with --chain"
)
_LAWS = "--logits and --vocab-sizes go with --chain and --text"

#: Kinds that are about servers.
_SERVERS = {"server", "tokens"}

#: Options that are refused but by some kinds, with what is said; others ignore what they lack.
_REFUSED: dict[str, tuple[set[str], str]] = {
    "lossy": ({"verifier"}, "--lossy goes with --verifier"),
    "promise": ({"chain", "text", *_SERVERS}, _PROMISES),
    "draft_promise": ({"chain", *_SERVERS}, _PROMISES),
    "logits": ({"chain", "text", "engine", *_SERVERS}, _LAWS),
    "vocab_sizes": ({"chain", "text", "engine", *_SERVERS}, _LAWS),
}


def _kind_asked(asked: Mapping[str, Any]) -> str:
    """Kind whose subject is among the options; raise where others do not go with it."""
    kinds = [kind for kind in KINDS if fields(KINDS[kind].Options)[0].name in asked]
    taken = {kind: options_of(KINDS[kind].Options) for kind in KINDS}
    others = {x.name for kind in KINDS if kind not in _SERVERS for x in taken[kind]}
    for option in (*taken["server"], *taken["tokens"]) if not {*kinds} & _SERVERS else ():
        name, usual = option.name, option.default
        if name not in others and asked.get(name, usual) != usual:
            raise InvalidInput(f"--{name.replace('_', '-')} goes with --server or --recorded")
    if len(kinds) > 1 and {*kinds} & _SERVERS:
        raise InvalidInput("give --server or --recorded alone")
    if len(kinds) != 1:
        raise InvalidInput(
            "give one of --verifier, --chain, --text, --tree, --trace, --streams and --engine, or "
            "--server or --recorded"
        )
    for name, (takers, refusal) in _REFUSED.items():
        if name in asked and kinds[0] not in takers:
            raise InvalidInput(refusal)
    return kinds[0]
