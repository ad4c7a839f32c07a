"""mdsd-opt audit: is a verifier, or what an engine ships, lossless, and how far from optimal?

Each kind of subject is one file with the dataclass of its `Options`, the first of which is the
subject, and `run`. Without a kind, ``audit --chain X`` is ``audit chain X``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mdsd_opt.base.files import check_writable
from mdsd_opt.cli.audits import (
    chain,
    engine,
    server,
    text,
    tokens,
    trace,
    tree,
    verifier,
)
from mdsd_opt.cli.audits.common import Audited, VerdictOptions
from mdsd_opt.cli.options import gathered_as, options_of, read_by_typer
from mdsd_opt.errors import InvalidInput, UnknownName

#: Modules of the kinds by name, in the order of the help.
KINDS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (chain, text, tree, trace, verifier, engine, server, tokens)
}

#: What stands in the files of a run until there is a verdict.
_UNFINISHED = "No verdict: the run has not come to its end, and nothing can be said."


def told_of(kind: str) -> str:
    """Sentence on a kind: what its module says behind its name."""
    sentence = str(KINDS[kind].__doc__).partition(": ")[2]
    return sentence[:1].upper() + sentence[1:]


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


class Kinds(TyperGroup):
    """All kinds; ``--chain X`` among the words stands for ``chain X``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "--"
        if not ctx.resilient_parsing and first not in {*KINDS, *ctx.help_option_names}:
            subjects = {f"--{fields(KINDS[kind].Options)[0].name}": kind for kind in KINDS}
            words = [word.partition("=") for word in args]
            named = [n for n, (word, _, _) in enumerate(words) if word in subjects]
            if not named and not first.startswith("-"):
                raise UnknownName.among("kind of audit", first, KINDS)
            if len(named) != 1:
                raise InvalidInput(
                    f"give one of {', '.join(subjects)} alone, or the kind first, as mdsd-opt "
                    "audit chain module:function, and its options behind it"
                )
            (n,) = named
            option, is_joined, subject = words[n]
            args = [subjects[option], *args[:n], *[subject] * bool(is_joined), *args[n + 1 :]]
        own = {kind: {x for y in self.commands[kind].params for x in y.opts} for kind in KINDS}
        for option in (word.partition("=")[0] for word in args if word.startswith("--")):
            takers = [kind for kind in KINDS if option in own[kind]]
            if takers and option not in own.get(args[0], takers):
                raise InvalidInput(f"{option} goes with {', '.join(takers)}, not with {args[0]}")
        return super().parse_args(ctx, args)


def audit() -> None:
    """Settle whether a verifier, or a recorded engine, is lossless.

    Each kind has options of its own, as mdsd-opt audit chain --help says. Without a kind,
    mdsd-opt audit --chain X is mdsd-opt audit chain X, and so on; of tokens it is --recorded.

    Exit code 0 for PASS, 1 for FAIL, 3 where too little was seen to say so.
    """
