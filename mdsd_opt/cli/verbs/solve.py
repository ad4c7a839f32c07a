"""mdsd-opt solve: one problem, all methods side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mdsd_opt import bench, plots, solvers
from mdsd_opt import problem as problems
from mdsd_opt.base.files import write_json
from mdsd_opt.base.frames import Result, Table
from mdsd_opt.cli.output import look_here_for_modules, remark
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Drawing, Form, Section, View, present
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.bench import MethodRow, ShownEvidence


@dataclass(frozen=True)
class SolvedBy(Result):
    """One method, and what was asked for of its solution."""

    row: MethodRow
    shown: ShownEvidence

    columns: ClassVar = ("*row", "*shown")


@dataclass(frozen=True)
class Solved(Result):
    """What is told of a problem."""

    problem: str
    scheme: str
    vocab_size: int
    num_drafts: int
    methods: list[SolvedBy]


def solve(
    problem: Annotated[Path, "A problem in .json, .npz or .safetensors."],
    *,
    method: Annotated[
        list[str] | None,
        "Only this one, by its name in the table of all, or module:METHOD for one of your own; may "
        "be repeated.",
    ] = None,
    asked: Given = given("bench:method_rows", "exact time_limit tolerance backend sizes=size rule"),
    export: Annotated[
        Path | None, "Also write the linear programme to this .mps or .lp file, before solving."
    ] = None,
    programme: Given = given("solvers:linear_programme", "form=export_form"),
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
    "q": [0.2, 0.3, 0.5], "num_drafts": 2}}. Its picture is the acceptance region of three tokens,
    else the plan as a heat map.

    The exit code is 1 if a certificate finds a claim that does not hold.
    """
    look_here_for_modules()
    for name in method or []:
        solvers.get(name)
    if not asked.get("time_limit", 1.0) > 0:
        raise InvalidInput(
            f"--time-limit is {asked['time_limit']}: give a positive number of seconds"
        )
    if not 0 < asked.get("tolerance", 0.5) < 1:
        raise InvalidInput(
            f"--tolerance is {asked['tolerance']}: give a number above 0 and below 1"
        )
    loaded = problems.load_problem(problem)
    if export is not None:
        made = solvers.linear_programme(loaded, **programme)
        made.save(export)
        rows, columns = made.A_ub.shape
        remark(f"wrote {export}: {programme['form']}, {rows:,} rows, {columns:,} columns")
    if proof is not None:
        from mdsd_opt.cddlib_checks import optimum_proof

        write_json(proof, optimum_proof(loaded))
        remark(f"wrote {proof}: the optimum, proven from both sides")
    found = bench.method_rows(loaded, method, **asked)
    size = {"vocab_size": loaded.vocab_size, "num_drafts": loaded.num_drafts}
    title = "{}: V = {:,}, K = {}, {} drafts".format(problem, *size.values(), loaded.drafts.scheme)
    wanted = [name for name, on in (("subset", subset), ("plan", plan), ("dual", dual)) if on]
    rows = [row.to_dict() for row in found]
    told = [SolvedBy(row, row.evidence(wanted)) for row in found]
    document = Solved(str(problem), loaded.drafts.scheme, methods=told, **size)
    refused = [(row.label, row.refusal) for row in found if row.refusal]
    tables: list[Section | Table] = [bench.methods_table(found, title)]
    tables += [Section(values=refused, inline=True), *bench.evidence_tables(found, wanted)]
    has_plan = form.drawn and loaded.vocab_size != 3
    drawn: Any = bench.with_plan(found).solution if has_plan else loaded
    of = "Optimal plan: which draft is accepted" if has_plan else "Optimal acceptance by the target"
    drawing = Drawing(lambda: plots.plan(drawn).figure, title=of)
    conclusion = [bench.methods_conclusion(found)]
    present(View(title, tables, conclusion, document, drawing, rows=rows), form)
    if any(row.certificate is not None and not row.certificate.valid for row in found):
        raise typer.Exit(1)
