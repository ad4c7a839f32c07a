"""mdsd-opt solve: one problem, all methods side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput


@options.gathers_options(
    plot="Save a picture: the acceptance region of three tokens, else the plan as a heat map."
)
def solve(
    problem: Annotated[Path, typer.Argument(help="A problem in .json, .npz or .safetensors.")],
    *,
    method: Annotated[
        list[str] | None,
        "Only this one, by its name in the table of all, or module:METHOD for one of your own; may "
        "be repeated.",
    ] = None,
    exact: Annotated[bool, "Certify in exact arithmetic (small problems)."] = False,
    time_limit: Annotated[
        float | None,
        "Seconds for each method that can take long; ten, or what the rows above took, by default.",
    ] = None,
    tolerance: Annotated[
        float | None, "Of the methods that take one: how close bounds have to be to be optimal."
    ] = None,
    backend: Annotated[str | None, "Of the linear programmes: highs or cvxpy."] = None,
    size: Annotated[str | None, "Of the truncated LP: numbers and ranges, as 5,20,100."] = None,
    rule: Annotated[str | None, "Of the truncated LP: ratio, or published, the paper's."] = None,
    export: Annotated[
        Path | None, "Also write the linear programme to this .mps or .lp file, before solving."
    ] = None,
    export_form: Annotated[str, "Of --export: primal, dual, truncated, pair or tuples."] = "primal",
    proof: Annotated[
        Path | None,
        "JSON file for a proof of the optimum in fractions, of up to 12 tokens, which "
        "examples/check_optimum.py checks.",
    ] = None,
    subset: Annotated[bool, "Show the tokens of the best subset."] = False,
    plan: Annotated[bool, "Show the transport plan."] = False,
    dual: Annotated[bool, "Show the prices that prove the upper bound."] = False,
    form: Form,
) -> None:
    """Solve a transport problem by every method that applies, and certify each result.

    A problem, in JSON: {"target": [0.5, 0.3, 0.2], "drafts": {"scheme": "with_replacement",
    "q": [0.2, 0.3, 0.5], "num_drafts": 2}}.

    The exit code is 1 if a certificate finds a claim that does not hold.
    """
    from mdsd_opt import plots
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.cli.report import methods
    from mdsd_opt.cli.view import Drawing, Section, View, present
    from mdsd_opt.problem import load_problem
    from mdsd_opt.solvers import get, linear_programme

    look_here_for_modules()
    for name in method or []:
        get(name)
    if time_limit is not None and not time_limit > 0:
        raise InvalidInput(f"--time-limit is {time_limit}: give a positive number of seconds")
    if tolerance is not None and not 0 < tolerance < 1:
        raise InvalidInput(f"--tolerance is {tolerance}: give a number above 0 and below 1")
    sizes = [] if size is None else options.parse_numbers(size, "--size")
    loaded = load_problem(problem)
    if export is not None:
        programme = linear_programme(loaded, export_form)
        programme.save(export)
        rows, columns = programme.A_ub.shape
        print(f"wrote {export}: {export_form}, {rows:,} rows, {columns:,} columns", file=sys.stderr)
    if proof is not None:
        from mdsd_opt.base.files import write_json
        from mdsd_opt.cddlib_checks import optimum_proof

        write_json(proof, optimum_proof(loaded))
        print(f"wrote {proof}: the optimum, proven from both sides", file=sys.stderr)
    found = methods.method_rows(
        loaded, method, exact=exact, time_limit=time_limit, tolerance=tolerance, sizes=sizes,
        backend=backend, rule=rule,
    )  # fmt: skip
    title = (
        f"{problem}: V = {loaded.vocab_size:,}, K = {loaded.num_drafts}, "
        f"{loaded.drafts.scheme} drafts"
    )
    refused = [(row.label, row.refusal) for row in found if row.refusal]
    wanted = [name for name, on in (("subset", subset), ("plan", plan), ("dual", dual)) if on]
    document = {
        "problem": str(problem),
        "scheme": loaded.drafts.scheme,
        "vocab_size": loaded.vocab_size,
        "num_drafts": loaded.num_drafts,
        "methods": [{**row.to_dict(), **row.evidence(wanted)} for row in found],
    }
    tables = [methods.methods_section(found, title), Section(values=refused, inline=True)]
    tables += [Section("", table=table) for table in methods.evidence_tables(found, wanted)]
    has_plan = (form.plot or form.page) is not None and loaded.vocab_size != 3
    drawn: Any = methods.with_plan(found).solution if has_plan else loaded
    drawing = Drawing(lambda: plots.plan(drawn).figure, title=title)
    rows = [row.to_dict() for row in found]
    present(View(title, tables, [methods.conclusion(found)], document, drawing, rows=rows), form)
    if any(row.certificate is not None and not row.certificate.valid for row in found):
        raise typer.Exit(1)
