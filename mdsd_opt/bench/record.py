"""Measurements: how they are made, records with their circumstances, reports, fits to V."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.frames import as_csv, data_frame
from mdsd_opt.base.installed import versions
from mdsd_opt.errors import SolverError, UnreadableFile


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the measurements."""

    quick: bool = False  # small sizes and few rounds: seconds instead of minutes
    rounds: int | None = None  # each benchmark has its own number unless given
    threads: int = 1
    seed: int = 0
    vocab_sizes: tuple[int, ...] = ()  # of `solvers`, as what follows, all usual ones if empty
    num_drafts: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    scheme: str = "with_replacement"
    backend: str | None = None
    problems: Path | None = None  # folder of files in place of random logits
    time_limit: float | None = None  # seconds of a solution
    verifiers: tuple[str, ...] = ()  # of `decisions`, beside the usual ones


def timed(routes: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, NDArray[np.float64]]:
    """Seconds of every route in every round, interleaved, each round in another order.

    A first round compiles and touches memory, and does not count.
    """
    for route in routes.values():
        route()
    names = list(routes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        start_with = i % len(names)
        for name in names[start_with:] + names[:start_with]:
            start = time.perf_counter()
            routes[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def in_own_process(module: str, case: list[Any], timeout: float | None = None) -> dict[str, Any]:
    """Output of ``python -m module`` for a case, both as JSON; without times if it was killed."""
    command = [sys.executable, "-m", module, json.dumps(case)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        note = f"did not finish within {timeout:.0f} s"
        return {"milliseconds": [], "gap": None, "note": note, "setup": None}
    if done.returncode:
        raise SolverError(f"the benchmark of {case} failed: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


#: Gap up to which a problem counts as solved.
CLOSED = 1e-6


@dataclass(frozen=True, slots=True)
class Record:
    """Measurement of one route on one problem."""

    benchmark: str
    route: str  # what was timed
    problem: str  # what on, but for its size
    vocab_size: int
    num_drafts: int
    dtype: str
    threads: int
    seed: int
    rounds: int
    median_ms: float | None  # over the rounds; None where it did not finish
    p90_ms: float | None
    against: str | None = None  # the route that it is faster than, in the same run
    times_faster: float | None = None
    gap: float | None = None  # how far the answer may be from the truth
    gap_kind: str = ""  # "certificate", "error", "certified loss"
    note: str = ""  # status, sizes
    setup_ms: float | None = None  # stating the problem, which the other times leave out

    @classmethod
    def timed(
        cls,
        milliseconds: Sequence[float],
        against: str | None = None,
        rival_ms: float | None = None,
        **known: Any,
    ) -> Record:
        """Record from the time of every round, and the median of the route `against`, if any.

        Unless it is known otherwise, one thread has computed in float64.
        """
        known = {"dtype": "float64", "threads": 1, **known}
        if not len(milliseconds):
            return cls(rounds=0, median_ms=None, p90_ms=None, **known)
        median = float(np.median(milliseconds))
        return cls(
            rounds=len(milliseconds),
            median_ms=median,
            p90_ms=float(np.quantile(milliseconds, 0.9)),
            against=None if rival_ms is None else against,
            times_faster=None if rival_ms is None else rival_ms / median,
            **known,
        )

    @property
    def solved(self) -> bool:
        """Whether it finished, with an answer that is not known to be far from the truth."""
        return self.median_ms is not None and (self.gap or 0.0) <= CLOSED

    @property
    def place(self) -> tuple[Any, ...]:
        """What routes that are set beside each other have in common."""
        return self.problem, self.vocab_size, self.num_drafts, self.threads

    @property
    def key(self) -> tuple[Any, ...]:
        """Fields that identify the same measurement in another run."""
        return tuple(getattr(self, name) for name in _KEY)


_KEY = ("benchmark", "route", "problem", "vocab_size", "num_drafts", "dtype", "threads")


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Measurements of one run, and their circumstances."""

    records: tuple[Record, ...]
    circumstances: Mapping[str, Any]

    def as_json(self) -> str:
        """BenchReport as JSON: the circumstances once, then the measurements."""
        document = {
            "circumstances": dict(self.circumstances),
            "records": [asdict(record) for record in self.records],
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def as_csv(self) -> str:
        """BenchReport as CSV: one line per measurement, the circumstances in every line."""
        return as_csv([{**asdict(record), **self.circumstances} for record in self.records])

    def to_pandas(self) -> Any:
        """Data frame with a line for each measurement; `MissingExtra` without pandas."""
        return data_frame([asdict(record) for record in self.records])


def load_report(path: Path) -> BenchReport:
    """BenchReport that was saved as JSON."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        records = tuple(Record(**record) for record in document["records"])
        circumstances = dict(document["circumstances"])
    except FileNotFoundError:
        raise UnreadableFile(f"{path} does not exist") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFile(
            f"{path} is no report of mdsd-opt bench --out FILE.json: {error}"
        ) from None
    return BenchReport(records, circumstances)


def circumstances() -> dict[str, Any]:
    """Machine, load and versions."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"processor": _processor(), "load_average": load, **versions()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


#: Milliseconds that are added before, and taken off after a geometric mean of times.
SHIFT = 10.0


def geometric_means(records: Sequence[Record]) -> dict[str, tuple[int, int, float | None]]:
    """Problems solved, all problems, and the shifted geometric mean of the times, by route.

    Solved is what finished and whose certificate leaves nothing open. The mean is over what every
    route of two or more problems has solved, so that all are compared on the same problems; None if
    there are none.
    """
    times: dict[str, dict[tuple[Any, ...], float | None]] = {}
    for record in records:
        times.setdefault(record.route, {})[record.place] = (
            record.median_ms if record.solved else None
        )
    times = {route: by_place for route, by_place in times.items() if len(by_place) > 1}
    solved = [{p for p, ms in x.items() if ms is not None} for x in times.values()]
    common = set.intersection(*solved) if solved else set()
    means = {}
    for route, by_place in times.items():
        logs = [np.log(ms + SHIFT) for p in common if (ms := by_place[p]) is not None]
        mean = float(np.exp(np.mean(logs)) - SHIFT) if logs else None
        means[route] = sum(ms is not None for ms in by_place.values()), len(by_place), mean
    return means


def performance_profile(records: Sequence[Record]) -> tuple[int, dict[str, list[float]]]:
    """Number of problems, and by route the times against the quickest, in rising order.

    Problems are those that all routes were tried on, and one has solved; a route has a time for
    every one that it has solved. The share of all for which that is at most a factor is its
    performance profile [DolanMore02].
    """
    tried: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for record in records:
        tried.setdefault(record.place, {})[record.route] = (
            record.median_ms if record.solved else None
        )
    ratios: dict[str, list[float]] = {record.route: [] for record in records}
    times = [
        {route: milliseconds for route, milliseconds in by_route.items() if milliseconds}
        for by_route in tried.values()
        if len(by_route) == len(ratios) and any(by_route.values())
    ]
    for by_route in times:
        quickest = min(by_route.values())
        for route, milliseconds in by_route.items():
            ratios[route].append(milliseconds / quickest)
    return len(times), {route: sorted(values) for route, values in ratios.items()}


def load_warning(circumstances: Mapping[str, Any]) -> str | None:
    """Sentence on a load above the cores, by which times are too long; None if it was not."""
    load, cores = circumstances.get("load_average"), os.cpu_count() or 1
    if load is None or load <= cores:
        return None
    return (
        f"the load was {load:g} on {cores} cores when this began: others were waiting, and times "
        "are longer than on an idle machine"
    )


#: Changes by less than this factor are within the noise of a busy machine.
NOTABLE = 1.3


@dataclass(frozen=True, slots=True)
class Change:
    """One measurement in both runs.

    Where both have the same rival beside it, `times_slower` is how much it has lost against the
    rival, so that another machine or another load cancels; else it is the ratio of the times.
    """

    record: Record  # of the new run
    times_slower: float
    relative: bool  # to the rival
    worse_gap: bool  # the answer is further from the truth, by more than a factor of 10

    @property
    def is_regression(self) -> bool:
        """Whether the new run is notably slower, or less exact."""
        return self.times_slower > NOTABLE or self.worse_gap


def changes(old: BenchReport, new: BenchReport) -> list[Change]:
    """Changes between two runs, the worst first, without those that did not finish in either."""
    before = {record.key: record for record in old.records}
    differences = []
    for record in new.records:
        past = before.get(record.key)
        if past is None or not past.median_ms or not record.median_ms:
            continue
        relative = past.against == record.against and bool(past.times_faster)
        if relative and past.times_faster and record.times_faster:
            slower = past.times_faster / record.times_faster
        else:
            slower, relative = record.median_ms / past.median_ms, False
        worse = (record.gap or 0.0) > 10.0 * max(past.gap or 0.0, 1e-12)
        differences.append(Change(record, slower, relative, worse))
    return sorted(differences, key=lambda change: (not change.worse_gap, -change.times_slower))


@dataclass(frozen=True, slots=True)
class Scaling:
    """Time proportional to V^exponent, by least squares in logarithms."""

    record: Record  # one of those that it is fitted to
    exponent: float
    smallest: int  # of V in the fit
    largest: int
    num_sizes: int


def scaling(records: Sequence[Record]) -> list[Scaling]:
    """Exponents of every route that was timed at three sizes, of a factor of 2 at least."""
    timed: dict[tuple[Any, ...], dict[int, Record]] = {}
    for record in records:
        if record.median_ms:
            timed.setdefault(replace(record, vocab_size=0).key, {})[record.vocab_size] = record
    exponents = []
    for by_size in timed.values():
        sizes = sorted(by_size)
        if len(sizes) >= 3 and sizes[-1] >= 2 * sizes[0]:
            logs = np.log([by_size[size].median_ms or 0.0 for size in sizes])
            exponent = float(np.polyfit(np.log(sizes), logs, 1)[0])
            exponents.append(Scaling(by_size[sizes[0]], exponent, sizes[0], sizes[-1], len(sizes)))
    return exponents
