"""mdsd-opt check: claims of the theory in exact arithmetic."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput


@options.gathers_options()
def check(
    conjecture: Annotated[
        str | None,
        typer.Argument(
            help="A claim, or 'condition' for inequalities of your own; all claims are listed if "
            "left out."
        ),
    ] = None,
    vocab_size: Annotated[int, "V."] = 4,
    num_drafts: Annotated[int, "K."] = 3,
    draft: Annotated[
        list[str] | None,
        "q as 1/2,1/4,1/8,1/8; repeated once for each model where drafts differ. "
        "(1, 2, .., V) divided by its sum if left out.",
    ] = None,
    inequality: Annotated[
        list[str] | None,
        "With 'condition': one claimed inequality, as 'p0 + p2 >= 8/27'; repeat it.",
    ] = None,
    scheme: Annotated[
        str, "With 'condition': with_replacement, without_replacement, independent."
    ] = "with_replacement",
    engine: Annotated[
        str, "cddlib, ppl, both, which must agree, or auto: the quicker one."
    ] = "auto",
    timeout: Annotated[float, "Seconds."] = 60.0,
    memory: Annotated[float, "GiB each engine may take."] = 4.0,
    search: Annotated[bool, "Random search for a counterexample instead."] = False,
    trials: Annotated[int, "With --search: random instances."] = 10_000,
    seed: Annotated[int, "With --search: seed of the instances."] = 0,
    start: Annotated[int, "With --search: first trial, to resume."] = 0,
    as_json: options.AsJson = False,
    progress: Annotated[bool | None, "Progress line on stderr."] = None,
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
    from mdsd_opt import cddlib_checks
    from mdsd_opt.cli.view import Form, View, present
    from mdsd_opt.drafts.by_name import has_many_models

    common: dict[str, Any] = {"vocab_size": vocab_size, "num_drafts": num_drafts}
    common |= {"timeout": timeout, "memory": int(memory * 2**30), "progress": line.show}
    try:
        if search:
            if draft or inequality:
                raise InvalidInput("--search draws its own instances: leave --draft out")
            result = cddlib_checks.search(
                conjecture, trials=trials, seed=seed, start=start, **common
            )
        elif conjecture == "condition":
            result = cddlib_checks.check_condition(
                inequalities=inequality or [],
                draft=_laws(draft, has_many_models(scheme)),
                scheme=scheme,
                engine=engine,
                **common,
            )
        else:
            if inequality:
                raise InvalidInput(
                    "--inequality belongs to: mdsd-opt check condition --inequality ..."
                )
            result = cddlib_checks.check(
                conjecture, draft=_laws(draft, False), engine=engine, **common
            )
    finally:
        line.clear()
    known = cddlib_checks.conjectures().get(conjecture)
    proof = f"proof for every size: {known.proof}" if known and known.proof else None
    document = {**result.to_dict(), "proof": known.proof if known else ""}
    told = [str(result), *([proof] if proof else [])]
    present(View(conclusion=told, document=document), Form(as_json))
    if result.holds is not True:
        raise typer.Exit(3 if result.holds is None else 1)


def _laws(draft: list[str] | None, several: bool) -> list[str] | list[list[str]] | None:
    """Lists of the numbers in each --draft; a single one is q itself."""
    if not draft:
        return None
    rows = [text.split(",") for text in draft]
    return rows[0] if len(rows) == 1 and not several else rows


def _list(as_json: bool) -> None:
    from mdsd_opt.cddlib_checks import conjectures
    from mdsd_opt.cli.view import Form, Section, View, present

    known = conjectures().values()
    tables = []
    for status, heading in _KINDS.items():
        of_kind = [c for c in known if c.status == status]
        tables.append(Section(text=f"{heading} ({len(of_kind)})" if of_kind else None))
        for c in of_kind:
            tables.append(Section(text="", values=[(c.name, "")]))
            where = f"proof: {c.proof}" if c.proof else ""
            tables.append(Section(values=[(" ", x) for x in (c.statement, c.source, where) if x]))
        tables.append(Section(text="" if of_kind else None))
    conclusion = "each is settled at one size: mdsd-opt check CLAIM --vocab-size V --num-drafts K"
    document = {"conjectures": [c.to_dict() for c in known]}
    view = View(tables=tables, conclusion=["", conclusion], document=document)
    present(view, Form(as_json))


#: Headings of the claims of each status.
_KINDS = {
    "theorem": "THEOREMS",
    "conjecture": "CONJECTURES, which nobody has proved",
    "false": "REFUTED CLAIMS, which are there to be refuted",
}


class _ProgressLine:
    """One line on stderr that is overwritten."""

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
