"""How far exact double description reaches: seconds and sizes of cones and polytopes.

Every case runs in a child process with a deadline; seconds include the start of the process and are
the median of the repeats. A case that runs out of time is a line of the table, not an omission.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mdsd_opt.bench.record import Record
from mdsd_opt.cddlib_checks import cones, engines, prefixes
from mdsd_opt.cddlib_checks.child import OutOfBudget, run_in_child
from mdsd_opt.cddlib_checks.condition import acceptance_polytope
from mdsd_opt.cddlib_checks.draft_laws import battery, drafts_for

if TYPE_CHECKING:
    from mdsd_opt.bench.suite import Settings

Job = Callable[..., Any]


def cases() -> list[tuple[str, Job, dict[str, Any]]]:
    listed: list[tuple[str, Job, dict[str, Any]]] = []
    for v, largest in ((5, 5), (6, 6), (7, 4), (7, 7), (8, 4), (8, 8), (10, 2), (12, 2)):
        sizes = list(range(1, largest + 1))
        listed.append((f"acceptance cone, V = {v}, sets of 1 to {largest}", cones.acceptance_cone,
                       {"vocab_size": v, "sizes": sizes}))  # fmt: skip
    for v, largest in ((5, 5), (6, 6), (7, 4), (7, 7), (10, 2)):
        sizes = list(range(1, largest + 1))
        listed.append((f"hypograph cone, V = {v}, sets of 1 to {largest}", cones.hypograph_cone,
                       {"vocab_size": v, "sizes": sizes}))  # fmt: skip
    for scheme in ("with_replacement", "without_replacement", "independent"):
        for v, k in ((5, 3), (6, 4), (7, 3), (8, 3)):
            listed.append((f"polytope {scheme.replace('_', ' ')}, V = {v}, K = {k}",
                           acceptance_polytope, {"drafts": drafts_for(scheme, v, k)}))  # fmt: skip
    for v, k in ((3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 3)):
        listed.append((f"projection, V = {v}, K = {k}", engines.projection,
                       {"drafts": drafts_for("with_replacement", v, k)}))  # fmt: skip
    for v, k in ((4, 3), (5, 3), (6, 3)):
        listed.append((f"prefix programmes, V = {v}, K = {k}", prefixes.prefix_programmes,
                       {"schemes": [drafts_for("with_replacement", v, k)]}))  # fmt: skip
    for v, k in ((6, 4), (8, 4)):
        listed.append((f"slopes, five q, V = {v}, K = {k}", prefixes.q_convexity,
                       {"schemes": battery("with_replacement", v, k)}))  # fmt: skip
    return listed


def measure(job: Job, arguments: dict[str, Any], timeout: float, repeats: int) -> dict[str, Any]:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        try:
            found = run_in_child(job, arguments, timeout=timeout, memory=8 * 2**30)
        except OutOfBudget as end:
            return {"median_ms": None, "p90_ms": None, "verdict": str(end), "sizes": {}}
        seconds.append(time.perf_counter() - start)
        if seconds[-1] > 10:
            break
    holds = found.describes_cone if isinstance(found, cones.ConeFinding) else found.holds
    return {
        "median_ms": 1e3 * statistics.median(seconds),
        "p90_ms": 1e3 * sorted(seconds)[int(0.9 * (len(seconds) - 1) + 0.5)],
        "verdict": "holds" if holds else "REFUTED",
        "sizes": dict(found.sizes),
    }


def records(settings: Settings) -> Iterator[Record]:
    """Every case with a deadline of a minute; quick runs take the smallest, with 20 s."""
    timeout, repeats = (20.0, 1) if settings.quick else (60.0, settings.rounds or 3)
    for title, job, arguments in cases()[: 1 if settings.quick else None]:
        found = measure(job, arguments, timeout, repeats)
        sizes = ", ".join(f"{name.replace('_', ' ')} {x}" for name, x in found["sizes"].items())
        size, num_drafts = _dimensions(title)
        yield Record(
            benchmark="polyhedra",
            route="double description" if "programmes" not in title else "vertex enumeration",
            problem=title,
            vocab_size=size,
            num_drafts=num_drafts,
            dtype="Fraction",
            threads=1,
            seed=0,
            rounds=repeats,
            median_ms=found["median_ms"],
            p90_ms=found["p90_ms"],
            gap=None if found["median_ms"] is None else 0.0,
            gap_kind="exact",
            note=f"{found['verdict']}{', ' if sizes else ''}{sizes}",
        )


def _dimensions(title: str) -> tuple[int, int]:
    """V and K of a title; 0 drafts where it speaks of none."""
    numbers = {name: int(value) for name, value in re.findall(r"([VK]) = (\d+)", title)}
    return numbers["V"], numbers.get("K", 0)
