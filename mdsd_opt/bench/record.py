"""Measurements: what is asked for, how they are made, the record of each, and sums over them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.frames import Column, Result
from mdsd_opt.errors import InvalidInput, SolverError
from mdsd_opt.evidence import mean_interval


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the measurements.

    Attributes
    ----------
    quick : bool
        Small sizes, few rounds: 20 s; says what it left out.
    rounds : int, optional
        How often each route is timed; 3 at least if left out.
    threads : int
        For what can use threads; all by default.
    seed : int
        Of the problems.
    vocab_sizes : sequence of int
        Of solvers: sizes of the problems, as 1000,4000.
    num_drafts : sequence of int
        Of solvers: numbers of drafts, as 2,4.
    methods : sequence of str
        Of solvers: methods, names, or module:METHOD for one of your own, each with options, as
        'truncated_lp size=40 rule=ratio'.
    scheme : str
        Of solvers: draft scheme of the problems.
    backend : str, optional
        Of solvers: highs or cvxpy, where a method has one.
    problems : path, optional
        Of solvers: small, hard or real, or a folder with files of problems, in place of random
        logits.
    families : sequence of str
        Of solvers: random, peaked, ties, real, which are taken if left out, zeros, equal,
        one_token, tiny, far.
    instances : int, optional
        Of solvers: problems of each family and size, of seeds in a row; 5 by default.
    tolerance : float, optional
        Of solvers: certified gap up to which a problem is solved; 1e-6 by default.
    time_limit : float, optional
        Of solvers: seconds of one solution, at which a method is stopped; 60 by default.
    verifiers : sequence of str
        Of decisions: verifiers beside the usual ones, or module:VERIFIER for one of your own.
    kept : sequence of Record
        Records of a run that goes on.
    """

    quick: bool = False
    rounds: int | None = None
    threads: int = 1
    seed: int = 0
    vocab_sizes: tuple[int, ...] = ()
    num_drafts: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    scheme: str = "with_replacement"
    backend: str | None = None
    problems: Path | None = None
    families: tuple[str, ...] = ()
    instances: int | None = None
    tolerance: float | None = None
    time_limit: float | None = None
    kept: tuple[Record, ...] = ()
    verifiers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("time_limit", "tolerance", "instances"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InvalidInput(f"{name} is {value}: give a finite number above 0")


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


def in_own_process(module: str, case: list[Any]) -> dict[str, Any]:
    """Output of ``python -m module`` for a case, both as JSON."""
    command = [sys.executable, "-m", module, json.dumps(case)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SolverError(f"the benchmark of {case} failed: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


#: Gap up to which a problem counts as solved, unless another tolerance is given.
CLOSED = 1e-6


class Outcome(StrEnum):
    """What became of a solver on a problem, by its certificate."""

    SOLVED = "solved"
    BOUND = "bound"  # a method that promises no more has proved what it claims
    INEXACT = "inexact"  # what it claims holds, and leaves more open than the tolerance
    LIMIT = "limit"  # of time
    FALSE = "FALSE CLAIM"  # the certificate refutes it
    UNPROVED = "unproved"  # it claims what its evidence does not show, nor anything refute
    REFUSED = "refused"
    FAILED = "failed"


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
    against: str | None = None  # the route that ratios are to, in the same run
    times_faster: float | None = None
    gap: float | None = None  # how far the answer may be from the truth
    gap_kind: str = ""  # "certificate", "error", "certified loss"
    note: str = ""  # status, sizes
    setup_ms: float | None = None  # stating the problem, a part of the time
    instance: str = ""  # file, or place in a set, of a problem that no seed makes
    first_ms: float | None = None  # first call on the problem, where it is far above the others
    outcome: str = ""  # an `Outcome`, of solvers
    limit_ms: float | None = None  # time at which it counts where it was not solved
    form: str = ""  # what a method chooses itself and its time depends on

    @classmethod
    def timed(cls, milliseconds: Sequence[float], **known: Any) -> Record:
        """Record from the time of every round; on one thread, in float64, unless it is known."""
        known = {"dtype": "float64", "threads": 1, "rounds": len(milliseconds), **known}
        ends = [float(np.quantile(milliseconds, x)) if milliseconds else None for x in (0.5, 0.9)]
        return cls(median_ms=ends[0], p90_ms=ends[1], **known)

    @property
    def solved(self) -> bool:
        """Whether it finished, with an answer that is not known to be far from the truth."""
        if self.outcome:
            return self.outcome == Outcome.SOLVED
        return self.median_ms is not None and (self.gap or 0.0) <= CLOSED

    @property
    def finished(self) -> bool:
        """Whether it did what it promises, so that its time says what that takes."""
        return self.median_ms is not None and self.outcome in ("", Outcome.SOLVED, Outcome.BOUND)

    @property
    def counted_ms(self) -> float | None:
        """Time that counts: of the first call where it is far above the others."""
        return self.median_ms if self.first_ms is None else self.first_ms

    @property
    def place(self) -> tuple[Any, ...]:
        """What routes that are set beside each other have in common."""
        names = ("problem", "vocab_size", "num_drafts", "threads", "seed", "instance")
        return tuple(getattr(self, name) for name in names)

    @property
    def key(self) -> tuple[Any, ...]:
        """Fields that identify the same measurement in another run."""
        return tuple(getattr(self, name) for name in _KEY)


_KEY = (
    "benchmark", "route", "problem", "vocab_size", "num_drafts", "dtype", "threads", "instance",
    "seed",
)  # fmt: skip


# --- sums over records: means, performance profiles, growth with V and with K ---

#: Milliseconds that are added before, and taken off after a geometric mean of times.
SHIFT = 10.0


@dataclass(frozen=True, slots=True)
class Mean(Result):
    """Shifted geometric mean of a route's times, and how many problems it solved.

    What it did not solve counts at the limit of time (or the longest time of all, where there is
    none). The interval is over problems, by Student's t on the logarithms; there is none of fewer
    than two, nor where a time is a limit.
    """

    route: str
    records: tuple[Record, ...]
    solved: int
    milliseconds: float
    low: float | None
    high: float | None

    columns: ClassVar = ("route", "solved", "total", "milliseconds", "low", "high")

    @property
    def total(self) -> int:
        """How many problems there were."""
        return len(self.records)


def means(records: Sequence[Record]) -> list[Mean]:
    """Means of the routes over these records."""
    by_route: dict[str, list[Record]] = {}
    for record in records:
        by_route.setdefault(record.route, []).append(record)
    known = [ms for r in records for ms in (r.counted_ms, r.limit_ms) if ms is not None]
    longest = max(known, default=0.0)
    found = []
    for route, rows in by_route.items():
        times = [(r.counted_ms if r.solved else r.limit_ms) or longest for r in rows]
        solved = sum(record.solved for record in rows)
        x = mean_interval(np.log(np.array(times) + SHIFT))
        mean, low, high = (float(np.exp(end) - SHIFT) for end in (x.mean, x.low, x.high))
        ends = (max(low, 0.0), high) if solved == len(rows) > 1 else (None, None)
        found.append(Mean(route, tuple(rows), solved, mean, *ends))
    return found


def by_size(records: Iterable[Record]) -> dict[tuple[str, int, int], list[Record]]:
    """Records by kind of problem, K and V, in rising order of K and V."""
    groups: dict[tuple[str, int, int], list[Record]] = {}
    for record in records:
        key = record.problem, record.num_drafts, record.vocab_size
        groups.setdefault(key, []).append(record)
    kinds = list(dict.fromkeys(kind for kind, *_ in groups))
    return dict(sorted(groups.items(), key=lambda x: (kinds.index(x[0][0]), *x[0][1:])))


def of_all(records: Sequence[Record]) -> list[Record]:
    """Records of the problems that every route was tried on."""
    routes = {record.route for record in records}
    tried: dict[tuple[Any, ...], set[str]] = {}
    for record in records:
        tried.setdefault(record.place, set()).add(record.route)
    return [record for record in records if tried[record.place] == routes]


def performance_profile(records: Sequence[Record]) -> tuple[int, dict[str, list[float]]]:
    """Number of problems, and by route the times against the quickest, in rising order.

    Problems are those that all routes were tried on, and one has solved; a route has a time for
    every one that it has solved. The share of all for which that is at most a factor is its
    performance profile [DolanMore02].
    """
    times: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in of_all(records):
        if record.solved and record.counted_ms:
            times.setdefault(record.place, {})[record.route] = record.counted_ms
    ratios: dict[str, list[float]] = {record.route: [] for record in records}
    for by_route in times.values():
        quickest = min(by_route.values())
        for route, milliseconds in by_route.items():
            ratios[route].append(milliseconds / quickest)
    return len(times), {route: sorted(values) for route, values in ratios.items()}


@dataclass(frozen=True, slots=True)
class Scaling(Result):
    """Time proportional to V^exponent, or to factor^K, by least squares in logarithms."""

    record: Record  # one of those that it is fitted to
    axis: str  # "V" or "K"
    rate: float  # the exponent, or the factor
    low: float  # of its interval, by Student's t, over sizes and instances
    high: float
    smallest: int  # of V, or K, in the fit
    largest: int
    num_sizes: int

    columns: ClassVar = (
        Column("route", of="record.route"), Column("problem", of="record.problem"),
        Column("form", of="record.form"), "axis", "rate", "low", "high", "smallest", "largest",
        "num_sizes",
    )  # fmt: skip

    @property
    def shown(self) -> str:
        """Growth in words, as V^2.1 or 5.2^K."""
        return f"V^{self.rate:.2f}" if self.axis == "V" else f"{self.rate:.3g}^K"


def scaling(records: Sequence[Record]) -> list[Scaling]:
    """Growth of every route that finished all problems of three sizes or more.

    Sizes are V, over a factor of 2 at least, or K. What a method chooses for itself (`form`) is the
    same in all that one fit is made of.
    """
    return [fit for axis in ("vocab_size", "num_drafts") for fit in _fits(records, axis)]


def _fits(records: Sequence[Record], axis: str) -> Iterable[Scaling]:
    from scipy.stats import linregress, t

    groups: dict[tuple[Any, ...], dict[int, list[Record]]] = {}
    for record in records:
        fixed: dict[str, Any] = {axis: 0, "seed": 0, "instance": ""}
        by_value = groups.setdefault((*replace(record, **fixed).key, record.form), {})
        by_value.setdefault(getattr(record, axis), []).append(record)
    for by_value in groups.values():
        done = {n: rows for n, rows in by_value.items() if all(r.finished for r in rows)}
        least, most = min(done, default=0), max(done, default=0)
        if len(done) < 3 or (axis == "vocab_size" and most < 2 * least):
            continue
        points = [(n, r.counted_ms) for n, rows in done.items() for r in rows if r.counted_ms]
        sizes, times = np.array(points, dtype=float).T
        is_power = axis == "vocab_size"
        found = linregress(np.log(sizes) if is_power else sizes, np.log(times))
        half = float(t.ppf(0.975, sizes.size - 2) * found.stderr)
        ends = (float(found.slope + x) for x in (0.0, -half, half))
        rate, low, high = ends if is_power else map(math.exp, ends)
        letter, first = "V" if is_power else "K", done[least][0]
        yield Scaling(first, letter, rate, low, high, least, most, len(done))


def compared(records: Sequence[Record]) -> list[Record]:
    """Records with the ratio to the route that each is `against`, where both solved the problem."""
    times = {
        (r.benchmark, r.place, r.route): r.counted_ms
        for r in records
        if r.counted_ms and r.outcome in ("", Outcome.SOLVED)
    }
    found = []
    for record in records:
        own = times.get((record.benchmark, record.place, record.route))
        rival = times.get((record.benchmark, record.place, record.against or ""))
        ratio = rival / own if own and rival else None
        found.append(replace(record, against=record.against if ratio else None, times_faster=ratio))
    return found


class Profile(TypedDict):
    """Problems that all routes were tried on, and by route the times against the quickest."""

    problems: int
    times_of_quickest: dict[str, list[float]]


class Summary(TypedDict):
    """What sums measurements up."""

    shift_ms: float
    means: list[dict[str, str | int | float | None]]
    performance_profile: Profile
    growth: list[dict[str, str | int | float]]


def document(records: Sequence[Record]) -> Summary:
    """Means, profiles and growth, ready for JSON."""
    solving = [record for record in records if record.benchmark == "solvers"]
    total, ratios = performance_profile(solving)
    sizes = ("problem", "num_drafts", "vocab_size")
    return {
        "shift_ms": SHIFT,
        "means": [
            {**dict(zip(sizes, size, strict=True)), **mean.to_dict()}
            for size, rows in by_size(solving).items()
            for mean in means(rows)
        ],
        "performance_profile": {"problems": total, "times_of_quickest": ratios},
        "growth": [fit.to_dict() for fit in scaling(records)],
    }


#: Words for what was not solved, in the order in which they are told.
UNSOLVED = (
    Outcome.FALSE, Outcome.UNPROVED, Outcome.INEXACT, Outcome.BOUND, Outcome.LIMIT,
    Outcome.REFUSED, Outcome.FAILED,
)  # fmt: skip
