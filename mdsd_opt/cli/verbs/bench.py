"""mdsd-opt bench: how fast are solvers, flows, batches, decisions and polyhedra, and how exact?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mdsd_opt.base.files import write_text
from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput, UnknownName

#: Ends of names by the names of forms; ends of pictures are their own names.
_FORMS = {"json": ".json", "csv": ".csv", "markdown": ".md", "latex": ".tex", "html": ".html"}
_FORMS |= {name: f".{name}" for name in ("png", "svg", "pdf", "pgf")}


@dataclass(frozen=True, kw_only=True)
class OfSolvers:
    """Options of the benchmark of solvers."""

    vocab_size: Annotated[str | None, "Of solvers: sizes of the problems, as 1000,4000."] = None
    num_drafts: Annotated[str | None, "Of solvers: numbers of drafts, as 2,4."] = None
    scheme: Annotated[str, "Of solvers: draft scheme of the problems."] = "with_replacement"
    methods: Annotated[
        str | None,
        "Of solvers: methods, separated by commas: names, or module:METHOD for one of your own, "
        "each with options, as 'truncated_lp size=40 rule=ratio'.",
    ] = None
    backend: Annotated[str | None, "Of solvers: highs or cvxpy, where a method has one."] = None
    problems: Annotated[
        Path | None,
        "Of solvers: small, hard or real, or a folder with files of problems, in place of random "
        "logits.",
    ] = None
    families: Annotated[
        str | None,
        "Of solvers, separated by commas: random, peaked, ties, real, which are taken if left out, "
        "zeros, equal, one_token, tiny, far.",
    ] = None
    instances: Annotated[
        int | None, "Of solvers: problems of each family and size, of seeds in a row; 5 by default."
    ] = None
    tolerance: Annotated[
        float | None, "Of solvers: certified gap up to which a problem is solved; 1e-6 by default."
    ] = None
    time_limit: Annotated[
        float | None,
        "Of solvers: seconds of one solution, at which a method is stopped; 60 by default.",
    ] = None


@options.gathers_options()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="solvers, flows, batches, decisions, polyhedra; all if left out."),
    ] = None,
    *,
    quick: Annotated[bool, "Small sizes, few rounds: 20 s; says what it left out."] = False,
    rounds: Annotated[int | None, "How often each route is timed; 3 at least if left out."] = None,
    of_solvers: OfSolvers,
    verifiers: Annotated[
        str | None,
        "Of decisions: verifiers beside the usual ones, or module:VERIFIER for one of your own.",
    ] = None,
    threads: Annotated[int | None, "For what can use threads; all by default."] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the problems.")] = 0,
    out: Annotated[
        list[Path] | None,
        "Save as .json, .csv, .md, .tex, .html or a picture, by the end of the name, or in a "
        "folder; may be given again. The .json is written as results come, and the same command "
        "goes on from it after a kill.",
    ] = None,
    formats: Annotated[
        str | None, "Of a folder --out: json, csv, markdown, latex, html, png, svg, pdf; several."
    ] = None,
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
    """
    paths = _files(out or [], formats)
    given = asdict(of_solvers)
    for benchmark, values in (("solvers", given), ("decisions", {"verifiers": verifiers})):
        if saved is not None or names != [benchmark]:
            why = f"--{{name}} is for mdsd-opt bench {benchmark}, without --from"
            options.refuse_changed(bench, values, why)
    if of_solvers.problems is not None:
        makes = ("vocab_size", "num_drafts", "scheme", "families", "instances")
        why = "--problems has problems of its own: leave --{name} out"
        options.refuse_changed(bench, {name: given[name] for name in makes}, why)
    from mdsd_opt.bench import LEFT_OUT, BenchReport, Record, changes, load_report, run
    from mdsd_opt.cli.output import look_here_for_modules, remark
    from mdsd_opt.cli.report.bench import bench_view
    from mdsd_opt.cli.view import present, save_view

    look_here_for_modules()
    old = None if compare is None else load_report(compare)

    def tell(record: Record) -> None:
        took = "did not finish" if record.median_ms is None else f"{record.counted_ms:.3g} ms"
        which = f" {record.instance or f'seed {record.seed}'}" if record.outcome else ""
        drafts = f", K = {record.num_drafts}" if record.num_drafts else ""
        outcome = f", {record.outcome}" if record.outcome else ""
        remark(f"{record.benchmark}: {record.route}, {record.problem}{which}, "
               f"V = {record.vocab_size:,}{drafts}: {took}{outcome}")  # fmt: skip

    def keep(report: BenchReport) -> None:
        for path in paths:
            if path.suffix == ".json":
                write_text(path, report.as_json())

    if saved is not None:
        report = load_report(saved)
    else:
        sizes, counts = given.pop("vocab_size"), given.pop("num_drafts")
        several = {"verifiers": verifiers, **{x: given.pop(x) for x in ("methods", "families")}}
        report = run(
            names or (), quick=quick, rounds=rounds, threads=threads, rng=seed, progress=tell,
            save=keep, unfinished=_unfinished(paths, load_report),
            vocab_sizes=tuple(options.parse_numbers(sizes, "--vocab-size")) if sizes else (),
            num_drafts=tuple(options.parse_counts(counts)) if counts else (),
            **{x: tuple(map(str.strip, text.split(","))) for x, text in several.items() if text},
            **given,
        )  # fmt: skip
    rows = [] if old is None else changes(old, report)
    view = bench_view(report, rows)
    for path in paths:
        save_view(view, path)
        remark(f"saved as {path}")
    present(view, form)
    for name in (names or LEFT_OUT) if quick and saved is None else ():
        remark(f"left out of {name}: {LEFT_OUT[name]}")
    if old is None:
        return
    if not rows:
        remark(f"{compare} holds none of these measurements")
    worse = sum(change.is_regression for change in rows)
    if worse:
        remark(f"slower or less exact than in {compare}: {worse} of {len(rows)} measurements")
        raise typer.Exit(1)


def _files(out: Sequence[Path], formats: str | None) -> list[Path]:
    """Files to save, each of which can be written: those named, and one a form in a folder."""
    from mdsd_opt.cli.view import check_saved_path

    names = [name.strip() for name in formats.split(",")] if formats else []
    for name in names:
        if name not in _FORMS:
            raise UnknownName.among("format", name, _FORMS)
    folders, paths = ([x for x in out if bool(x.suffix) is named] for named in (False, True))
    if bool(folders) != bool(names):
        raise InvalidInput("a folder --out and --formats go together: --out DIR --formats csv,pdf")
    for path in paths:
        if path.suffix not in _FORMS.values():
            ends = ", ".join(_FORMS.values())
            raise InvalidInput(f"--out is {path}: give a name that ends in {ends}, or a folder")
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        paths += [folder / f"bench{_FORMS[name]}" for name in names]
    for path in paths:
        check_saved_path(path)
    return paths


def _unfinished(paths: Sequence[Path], load: Callable[[Path], Any]) -> Any:
    """Report of a run that was ended before it was done, if one of the files holds that."""
    from mdsd_opt.errors import UnreadableFile

    for path in paths:
        with suppress(UnreadableFile):
            if path.suffix == ".json" and not (report := load(path)).finished:
                return report
    return None
