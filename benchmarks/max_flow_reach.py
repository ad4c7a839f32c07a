"""How large a transport problem the integer maximum flow solves: seconds, memory, proven gap.

Every case runs in a process of its own, so that the peak memory is that of the case. Target logits
are 2.5 N(0, 1), the draft's are the target's plus N(0, 1), each draft model of `independent` its
own. Seconds are the median of the repeats, listing the draft sets included.

    python benchmarks/max_flow_reach.py [--quick] [--repeats 3] [--json FILE]
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
from mdsd_opt.solvers import max_flow
from mdsd_opt.versions import versions

CASES = [
    ("with_replacement", 1000, 2),
    ("with_replacement", 2000, 2),
    ("with_replacement", 4000, 2),
    ("with_replacement", 8000, 2),
    ("without_replacement", 4000, 2),
    ("independent", 4000, 2),
    ("with_replacement", 100, 3),
    ("with_replacement", 200, 3),
    ("with_replacement", 300, 3),
    ("with_replacement", 500, 3),
    ("without_replacement", 300, 3),
    ("independent", 300, 3),
    ("with_replacement", 50, 4),
    ("with_replacement", 100, 4),
    ("with_replacement", 140, 4),
    ("without_replacement", 100, 4),
    ("independent", 100, 4),
    ("with_replacement", 40, 5),
    ("with_replacement", 30, 6),
]
QUICK_ARCS = 2_000_000


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
    scheme: str, vocab_size: int, num_drafts: int, seed: int, repeats: int
) -> dict[str, Any]:
    problem = build(scheme, vocab_size, num_drafts, seed)
    max_flow.solve(build(scheme, 30, num_drafts, seed))  # load the compiled kernels
    before = peak_megabytes()
    seconds, solution = [], None
    for _ in range(repeats):
        solution = None  # or two plans would be counted
        solution = max_flow.solve(problem)
        seconds.append(solution.solve_seconds)
    assert solution is not None
    peak = peak_megabytes()
    start = time.perf_counter()
    certificate = mo.certify(problem, solution)
    return {
        "scheme": scheme,
        "vocab_size": vocab_size,
        "num_drafts": num_drafts,
        "seed": seed,
        "arcs": solution.stats["arcs"],
        "supports": solution.stats["supports"],
        "phases": solution.stats["phases"],
        "status": str(solution.status),
        "acceptance_rate": solution.acceptance_rate,
        "seconds": statistics.median(seconds),
        "seconds_range": [min(seconds), max(seconds)],
        "listing_seconds": solution.stats["build_seconds"],
        "certify_seconds": time.perf_counter() - start,
        "peak_megabytes": peak,
        "megabytes_before": before,
        "claimed_gap": solution.upper_bound - solution.lower_bound,
        "certificate_gap": certificate.gap,
        "certificate_valid": certificate.valid,
    }


def in_own_process(case: tuple[str, int, int], seed: int, repeats: int) -> dict[str, Any]:
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
    f"{'scheme':<20}{'V':>6}{'K':>3}{'arcs':>12}{'phases':>7}{'seconds':>9}{'(range)':>15}"
    f"{'listing':>9}{'peak MB':>9}{'gap':>9}  valid"
)


def row(r: dict[str, Any]) -> str:
    low, high = r["seconds_range"]
    return (
        f"{r['scheme']:<20}{r['vocab_size']:>6}{r['num_drafts']:>3}{r['arcs']:>12,}"
        f"{r['phases']:>7}{r['seconds']:>9.3f}{f'{low:.3f}-{high:.3f}':>15}"
        f"{r['listing_seconds']:>9.3f}{r['peak_megabytes']:>9.0f}{r['certificate_gap']:>9.1e}"
        f"  {r['certificate_valid']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only cases of a few million arcs")
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
    print(", ".join(f"{k} {where[k]}" for k in ("python", "numpy", "numba", "mdsd_opt")))
    print(f"seed {options.seed}, {options.repeats} repeats\n\n{HEADER}")
    rows = []
    for case in CASES:
        arcs = build(*case, options.seed).drafts.count_supports()[1]
        if options.quick and arcs > QUICK_ARCS:
            continue
        rows.append(in_own_process(case, options.seed, options.repeats))
        print(row(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"circumstances": where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
