"""How far exact double description reaches: seconds and sizes of cones and polytopes.

Every case runs in a child process with a deadline; seconds include the start of the process and are
the median of the repeats. A case that runs out of time is a line of the table, not an omission.

    python benchmarks/double_description.py [--quick] [--timeout 60] [--only TEXT] [--json FILE]
    python benchmarks/double_description.py --floating-point      # wrong vertex counts of cdd
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from math import factorial
from pathlib import Path
from typing import Any

from mdsd_opt.cddlib_checks import cones, engines, prefixes
from mdsd_opt.cddlib_checks.child import OutOfBudget, run_in_child
from mdsd_opt.cddlib_checks.condition import acceptance_polytope, subset_inequalities
from mdsd_opt.cddlib_checks.draft_laws import battery, drafts_for
from mdsd_opt.cddlib_checks.rows import without_last_token
from mdsd_opt.cddlib_checks.subsets import containment_table
from mdsd_opt.versions import versions

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
            return {"seconds": None, "verdict": str(end), "sizes": {}}
        seconds.append(time.perf_counter() - start)
        if seconds[-1] > 10:
            break
    holds = found.describes_cone if isinstance(found, cones.ConeFinding) else found.holds
    return {
        "seconds": statistics.median(seconds),
        "spread": max(seconds) - min(seconds),
        "verdict": "holds" if holds else "REFUTED",
        "sizes": dict(found.sizes),
    }


def floating_point_vertices(rows: list[tuple[int, ...]]) -> int:
    """Vertices the floating-point variant of cddlib finds: for this comparison only."""
    import cdd

    matrix = cdd.matrix_from_array([[float(x) for x in row] for row in rows],
                                   rep_type=cdd.RepType.INEQUALITY)  # fmt: skip
    found = cdd.copy_generators(cdd.polyhedron_from_matrix(matrix))
    return sum(row[0] == 1 for row in found.array)


def compare_floating_point(trials: int) -> None:
    rng = random.Random(0)
    for v, k in ((4, 3), (5, 3), (6, 3)):
        wrong = failed = 0
        for _ in range(trials):
            weights = [rng.randint(1, 30) for _ in range(v)]
            q = [Fraction(w, sum(weights)) for w in weights]
            table = containment_table(
                drafts_for("with_replacement", v, k, q).exact_support_law(), v
            )
            claimed = subset_inequalities(table, v)
            rows = sorted(without_last_token(x.bound, x.coefficients) for x in claimed)
            scaled = [tuple(Fraction(x, max(map(abs, row))) for x in row) for row in rows]
            try:
                count = floating_point_vertices(scaled)
            except RuntimeError:  # cddlib noticed a numerical inconsistency
                failed += 1
                continue
            wrong += count != factorial(v)
        print(f"floating-point cdd, V = {v}, K = {k}: of {trials} q, {wrong} wrong vertex counts, "
              f"{failed} errors")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="at most 5 s a case, no repeats")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose title holds this text")
    parser.add_argument("--floating-point", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.floating_point:
        compare_floating_point(20 if options.quick else 100)
        return
    timeout, repeats = (5.0, 1) if options.quick else (options.timeout, options.repeats)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}; "
          f"deadline {timeout:g} s, {repeats} repeats")  # fmt: skip
    rows = []
    for title, job, arguments in cases():
        if options.only not in title:
            continue
        row = {"case": title, **measure(job, arguments, timeout, repeats)}
        rows.append(row)
        took = "-" if row["seconds"] is None else f"{row['seconds']:.2f} s"
        sizes = ", ".join(f"{key.replace('_', ' ')} {x}" for key, x in row["sizes"].items())
        print(f"{title:<48} {took:>9}  {row['verdict']:<28} {sizes}", flush=True)
    if options.json:
        document = {"versions": versions(), "timeout": timeout, "rows": rows}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
