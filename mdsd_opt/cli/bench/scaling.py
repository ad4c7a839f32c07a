"""How time grows with the vocabulary: exponents fitted to what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdsd_opt.cli.bench.record import Record


@dataclass(frozen=True, slots=True)
class Scaling:
    """Time proportional to V^exponent, by least squares in logarithms.

    Attributes
    ----------
    benchmark, route, problem : str
    num_drafts, threads : int
    exponent : float
    smallest, largest : int
        Range of V of the fit.
    num_sizes : int
    """

    benchmark: str
    route: str
    problem: str
    num_drafts: int
    threads: int
    exponent: float
    smallest: int
    largest: int
    num_sizes: int


def scaling(records: Sequence[Record]) -> list[Scaling]:
    """Exponents of every route that was timed at two sizes or more, of a factor of 2 at least."""
    times: dict[tuple[str, str, str, int, str, int], dict[int, float]] = {}
    for record in records:
        if record.median_ms is not None and record.median_ms > 0.0:
            key = (
                record.benchmark, record.route, record.problem, record.num_drafts, record.dtype,
                record.threads,
            )  # fmt: skip
            times.setdefault(key, {})[record.vocab_size] = record.median_ms
    found = []
    for (benchmark, route, problem, num_drafts, _, threads), by_size in times.items():
        sizes = sorted(by_size)
        if sizes[-1] < 2 * sizes[0]:
            continue
        logs = np.log([by_size[size] for size in sizes])
        exponent = float(np.polyfit(np.log(sizes), logs, 1)[0])
        found.append(
            Scaling(
                benchmark,
                route,
                problem,
                num_drafts,
                threads,
                exponent,
                sizes[0],
                sizes[-1],
                len(sizes),
            )
        )
    return found
