"""Benchmarks by name, and how they are run one after the other."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from mdsd_opt.base.checked import Rng, checked_integer, drawn_seed
from mdsd_opt.base.keywords import formerly
from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.bench.bench_report import BenchReport, circumstances
from mdsd_opt.bench.record import Record, Settings, compared
from mdsd_opt.errors import InvalidInput, UnknownName

#: Subject of each benchmark, by name.
SUITE = {
    "solvers": "each method on growing transport problems: time, memory, certificate gap",
    "flows": "the same network by OR-tools, igraph, SciPy and POT, where they are installed",
    "batches": "acceptance rates of batches of logits, against sorting in NumPy, SciPy and PyTorch",
    "decisions": "one verification by each verifier, against the argsort route and the LP",
    "polyhedra": "double description in exact arithmetic: cones, polytopes, projections",
}


#: Cases that a quick run of each benchmark leaves out, by name.
LEFT_OUT = {
    "solvers": "more than 12 tokens, K > 2, all families but one, all instances but one",
    "flows": "more than 12 tokens, K > 2, other drafts than with replacement",
    "batches": "more than 4,096 tokens, and all but 32,768 logits a batch",
    "decisions": "more than 2,048 tokens, bundled logits",
    "polyhedra": "all cases but the smallest",
}

#: Extras that bring what each benchmark sets beside the package, by the names of `versions`.
RIVALS = {
    "flows": {"ortools": "rivals", "igraph": "rivals", "pot": "rivals"},
    "batches": {"torch": "models"},
    "polyhedra": {"pycddlib": "cdd", "pplpy": "ppl", "normaliz": "rivals"},
}


def not_installed(report: BenchReport) -> list[str]:
    """Lines on the rivals that a report lacks, with the commands that install them."""
    lines = []
    for benchmark in dict.fromkeys(record.benchmark for record in report.records):
        rivals = RIVALS.get(benchmark, {})
        missing = [x for x in rivals if report.circumstances.get(x) == "not installed"]
        if missing:
            extras = ",".join(dict.fromkeys(rivals[x] for x in missing))
            names = ", ".join(missing)
            lines.append(f"{benchmark}: not installed, so not beside: {names} "
                         f"(pip install '.[{extras}]')")  # fmt: skip
    return lines


@formerly(seed="rng")
def run(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    rounds: int | None = None,
    threads: int | None = None,
    rng: Rng = 0,
    progress: Callable[[Record], None] | None = None,
    save: Callable[[BenchReport], None] | None = None,
    unfinished: BenchReport | None = None,
    **chosen: Any,
) -> BenchReport:
    """BenchReport of the benchmarks of these names in `SUITE`; all of them unless named.

    Problems are drawn with `rng`. `progress` is called with every record as it is measured, and
    `save` with the report so far; what `unfinished`, such a report, has is not measured again. What
    else is chosen are fields of `Settings`.

    Raises
    ------
    InvalidInput
        `unfinished` is of a run with other settings, of another version or on another processor.
    """
    for name in names:
        if name not in SUITE:
            raise UnknownName.among("benchmark", name, SUITE)
    for option, number in (("rounds", rounds), ("threads", threads)):
        if number is not None:
            checked_integer(number, option)
    settings = Settings(quick, rounds, threads or available_threads(), drawn_seed(rng), **chosen)
    where = circumstances()  # before the load of the benchmarks themselves
    asked = {**asdict(settings), "names": [*names], "processor": where["processor"]}
    asked = json.loads(json.dumps({**asked, "mdsd_opt": where["mdsd_opt"]}, default=str))
    if unfinished is not None:
        _require_same(asked, unfinished.settings)
        settings = replace(settings, kept=unfinished.records)
        where = dict(unfinished.circumstances)
    records: list[Record] = []

    def report(finished: bool) -> BenchReport:
        return BenchReport(tuple(compared(records)), where, asked, finished)

    for name in names or SUITE:
        if settings.kept and name != "solvers" and settings.kept[-1].benchmark != name:
            known = [record for record in settings.kept if record.benchmark == name]
            records += known
            if known:
                continue
        module = importlib.import_module(f"mdsd_opt.bench.{name}")
        for record in module.records(settings):
            records.append(record)
            if record not in settings.kept:
                if progress is not None:
                    progress(record)
                if save is not None:
                    save(report(finished=False))
    return report(finished=True)


def _require_same(asked: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    other = [name for name in asked if asked[name] != before.get(name)]
    if other:
        told = ", ".join(f"{name} {before.get(name)!r}, now {asked[name]!r}" for name in other)
        raise InvalidInput(
            f"the unfinished run was made with other settings ({told}): take its own, write to "
            "another file, or delete it"
        )
