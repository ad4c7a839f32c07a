"""mdsd-opt bench: how fast are solvers, flows, batches, decisions and polyhedra, and how exact?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput, UnknownName

#: Ends of names by the names of forms; ends of pictures are their own names.
_FORMS = {"json": ".json", "csv": ".csv", "markdown": ".md", "latex": ".tex", "html": ".html"}
_FORMS |= {name: f".{name}" for name in ("png", "svg", "pdf", "pgf")}


@options.gathers_options()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="solvers, flows, batches, decisions, polyhedra; all if left out."),
    ] = None,
    *,
    quick: Annotated[bool, "Small sizes, few rounds: 20 s; says what it left out."] = False,
    rounds: Annotated[int | None, "How often each route is timed; 3 at least if left out."] = None,
    vocab_size: Annotated[
        str | None,
        typer.Option("--vocab-size", "-V", help="Of solvers: sizes of the problems, as 1000,4000."),
    ] = None,
    num_drafts: Annotated[str | None, "Of solvers: numbers of drafts, as 2,4."] = None,
    scheme: Annotated[str, "Of solvers: draft scheme of the problems."] = "with_replacement",
    methods: Annotated[
        str | None,
        "Of solvers: methods, separated by commas: names, or module:METHOD for one of your own, "
        "each with options, as 'truncated_lp size=40 rule=ratio'.",
    ] = None,
    backend: Annotated[str | None, "Of solvers: highs or cvxpy, where a method has one."] = None,
    problems: Annotated[
        Path | None,
        "Of solvers: small, hard or real, or a folder with files of problems, in place of random "
        "logits.",
    ] = None,
    families: Annotated[
        str | None, "Of solvers: random, peaked, ties, real, separated by commas; all by default."
    ] = None,
    instances: Annotated[
        int | None, "Of solvers: problems of each family and size, of seeds in a row; 5 by default."
    ] = None,
    tolerance: Annotated[
        float | None, "Of solvers: certified gap up to which a problem is solved; 1e-6 by default."
    ] = None,
    time_limit: Annotated[
        float | None,
        "Of solvers: seconds of one solution, at which a method is stopped; 60 by default.",
    ] = None,
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
    from mdsd_opt.bench import (
        FAMILIES,
        LEFT_OUT,
        BenchReport,
        Record,
        changes,
        load_report,
        route_of,
        run,
    )
    from mdsd_opt.cli.output import look_here_for_modules, remark
    from mdsd_opt.cli.report.bench import bench_view, save_report
    from mdsd_opt.cli.view import present
    from mdsd_opt.drafts import all_schemes, checked_scheme
    from mdsd_opt.verifiers import get as get_verifier

    look_here_for_modules()
    if scheme not in all_schemes():
        checked_scheme(scheme)
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
                save_report(report, path)

    chosen = {
        "vocab_sizes": tuple(options.parse_numbers(vocab_size, "--vocab-size"))
        if vocab_size
        else (),
        "num_drafts": tuple(options.parse_counts(num_drafts)) if num_drafts else (),
        "methods": _names(methods, route_of),
        "scheme": scheme,
        "backend": backend,
        "problems": problems,
        "families": _names(families, lambda name: _known_family(name, FAMILIES)),
        "instances": instances,
        "tolerance": tolerance,
        "time_limit": time_limit,
        "verifiers": _names(verifiers, get_verifier),
    }
    _check(names or [], {**chosen, "scheme": scheme != "with_replacement"}, saved)
    if saved is not None:
        report = load_report(saved)
    else:
        report = run(
            names or (), quick=quick, rounds=rounds, threads=threads, rng=seed, progress=tell,
            save=keep, unfinished=_unfinished(paths, load_report), **chosen,
        )  # fmt: skip
    rows = [] if old is None else changes(old, report)
    view = bench_view(report, rows)
    for path in paths:
        save_report(report, path, view)
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
    folders = [path for path in out if not path.suffix]
    if bool(folders) != bool(names):
        raise InvalidInput("a folder --out and --formats go together: --out DIR --formats csv,pdf")
    paths = [path for path in out if path.suffix]
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


def _known_family(name: str, known: Mapping[str, str]) -> None:
    if name not in known:
        raise UnknownName.among("family", name, known)


def _unfinished(paths: Sequence[Path], load: Callable[[Path], Any]) -> Any:
    """Report of a run that was ended before it was done, if one of the files holds that."""
    from mdsd_opt.errors import UnreadableFile

    for path in paths:
        if path.suffix == ".json" and path.exists() and path.stat().st_size:
            with suppress(UnreadableFile):
                report = load(path)
                if not report.finished:
                    return report
    return None


#: Options that belong to one benchmark each, by the name of their setting.
_OF_DECISIONS = {"verifiers": "--verifiers"}
_OF_SOLVERS = {
    "vocab_sizes": "--vocab-size", "num_drafts": "--num-drafts", "methods": "--methods",
    "scheme": "--scheme", "backend": "--backend", "problems": "--problems",
    "families": "--families", "instances": "--instances", "tolerance": "--tolerance",
    "time_limit": "--time-limit",
}  # fmt: skip


def _check(names: Sequence[str], chosen: Mapping[str, Any], saved: Path | None) -> None:
    """Raise where an option has nothing to say of what is measured."""
    for options_of, benchmark in ((_OF_SOLVERS, "solvers"), (_OF_DECISIONS, "decisions")):
        for name, option in options_of.items():
            if chosen[name] and (saved is not None or [*names] != [benchmark]):
                raise InvalidInput(f"{option} is for mdsd-opt bench {benchmark}, without --from")
    if chosen["problems"] is not None:
        from mdsd_opt.bench import SETS

        path, is_set = chosen["problems"], str(chosen["problems"]) in SETS
        if path.is_dir() and is_set:
            raise InvalidInput(
                f"--problems is {path}, a named set and a folder here: give {path.absolute()} for "
                "the folder, or go elsewhere for the set"
            )
        if not path.is_dir() and not is_set:
            raise InvalidInput(f"--problems is {path}: give {', '.join(SETS)}, or a folder")
        makes = ("vocab_sizes", "num_drafts", "scheme", "families", "instances")
        given = [_OF_SOLVERS[name] for name in makes if chosen[name]]
        if given:
            raise InvalidInput(f"--problems has problems of its own: leave {given[0]} out")
    for name, unit in (("time_limit", "seconds"), ("tolerance", "a gap"), ("instances", "a count")):
        if chosen[name] is not None and not 0 < chosen[name] < math.inf:
            raise InvalidInput(f"{_OF_SOLVERS[name]} is {chosen[name]}: give {unit} above 0")


def _names(text: str | None, get: Callable[[str], Any]) -> tuple[str, ...]:
    """Names with commas between them, each of which there is."""
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in names:
        get(name)
    return names
