"""Size of the transport problems that each method solves: seconds, memory, proven gap.

Every case runs in a process of its own, so that the peak memory is that of the case. Target logits
are 2.5 N(0, 1), the draft's are the target's plus N(0, 1), each draft model of `independent` its
own. Every case is solved once before a clock runs, so that what it loads and compiles lies on its
own path. Listing the draft sets and stating the programme (setup) is told apart from solving, where
a method says how long it took.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.sampling import softmax
from mdsd_opt.bench.problem_sets import SETS, problem_set
from mdsd_opt.bench.record import Record, Settings, in_own_process
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, IndependentDrafts, has_many_models
from mdsd_opt.errors import InvalidInput, MdsdError
from mdsd_opt.problem import TransportProblem, certify, load_problem
from mdsd_opt.solvers import METHODS, get, methods, solve

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


def build(scheme: str, vocab_size: int, num_drafts: int, seed: int) -> TransportProblem:
    """Problem of a case, of random logits."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal(vocab_size)
    if has_many_models(scheme):
        models = [softmax(logits + rng.standard_normal(vocab_size)) for _ in range(num_drafts)]
        return TransportProblem(softmax(logits), IndependentDrafts(models))
    draft_logits = logits + rng.standard_normal(vocab_size)
    return TransportProblem.from_logits(logits, draft_logits, num_drafts, drafts=scheme)


def peak_megabytes() -> float:
    """Largest memory of this process so far; Unix only, 0 elsewhere."""
    try:
        import resource
    except ImportError:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


#: Vocabulary sizes and numbers of drafts of cases that a user chooses by methods alone.
_SIZES, _COUNTS = (12, 100, 1000), (2,)

#: Seconds of a solution that is not timed again: what it loaded does not show.
_LONG = 20.0

#: Seconds beyond the limits of all rounds after which a case is killed: it starts, it certifies.
_GRACE = 60.0


def cases_of(settings: Settings) -> list[tuple[str, dict[str, Any], str, int, int]]:
    """Cases of a run: the usual ones, or the grid of what is asked for."""
    asked = (settings.vocab_sizes, settings.num_drafts, settings.methods, settings.problems)
    if not any(asked) and settings.backend is None:
        return QUICK_CASES if settings.quick else CASES
    names = settings.methods or tuple(methods())
    takes = {name: get(name).options for name in names}
    backend = settings.backend
    if backend and not any("backend" in options for options in takes.values()):
        raise InvalidInput(f"none of {', '.join(names)} has a backend: leave --backend out")
    options = {n: {"backend": backend} if backend and "backend" in takes[n] else {} for n in names}
    if str(settings.problems) in SETS:
        places = [
            (f"{_SET}{settings.problems}/{n}/{kind}", problem.vocab_size, problem.num_drafts)
            for n, (kind, build_one) in enumerate(problem_set(str(settings.problems)))
            for problem in [build_one()]
        ]
    elif settings.problems is not None:
        files = [x for x in sorted(settings.problems.iterdir()) if x.suffix in _PROBLEM_SUFFIXES]
        if not files:
            raise InvalidInput(
                f"{settings.problems} holds no problem: {', '.join(_PROBLEM_SUFFIXES)}"
            )
        places = [(str(x), p.vocab_size, p.num_drafts) for x in files for p in [load_problem(x)]]
    else:
        sizes, counts = settings.vocab_sizes or _SIZES, settings.num_drafts or _COUNTS
        places = [(settings.scheme, v, k) for v in sizes for k in counts]
    return [(name, options[name], *place) for place in places for name in names]


#: Before the name of a set, which a folder may have, too.
_SET = "set:"

_PROBLEM_SUFFIXES = (".json", ".npz", ".safetensors")


def records(settings: Settings) -> Iterator[Record]:
    """Records of all cases in turn; a method that takes over 20 s is measured once."""
    repeats = settings.rounds or 3
    rivals: dict[tuple[str, int, int], float] = {}
    for method, options, scheme, vocab_size, num_drafts in cases_of(settings):
        if options.get("backend") == "cvxpy" and find_spec("cvxpy") is None:
            continue  # as rivals are, it is measured where it is installed
        case: list[Any] = [method, options, scheme, vocab_size, num_drafts, settings.seed, repeats]
        if method in METHODS.registered or _is_registered(scheme):  # unknown to another process
            result = measure(*[*case, settings.time_limit])
        else:
            limit = settings.time_limit
            timeout = None if limit is None else (repeats + 1) * limit + _GRACE
            result = in_own_process("mdsd_opt.bench.solvers", [*case, limit], timeout)
        place = (scheme, vocab_size, num_drafts)
        if method == _AGAINST and not options and result["milliseconds"]:
            rivals[place] = statistics.median(result["milliseconds"])
        words = ", ".join(f"{name}={value}" for name, value in options.items())
        problem = Path(scheme).name if settings.problems is not None else scheme
        yield Record.timed(
            result["milliseconds"], _AGAINST, rivals.get(place), benchmark="solvers",
            route=f"{get(method).name} {words}".rstrip(), problem=problem, vocab_size=vocab_size,
            num_drafts=num_drafts, seed=settings.seed, gap=result["gap"],
            gap_kind="" if result["gap"] is None else "certificate", note=result["note"],
            setup_ms=result["setup"],
        )  # fmt: skip


def _is_registered(scheme: str) -> bool:
    """Whether a draft scheme was registered in this process."""
    return hasattr(SINGLE_MODEL_SCHEMES.get(scheme), "rule") and ":" not in scheme


def measure(
    method: str,
    options: dict[str, Any],
    scheme: str,
    vocab_size: int,
    num_drafts: int,
    seed: int,
    repeats: int,
    time_limit: float | None = None,
) -> dict[str, Any]:
    """Time one case, in this process; `scheme` may be the file of a problem, or one of a set."""
    if scheme.startswith(_SET):
        name, place, _ = scheme.removeprefix(_SET).split("/", 2)
        problem = problem_set(name)[int(place)][1]()
    elif Path(scheme).suffix in _PROBLEM_SUFFIXES:
        problem = load_problem(Path(scheme))
    else:
        problem = build(scheme, vocab_size, num_drafts, seed)
    known = get(method)
    limited = time_limit and "time_limit" in known.options
    limit: dict[str, Any] = {"time_limit": time_limit} if limited else {}
    try:
        solution = solve(problem, method, **options, **limit)
    except MdsdError as error:
        note = f"refused: {error}".partition(". ")[0]
        return {"milliseconds": [], "gap": None, "note": note, "setup": None}
    milliseconds: list[float] = []
    setup: list[float] = []
    first = solution
    while len(milliseconds) < repeats:
        if first.solve_seconds <= _LONG or milliseconds:
            del solution  # or two plans would be counted
            solution = solve(problem, method, **options, **limit)
        whole = 1e3 * solution.solve_seconds
        setup.append(1e3 * float(solution.stats.get("build_seconds", 0.0)))
        milliseconds.append(whole - setup[-1])
        if whole > 1e3 * _LONG:
            break
    peak = peak_megabytes()
    certificate = certify(problem, solution)
    validity = "" if certificate.valid else ", CLAIMS VIOLATED"
    sizes = ("num_variables", "arcs", "variables", "prefixes")
    size = next((solution.stats[name] for name in sizes if name in solution.stats), None)
    remark = "" if size is None else f", size {size:,}"
    return {
        "milliseconds": milliseconds,
        "gap": certificate.gap,
        "note": f"{solution.status}{remark}, peak {peak:.0f} MB{validity}",
        "setup": statistics.median(setup) if any(setup) else None,
    }


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # a method of the user's may print
        measured = measure(*json.loads(sys.argv[1]))
    print(json.dumps(measured))
