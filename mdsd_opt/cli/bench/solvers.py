"""Size of the transport problems that each method solves: seconds, memory, proven gap.

Every case runs in a process of its own, so that the peak memory is that of the case. Target logits
are 2.5 N(0, 1), the draft's are the target's plus N(0, 1), each draft model of `independent` its
own. Seconds are the median of the repeats, listing the draft sets included.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.cli.bench.record import Record, Settings, in_own_process
from mdsd_opt.drafts.by_name import has_many_models
from mdsd_opt.solvers.warm_up import warm_up

#: Cases as (method, options, scheme, V, K).
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

#: Cases that a quick run measures.
QUICK_CASES: list[tuple[str, dict[str, Any], str, int, int]] = [
    ("full_lp", {}, "with_replacement", 12, 2),
    ("dual_lp", {}, "with_replacement", 12, 2),
    ("max_flow", {}, "with_replacement", 12, 2),
    ("truncated_lp", {}, "with_replacement", 12, 2),
    ("subset_selection", {}, "with_replacement", 12, 2),
    ("subset_selection", {}, "with_replacement", 2048, 2),
]

#: Method that ratios are measured against, if it has solved the same problem.
_AGAINST = "full_lp"


def build(scheme: str, vocab_size: int, num_drafts: int, seed: int) -> mo.TransportProblem:
    """Problem of a case, of random logits."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal(vocab_size)
    if has_many_models(scheme):
        models = [mo.softmax(logits + rng.standard_normal(vocab_size)) for _ in range(num_drafts)]
        return mo.TransportProblem(mo.softmax(logits), mo.IndependentDrafts(models))
    draft_logits = logits + rng.standard_normal(vocab_size)
    return mo.TransportProblem.from_logits(logits, draft_logits, num_drafts, drafts=scheme)


def peak_megabytes() -> float:
    """Largest memory of this process so far; Unix only, 0 elsewhere."""
    try:
        import resource
    except ImportError:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def records(settings: Settings) -> Iterator[Record]:
    """Records of all cases in turn; a method that takes over 20 s is measured once."""
    cases = QUICK_CASES if settings.quick else CASES
    repeats = settings.rounds or (1 if settings.quick else 3)
    rivals: dict[tuple[str, int, int], float] = {}
    for method, options, scheme, vocab_size, num_drafts in cases:
        if options.get("backend") == "cvxpy" and find_spec("cvxpy") is None:
            continue  # as rivals are, it is measured where it is installed
        found = in_own_process(
            "mdsd_opt.cli.bench.solvers",
            [method, options, scheme, vocab_size, num_drafts, settings.seed, repeats],
        )
        place = (scheme, vocab_size, num_drafts)
        if method == _AGAINST and not options:
            rivals[place] = statistics.median(found["milliseconds"])
        told = ", ".join(f"{name}={value}" for name, value in options.items())
        yield Record.timed(
            found["milliseconds"], _AGAINST, rivals.get(place), benchmark="solvers",
            route=f"{method} {told}".rstrip(), problem=scheme, vocab_size=vocab_size,
            num_drafts=num_drafts, seed=settings.seed, gap=found["gap"], gap_kind="certificate",
            note=found["note"],
        )  # fmt: skip


def measure(
    method: str,
    options: dict[str, Any],
    scheme: str,
    vocab_size: int,
    num_drafts: int,
    seed: int,
    repeats: int,
) -> dict[str, Any]:
    """Time one case, in this process."""
    problem = build(scheme, vocab_size, num_drafts, seed)
    warm_up(problem, method, **{name: options[name] for name in options if name != "size"})
    milliseconds, solution = [], None
    for _ in range(repeats):
        solution = None  # or two plans would be counted
        solution = mo.solve(problem, method, **options)
        milliseconds.append(1e3 * solution.solve_seconds)
        if milliseconds[-1] > 20_000:
            break
    assert solution is not None
    peak = peak_megabytes()
    certificate = mo.certify(problem, solution)
    validity = "" if certificate.valid else ", CLAIMS VIOLATED"
    sizes = ("num_variables", "arcs", "variables", "prefixes")
    size = next(solution.stats[name] for name in sizes if name in solution.stats)
    return {
        "milliseconds": milliseconds,
        "gap": certificate.gap,
        "note": f"{solution.status}, size {size:,}, peak {peak:.0f} MB{validity}",
    }


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
