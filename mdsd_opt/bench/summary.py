"""Sums of measurements: means over problems, performance profiles, growth with V and with K."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mdsd_opt.bench.record import Outcome, Record
from mdsd_opt.evidence import mean_interval

#: Milliseconds that are added before, and taken off after a geometric mean of times.
SHIFT = 10.0


@dataclass(frozen=True, slots=True)
class Mean:
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
class Scaling:
    """Time proportional to V^exponent, or to factor^K, by least squares in logarithms."""

    record: Record  # one of those that it is fitted to
    axis: str  # "V" or "K"
    rate: float  # the exponent, or the factor
    low: float  # of its interval, by Student's t, over sizes and instances
    high: float
    smallest: int  # of V, or K, in the fit
    largest: int
    num_sizes: int

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


def document(records: Sequence[Record]) -> dict[str, Any]:
    """Means, profiles and growth, ready for JSON."""
    solving = [record for record in records if record.benchmark == "solvers"]
    total, ratios = performance_profile(solving)
    sizes = ("problem", "num_drafts", "vocab_size")
    told = ("route", "solved", "total", "milliseconds", "low", "high")
    return {
        "shift_ms": SHIFT,
        "means": [
            {**dict(zip(sizes, size, strict=True)), **{x: getattr(mean, x) for x in told}}
            for size, rows in by_size(solving).items()
            for mean in means(rows)
        ],
        "performance_profile": {"problems": total, "times_of_quickest": ratios},
        "growth": [
            {"route": fit.record.route, "problem": fit.record.problem, "form": fit.record.form}
            | {name: x for name, x in asdict(fit).items() if name != "record"}
            for fit in scaling(records)
        ],
    }


#: Words for what was not solved, in the order in which they are told.
UNSOLVED = (
    Outcome.FALSE, Outcome.UNPROVED, Outcome.INEXACT, Outcome.BOUND, Outcome.LIMIT,
    Outcome.REFUSED, Outcome.FAILED,
)  # fmt: skip
