"""mdsd-opt solve: one problem, all methods side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput, UnknownName


@options.gathers_options()
def solve(
    problem: Annotated[Path, typer.Argument(help="A problem in .json, .npz or .safetensors.")],
    method: Annotated[
        list[str] | None, "Only this one, by its name in the table of all; may be repeated."
    ] = None,
    exact: Annotated[bool, "Certify in exact arithmetic (small problems)."] = False,
    time_limit: Annotated[float | None, "Seconds for each method that can take long."] = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Solve a transport problem by every method that applies, and certify each result.

    A problem, in JSON: {"target": [0.5, 0.3, 0.2], "drafts": {"scheme": "with_replacement",
    "q": [0.2, 0.3, 0.5], "num_drafts": 2}}.

    The exit code is 1 if a certificate finds a claim that does not hold.
    """
    from mdsd_opt.cli.report.methods import conclusion, method_rows, methods_table
    from mdsd_opt.cli.view import Form, Section, View, present
    from mdsd_opt.problem.files import load_problem
    from mdsd_opt.solvers import methods

    for name in method or []:
        if name not in methods():
            raise UnknownName.among("method", name, methods())
    if time_limit is not None and not time_limit > 0:
        raise InvalidInput(f"--time-limit is {time_limit}: give a positive number of seconds")
    loaded = load_problem(problem)
    rows = method_rows(loaded, method, exact=exact, time_limit=time_limit)
    title = (
        f"{problem}: V = {loaded.vocab_size:,}, K = {loaded.num_drafts}, "
        f"{loaded.drafts.scheme} drafts"
    )
    refused = [(row.method, row.refusal) for row in rows if row.refusal]
    document = {
        "problem": str(problem),
        "scheme": loaded.drafts.scheme,
        "vocab_size": loaded.vocab_size,
        "num_drafts": loaded.num_drafts,
        "methods": [row.to_dict() for row in rows],
    }
    tables = [Section(table=methods_table(rows, title)), Section(values=refused, inline=True)]
    present(View(title, tables, [conclusion(rows)], document), Form(as_json))
    if any(row.certificate is not None and not row.certificate.valid for row in rows):
        raise typer.Exit(1)
