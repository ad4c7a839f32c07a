"""How large a transport problem each method solves: seconds, memory, proven gap.

Every case runs in a process of its own, so that the peak memory is that of the case. Target logits
are 2.5 N(0, 1), the draft's are the target's plus N(0, 1), each draft model of `independent` its
own. Seconds are the median of the repeats, listing the draft sets included.

    python benchmarks/solver_reach.py [--quick] [--method full_lp] [--repeats 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.versions import versions

#: (method, options, scheme, V, K)
CASES: list[tuple[str, dict[str, Any], str, int, int]] = [
    ("subset_selection", {}, "with_replacement", 262_144, 8),
    ("subset_selection", {}, "without_replacement", 262_144, 2),
    ("subset_selection", {}, "without_replacement", 262_144, 8),
    ("full_lp", {}, "with_replacement", 500, 2),
    ("full_lp", {"formulation": "supports"}, "with_replacement", 500, 2),
    ("full_lp", {"formulation": "tuples"}, "with_replacement", 200, 2),
    ("full_lp", {"backend": "cvxpy"}, "with_replacement", 200, 2),
    ("full_lp", {}, "with_replacement", 1000, 2),
    ("full_lp", {}, "with_replacement", 2000, 2),
    ("full_lp", {}, "with_replacement", 60, 3),
    ("full_lp", {"algorithm": "ipm"}, "with_replacement", 60, 3),
    ("full_lp", {}, "with_replacement", 100, 3),
    ("full_lp", {}, "independent", 60, 3),
    ("full_lp", {}, "with_replacement", 40, 4),
    ("dual_lp", {}, "with_replacement", 100, 3),
    ("truncated_lp", {}, "with_replacement", 131_072, 2),
    ("truncated_lp", {"size": 100, "rule": "ratio"}, "with_replacement", 131_072, 2),
    ("max_flow", {}, "with_replacement", 1000, 2),
    ("max_flow", {}, "with_replacement", 2000, 2),
    ("max_flow", {}, "with_replacement", 4000, 2),
    ("max_flow", {}, "with_replacement", 8000, 2),
    ("max_flow", {}, "without_replacement", 4000, 2),
    ("max_flow", {}, "independent", 4000, 2),
    ("max_flow", {}, "with_replacement", 100, 3),
    ("max_flow", {}, "with_replacement", 300, 3),
    ("max_flow", {}, "with_replacement", 500, 3),
    ("max_flow", {}, "without_replacement", 300, 3),
    ("max_flow", {}, "independent", 300, 3),
    ("max_flow", {}, "with_replacement", 40, 4),
    ("max_flow", {}, "with_replacement", 100, 4),
    ("max_flow", {}, "with_replacement", 140, 4),
    ("max_flow", {}, "without_replacement", 100, 4),
    ("max_flow", {}, "with_replacement", 40, 5),
    ("max_flow", {}, "with_replacement", 30, 6),
]
QUICK_SECONDS = 3.0


def build(scheme: str, vocab_size: int, num_drafts: int, seed: int) -> mo.TransportProblem:
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal(vocab_size)
    if scheme == "independent":
        models = [mo.softmax(logits + rng.standard_normal(vocab_size)) for _ in range(num_drafts)]
        return mo.TransportProblem(mo.softmax(logits), mo.IndependentDrafts(models))
    draft_logits = logits + rng.standard_normal(vocab_size)
    return mo.TransportProblem.from_logits(logits, draft_logits, num_drafts, drafts=scheme)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(
    method: str,
    options: dict[str, Any],
    scheme: str,
    vocab_size: int,
    num_drafts: int,
    seed: int,
    repeats: int,
) -> dict[str, Any]:
    problem = build(scheme, vocab_size, num_drafts, seed)
    warm = {name: value for name, value in options.items() if name != "size"}
    mo.solve(build(scheme, 8, num_drafts, seed), method, **warm)  # load compiled kernels, solvers
    before = peak_megabytes()
    seconds, solution = [], None
    for _ in range(repeats):
        solution = None  # or two plans would be counted
        solution = mo.solve(problem, method, **options)
        seconds.append(solution.solve_seconds)
        if seconds[-1] > 20:
            break
    assert solution is not None
    peak = peak_megabytes()
    start = time.perf_counter()
    certificate = mo.certify(problem, solution)
    sizes = ("num_variables", "arcs", "variables", "prefixes")
    return {
        "method": method,
        "options": options,
        "scheme": scheme,
        "vocab_size": vocab_size,
        "num_drafts": num_drafts,
        "seed": seed,
        "size": next(solution.stats[name] for name in sizes if name in solution.stats),
        "stats": {k: v for k, v in solution.stats.items() if isinstance(v, (int, float, str))},
        "status": str(solution.status),
        "acceptance_rate": solution.acceptance_rate,
        "seconds": statistics.median(seconds),
        "seconds_range": [min(seconds), max(seconds)],
        "certify_seconds": time.perf_counter() - start,
        "peak_megabytes": peak,
        "megabytes_before": before,
        "claimed_gap": solution.upper_bound - solution.lower_bound,
        "certificate_gap": certificate.gap,
        "certificate_valid": certificate.valid,
    }


def in_own_process(case: tuple[Any, ...], seed: int, repeats: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", json.dumps([*case, seed, repeats])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def circumstances() -> dict[str, Any]:
    cpu = platform.processor() or "unknown CPU"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {"cpu": cpu, "load_average": os.getloadavg()[0], "threads": 1, **versions()}


HEADER = (
    f"{'method':<38}{'drafts':<21}{'V':>8}{'K':>3}{'size':>12}{'seconds':>10}{'(range)':>16}"
    f"{'peak MB':>9}{'gap':>9}  {'valid':<6}status"
)


def row(r: dict[str, Any]) -> str:
    low, high = r["seconds_range"]
    options = ", ".join(f"{name}={value}" for name, value in r["options"].items())
    method = f"{r['method']} {options}" if options else r["method"]
    return (
        f"{method:<38}{r['scheme']:<21}{r['vocab_size']:>8,}{r['num_drafts']:>3}{r['size']:>12,}"
        f"{r['seconds']:>10.3f}{f'{low:.3f}-{high:.3f}':>16}{r['peak_megabytes']:>9.0f}"
        f"{r['certificate_gap']:>9.1e}  {r['certificate_valid']!s:<6}{r['status']}"
    )


def too_long(case: tuple[Any, ...], rows: list[dict[str, Any]]) -> bool:
    """Whether the same method took seconds on this scheme at this K already, at a smaller V."""
    return any(
        (r["method"], r["scheme"], r["num_drafts"]) == (case[0], case[2], case[4])
        and r["seconds"] > QUICK_SECONDS
        for r in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="skip sizes that take many seconds")
    parser.add_argument("--method", help="only this method")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write rows and circumstances to this file")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(*json.loads(options.case))))
        return

    where = circumstances()
    print(", ".join(f"{k} {where[k]}" for k in ("cpu", "cpus", "load_average", "threads")))
    print(
        ", ".join(
            f"{k} {where[k]}" for k in ("python", "numpy", "numba", "highspy", "cvxpy", "mdsd_opt")
        )
    )
    print(f"seed {options.seed}, {options.repeats} repeats\n\n{HEADER}")
    rows = []
    for case in CASES:
        if options.method and case[0] != options.method:
            continue
        if options.quick and rows and too_long(case, rows):
            continue
        rows.append(in_own_process(case, options.seed, options.repeats))
        print(row(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"circumstances": where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
