"""mdsd-opt bench: how fast are solvers, flows, batches, decisions and polyhedra, and how exact?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mdsd_opt.base.files import check_writable
from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

_OUT_SUFFIXES = (".json", ".csv", ".md")


@options.gathers_options()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="solvers, flows, batches, decisions, polyhedra; all if left out."),
    ] = None,
    quick: Annotated[bool, "Small sizes, few rounds: 20 s; says what it left out."] = False,
    rounds: Annotated[int | None, "How often each route is timed."] = None,
    threads: Annotated[int | None, "For what can use threads; all by default."] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the problems.")] = 0,
    out: Annotated[list[Path] | None, "Save as .json, .csv or .md; may be given again."] = None,
    plot: Annotated[Path | None, "Save a picture of time against V (.png, .svg or .pdf)."] = None,
    compare: Annotated[
        Path | None, "A saved .json: show what has become slower; exit code 1 if any."
    ] = None,
    page: options.Report = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure speed side by side with the alternatives, in one run, with the gap of every answer.

    Every line holds its circumstances; ratios are to a rival on the same problem in the same run.
    """
    for path in out or []:
        if path.suffix not in _OUT_SUFFIXES:
            raise InvalidInput(f"--out is {path}: give a name that ends in .json, .csv or .md")
        check_writable(path)
    from mdsd_opt.cli.bench import LEFT_OUT, Record, changes, load_report, run
    from mdsd_opt.cli.output import remark
    from mdsd_opt.cli.report.bench import bench_view, save_report
    from mdsd_opt.cli.view import Form, present

    form = Form(as_json, plot=plot, page=page)
    old = None if compare is None else load_report(compare)

    def tell(record: Record) -> None:
        took = "did not finish" if record.median_ms is None else f"{record.median_ms:.3g} ms"
        drafts = f", K = {record.num_drafts}" if record.num_drafts else ""
        remark(f"{record.benchmark}: {record.route}, {record.problem}, "
               f"V = {record.vocab_size:,}{drafts}: {took}")  # fmt: skip

    report = run(names or (), quick=quick, rounds=rounds, threads=threads, seed=seed, progress=tell)
    for path in out or []:
        save_report(report, path)
        remark(f"saved as {path}")
    found = [] if old is None else changes(old, report)
    present(bench_view(report, found), form)
    for name in (names or LEFT_OUT) if quick else ():
        remark(f"left out of {name}: {LEFT_OUT[name]}")
    if old is None:
        return
    if not found:
        remark(f"{compare} holds none of these measurements")
    worse = sum(change.is_regression for change in found)
    if worse:
        remark(f"slower or less exact than in {compare}: {worse} of {len(found)} measurements")
        raise typer.Exit(1)
