"""Measurements: what is asked for, how they are made, and the record of each."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import InvalidInput, SolverError


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
