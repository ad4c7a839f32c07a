"""mdsd-opt check: claims of the theory in exact arithmetic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cddlib_checks import CheckResult


def check(
    conjecture: Annotated[
        str | None,
        typer.Argument(
            help="A claim, or 'condition' for inequalities of your own; all claims are listed if "
            "left out.",
            show_default=False,
        ),
    ] = None,
    vocab_size: Annotated[int, typer.Option(help="V.")] = 4,
    num_drafts: Annotated[int, typer.Option("--num-drafts", "-k", help="K.")] = 3,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            help="q as 1/2,1/4,1/8,1/8; repeated once for each model where drafts differ. "
            "(1, 2, .., V) divided by its sum if left out.",
            show_default=False,
        ),
    ] = None,
    inequality: Annotated[
        list[str] | None,
        typer.Option(
            help="With 'condition': one claimed inequality, as 'p0 + p2 >= 8/27'; repeat it.",
            show_default=False,
        ),
    ] = None,
    scheme: Annotated[
        str,
        typer.Option(help="With 'condition': with_replacement, without_replacement, independent."),
    ] = "with_replacement",
    engine: Annotated[
        str, typer.Option(help="cddlib, ppl, both, which must agree, or auto: the quicker one.")
    ] = "auto",
    timeout: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
    memory: Annotated[float, typer.Option(help="GiB each engine may take.")] = 4.0,
    search: Annotated[
        bool, typer.Option("--search", help="Random search for a counterexample instead.")
    ] = False,
    trials: Annotated[int, typer.Option(help="With --search: random instances.")] = 10_000,
    seed: Annotated[int, typer.Option(help="With --search: seed of the instances.")] = 0,
    start: Annotated[int, typer.Option(help="With --search: first trial, to resume.")] = 0,
    as_json: options.AsJson = False,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Progress line on stderr.")
    ] = None,
) -> None:
    """Prove or refute a claim at one size, by double description in exact arithmetic.

    The exit code is 0 if it holds, 1 if it is refuted, 3 if it stays undecided.
    """
    if conjecture is None:
        _list(as_json)
        return
    if not memory > 0:
        raise InvalidInput(f"--memory is {memory}: give a positive number of GiB")
    line = _ProgressLine(sys.stderr.isatty() if progress is None else progress)
    num_bytes = int(memory * 2**30)
    from mdsd_opt import cddlib_checks
    from mdsd_opt.drafts.by_name import has_many_models

    try:
        if search:
            if draft or inequality:
                raise InvalidInput("--search draws its own instances: leave --draft out")
            result = cddlib_checks.search(
                conjecture, vocab_size=vocab_size, num_drafts=num_drafts, trials=trials,
                seed=seed, start=start, timeout=timeout, memory=num_bytes, progress=line.show,
            )  # fmt: skip
        elif conjecture == "condition":
            result = cddlib_checks.check_condition(
                vocab_size, num_drafts, inequality or [], _laws(draft, has_many_models(scheme)),
                scheme=scheme, engine=engine, timeout=timeout, memory=num_bytes,
                progress=line.show,
            )  # fmt: skip
        else:
            if inequality:
                raise InvalidInput(
                    "--inequality belongs to: mdsd-opt check condition --inequality ..."
                )
            result = cddlib_checks.check(
                conjecture, vocab_size=vocab_size, num_drafts=num_drafts,
                draft=_laws(draft, False), engine=engine, timeout=timeout, memory=num_bytes,
                progress=line.show,
            )  # fmt: skip
    finally:
        line.clear()
    _show(result, as_json)


def _laws(draft: list[str] | None, several: bool) -> list[str] | list[list[str]] | None:
    """Each --draft split at its commas; one alone is q itself."""
    if not draft:
        return None
    rows = [text.split(",") for text in draft]
    return rows[0] if len(rows) == 1 and not several else rows


def _show(result: CheckResult, as_json: bool) -> None:
    from mdsd_opt.cli.output import say

    if as_json:
        from mdsd_opt.cli.report.tables import as_json as to_json

        print(to_json(result.to_dict()))
    else:
        say(result)
    if result.holds is not True:
        raise typer.Exit(3 if result.holds is None else 1)


def _list(as_json: bool) -> None:
    from mdsd_opt.cddlib_checks import conjectures

    known = conjectures().values()
    if as_json:
        from mdsd_opt.cli.report.tables import as_json as to_json

        print(to_json({"conjectures": [c.to_dict() for c in known]}))
        return
    from mdsd_opt.cli.output import say, show_rows

    say("claims, what each states, and its source; those called false are there to be refuted")
    for c in known:
        print()
        show_rows([(c.name, f"({c.status})")])
        show_rows([(" ", c.statement), (" ", c.source)])
    print()
    say("each is settled at one size: mdsd-opt check CLAIM --vocab-size V --num-drafts K")


class _ProgressLine:
    """One line on stderr, written over again."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._width = 0

    def show(self, text: str) -> None:
        if self._wanted:
            print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
            self._width = len(text)

    def clear(self) -> None:
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
