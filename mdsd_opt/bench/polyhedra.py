"""Reach of exact double description: seconds and sizes of cones and polytopes.

Every case runs in a child process with a deadline, by each engine that is installed; seconds
include the start of the process and are the median of the repeats. A case that runs out of time is
a line of the table, not an omission.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mdsd_opt.bench.record import Record, Settings
from mdsd_opt.cddlib_checks import (
    WITNESSES,
    OutOfBudget,
    acceptance_polytope,
    available,
    battery,
    cones,
    drafts_for,
    prefixes,
    provers,
    run_in_child,
    run_with,
)

#: Name of the route for cases that each engine takes.
_BY_ENGINES = "double description"

#: Checks that Normaliz takes, too.
_CONES = (cones.acceptance_cone, cones.hypograph_cone)


class Case(NamedTuple):
    """A check of one size; 0 drafts if it has none."""

    problem: str
    vocab_size: int
    num_drafts: int
    check: Callable[..., Any]
    arguments: dict[str, Any]
    route: str = _BY_ENGINES


def cases() -> list[Case]:
    """All checks that are timed, by kind and size."""
    listed: list[Case] = []
    for cone, of_cone, beyond in (
        ("acceptance", cones.acceptance_cone, ((10, 10), (10, 2), (12, 2))),
        ("hypograph", cones.hypograph_cone, ((10, 2),)),
    ):
        for v, largest in (*((n, n) for n in range(5, 10)), *beyond):
            arguments = {"vocab_size": v, "sizes": list(range(1, largest + 1))}
            listed.append(Case(f"{cone} cone, sets of 1 to {largest}", v, 0, of_cone, arguments))
    for scheme in ("with_replacement", "without_replacement", "independent"):
        for v, k in ((5, 3), (6, 4), (7, 3), (8, 3)):
            arguments = {"drafts": drafts_for(scheme, v, k)}
            listed.append(Case(f"polytope, {scheme}", v, k, acceptance_polytope, arguments))
    for v, k in ((4, 3), (5, 3), (6, 3), (6, 4)):
        arguments = {"drafts": drafts_for("with_replacement", v, k)}
        listed.append(Case("projection", v, k, provers.projection, arguments))
    for v, k in ((4, 3), (5, 3), (6, 3)):
        arguments = {"schemes": [drafts_for("with_replacement", v, k)]}
        check = prefixes.prefix_programmes
        listed.append(Case("prefix programmes", v, k, check, arguments, "vertex enumeration"))
    for v, k in ((6, 4), (8, 4)):
        arguments = {"schemes": battery("with_replacement", v, k)}
        listed.append(Case("slopes, five q", v, k, prefixes.q_convexity, arguments))
    return listed


def records(settings: Settings) -> Iterator[Record]:
    """Records of every case with a deadline of 90 s; quick runs take the smallest, with 20 s."""
    timeout, repeats = 20.0 if settings.quick else 90.0, settings.rounds or 3
    engines = [engine for engine in WITNESSES if available(engine)]
    for case in cases()[: 1 if settings.quick else None]:
        by_engines = case.route == _BY_ENGINES
        also = ["normaliz"] if case.check in _CONES and available("normaliz") else []
        for engine in [*engines[: None if by_engines else 1], *also]:
            milliseconds, note = _measured(case, engine, timeout, repeats)
            yield Record.timed(
                milliseconds, benchmark="polyhedra",
                route=f"{case.route}, {engine}" if by_engines else case.route,
                problem=case.problem, vocab_size=case.vocab_size, num_drafts=case.num_drafts,
                dtype="Fraction", seed=0, gap=0.0 if milliseconds else None, gap_kind="exact",
                note=note,
            )  # fmt: skip


def _measured(case: Case, engine: str, timeout: float, repeats: int) -> tuple[list[float], str]:
    """Milliseconds of one case by one engine, with its verdict and sizes in words."""
    milliseconds: list[float] = []
    arguments = {"engine": engine, "job": case.check, "arguments": case.arguments}
    while len(milliseconds) < repeats and max(milliseconds, default=0.0) <= 10_000:
        start = time.perf_counter()
        try:
            result = run_in_child(run_with, arguments, timeout=timeout, memory=8 * 2**30)
        except OutOfBudget as end:
            return [], str(end)
        milliseconds.append(1e3 * (time.perf_counter() - start))
    holds = result.describes_cone if isinstance(result, cones.ConeFinding) else result.holds
    sizes = (f"{name.replace('_', ' ')} {x}" for name, x in result.sizes.items())
    return milliseconds, ", ".join(["holds" if holds else "REFUTED", *sizes])
