"""mdsd-opt bench: how fast are solvers, flows, batches, decisions and polyhedra, and how exact?"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mdsd_opt import bench as benchmarks
from mdsd_opt import plots
from mdsd_opt.base.files import write_text
from mdsd_opt.cli.options import refuse
from mdsd_opt.cli.output import look_here_for_modules, remark
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Drawing, Form, Section, View, present
from mdsd_opt.errors import UnreadableFile

_PROBLEMS = ("vocab_size", "num_drafts", "scheme", "families", "instances")
_SOLVERS = (*_PROBLEMS, "methods", "backend", "problems", "tolerance", "time_limit")

#: Circumstances that stand below the tables.
_TOLD = (
    "processor", "cpus", "load_average", "python", "numpy", "scipy", "numba", "highspy", "mdsd_opt",
)  # fmt: skip


def bench(
    names: Annotated[
        list[str] | None, "solvers, flows, batches, decisions, polyhedra; all if left out."
    ] = None,
    *,
    settings: Given = given(
        "bench.record:Settings",
        "quick rounds vocab_sizes=vocab_size num_drafts scheme methods backend problems families "
        "instances tolerance time_limit verifiers threads seed=seed",
        threads=None,
    ),
    form: Form,
    saved: Annotated[
        Path | None,
        typer.Option("--from", help="Measure nothing: show and draw a saved .json again."),
    ] = None,
    compare: Annotated[
        Path | None, "A saved .json: show what has become slower; exit code 1 if any."
    ] = None,
) -> None:
    """Measure speed side by side with the alternatives, in one run, with the gap of every answer.

    Every line holds its circumstances; ratios are to a rival on the same problem in the same run.
    A .json of --out is written as results come, and the same command goes on from it after a kill.
    """
    for benchmark, only in (("solvers", _SOLVERS), ("decisions", ("verifiers",))):
        if saved is not None or names != [benchmark]:
            refuse(f"{{name}} is for mdsd-opt bench {benchmark}, without --from", *only)
    if "problems" in settings:
        refuse("--problems has problems of its own: leave {name} out", *_PROBLEMS)
    look_here_for_modules()
    old = None if compare is None else benchmarks.load_report(compare)
    documents = [path for path in form.files if path.suffix == ".json"]

    def keep(report: benchmarks.BenchReport) -> None:
        for path in documents:
            write_text(path, report.as_json())

    if saved is not None:
        report = benchmarks.load_report(saved)
    else:
        report = benchmarks.run(
            names or (), rng=settings.pop("seed"), progress=_tell, save=keep,
            unfinished=_unfinished(documents), **settings,
        )  # fmt: skip
    rows = [] if old is None else benchmarks.changes(old, report)
    present(bench_view(report, rows), form)
    if settings["quick"] and saved is None:
        for name in names or benchmarks.LEFT_OUT:
            remark(f"left out of {name}: {benchmarks.LEFT_OUT[name]}")
    if old is None:
        return
    if not rows:
        remark(f"{compare} holds none of these measurements")
    worse = sum(change.is_regression for change in rows)
    if worse:
        remark(f"slower or less exact than in {compare}: {worse} of {len(rows)} measurements")
        raise typer.Exit(1)


def _tell(record: benchmarks.Record) -> None:
    took = "did not finish" if record.median_ms is None else f"{record.counted_ms:.3g} ms"
    which = f" {record.instance or f'seed {record.seed}'}" if record.outcome else ""
    drafts = f", K = {record.num_drafts}" if record.num_drafts else ""
    outcome = f", {record.outcome}" if record.outcome else ""
    remark(f"{record.benchmark}: {record.route}, {record.problem}{which}, "
           f"V = {record.vocab_size:,}{drafts}: {took}{outcome}")  # fmt: skip


def _unfinished(paths: Iterable[Path]) -> Any:
    """Report of a run that was ended before it was done, if one of the files holds that."""
    for path in paths:
        with suppress(UnreadableFile):
            if not (report := benchmarks.load_report(path)).finished:
                return report
    return None


def bench_view(
    report: benchmarks.BenchReport, changes: list[benchmarks.Change] | None = None
) -> View:
    """View of the measurements of a run, and their differences from those of an earlier one."""
    where = report.circumstances
    names = (name for name in _TOLD if name in where)
    circumstances = ", ".join(f"{name.replace('_', ' ')} {where[name]}" for name in names)
    warned = [x for x in (benchmarks.load_warning(where),) if x]
    if not report.finished:
        warned.append("this run was not finished: the same command goes on with it")
    told = [Section("", x) if isinstance(x, str) else x for x in report.told()]
    earlier = [benchmarks.changes_table(changes)] if changes else []
    return View(
        f"Speed\n{circumstances}",
        [*told, Section(text=circumstances)],
        [*report.conclusion(), *benchmarks.not_installed(report), *warned, *earlier],
        report,
        Drawing(
            partial(plots.bench_figure, report),
            "Time of one call against the vocabulary, logarithmic axes, with the range over "
            "problems; a broad line, of up to three, is a fit. Lower is better.",
            "Time of one call by the vocabulary size",
        ),
        rows=report.csv_rows(),
        rows_are_all=True,
    )
