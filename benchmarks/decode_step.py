"""Seconds of one decision on given probabilities, by each verifier, against the argsort route.

All are timed in one process and one thread, one after the other, again and again; a time is the
median over the rounds, each with a position and drafts of its own. The argsort route does in NumPy
what the optimal rule needs first: sort by p/q, gather, cumulate, and find the best prefix.

    python benchmarks/decode_step.py [--rounds 30] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import mdsd_opt as mo
from mdsd_opt.verifiers import Uniforms
from mdsd_opt.verifiers.optimal import sort_free_step
from mdsd_opt.verifiers.optimal.collapsed import CollapsedOptimal
from mdsd_opt.versions import versions

VOCAB_SIZE = 131_072
NUM_DRAFTS = (2, 4, 8)
PUBLISHED = ("rrs", "kseq")

#: The linear programme can be solved up to about here in reasonable time.
FEW_TOKENS = {2: 200, 4: 16}


def argsort_route(p: np.ndarray, q: np.ndarray, num_drafts: int) -> float:
    order = np.argsort(p / q)
    difference = np.cumsum(p[order]) - np.cumsum(q[order]) ** num_drafts
    return 1.0 + min(float(difference.min()), 0.0)


def synthetic(rng: np.random.Generator, _: int) -> tuple[np.ndarray, np.ndarray]:
    target = (2.5 * rng.standard_normal(VOCAB_SIZE)).astype(np.float32)
    return target, target + rng.standard_normal(VOCAB_SIZE).astype(np.float32)


def bundled(rng: np.random.Generator, _: int) -> tuple[np.ndarray, np.ndarray]:
    from mdsd_opt.data import sample_logits_path
    from mdsd_opt.logits_io import load_logits

    sample = load_logits(sample_logits_path())
    row = int(rng.integers(sample.num_positions))
    return sample.target[row], sample.draft[row]


def few_tokens(rng: np.random.Generator, num_drafts: int) -> tuple[np.ndarray, np.ndarray]:
    target = 2.5 * rng.standard_normal(FEW_TOKENS[num_drafts])
    return target, target + rng.standard_normal(target.size)


def routes(problem: mo.TransportProblem, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    """What to time on this problem, by name."""
    drafts: Any = problem.drafts
    tokens, uniforms = drafts.sample(rng), Uniforms.of(rng)
    p, q, k = problem.target, drafts.q, problem.num_drafts
    named: dict[str, Callable[[], Any]] = {
        "optimal": lambda: sort_free_step.decide(p, drafts, tokens, uniforms),
        "argsort route": lambda: argsort_route(p, q, k),
    }
    collapsed = CollapsedOptimal()
    named["optimal, collapsed"] = lambda: collapsed._verify(problem, tokens, uniforms)
    if problem.vocab_size <= max(FEW_TOKENS.values()):
        named["lp"] = lambda: mo.verifiers.get("lp").verify(fresh(problem), tokens, uniforms)
    for name in PUBLISHED:
        verifier = mo.verifiers.get(name)
        if verifier.supports(drafts):
            named[name] = lambda v=verifier: v.verify(problem, tokens, uniforms)
    return named


def fresh(problem: mo.TransportProblem) -> mo.TransportProblem:
    """The same problem, of which no verifier has kept anything."""
    return mo.TransportProblem(problem.target, problem.drafts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write rows and circumstances to this file")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    times: dict[tuple[str, str, int, str], list[float]] = {}
    losses: dict[tuple[str, str, int], float] = {}  # largest certified loss of the collapsed form
    for number in range(options.rounds + 1):  # the first round compiles and warms up
        for source in (synthetic, bundled, few_tokens):
            for scheme in ("with_replacement", "without_replacement"):
                for k in FEW_TOKENS if source is few_tokens else NUM_DRAFTS:
                    target, draft = source(rng, k)
                    problem = mo.TransportProblem.from_logits(target, draft, k, scheme)
                    place = source.__name__, scheme, k
                    loss = CollapsedOptimal().acceptance_rate(problem).gap
                    losses[place] = max(losses.get(place, 0.0), loss)
                    for name, route in routes(problem, rng).items():
                        start = time.perf_counter()
                        route()
                        seconds = time.perf_counter() - start
                        if number:
                            times.setdefault((*place, name), []).append(seconds)

    rows = []
    for (source_name, scheme, k, name), seconds_list in times.items():
        ordinary = statistics.median(times[source_name, scheme, k, "argsort route"])
        median = statistics.median(seconds_list)
        rows.append(
            {
                "logits": source_name,
                "scheme": scheme,
                "num_drafts": k,
                "verifier": name,
                "median_ms": 1e3 * median,
                "p90_ms": 1e3 * float(np.quantile(seconds_list, 0.9)),
                "times_faster_than_argsort": ordinary / median,
                "certified_loss": losses[source_name, scheme, k] if "collapsed" in name else 0.0,
            }
        )
    circumstances = {"load_average": os.getloadavg()[0], "threads": 1, **versions()}
    table = Table(
        title=f"one decision; V = {VOCAB_SIZE:,} (synthetic), 49,152 (bundled), few as given"
    )
    for heading in (
        "logits",
        "drafts",
        "K",
        "verifier",
        "median ms",
        "p90 ms",
        "x argsort",
        "loss",
    ):
        table.add_column(heading, justify="right" if heading in ("K", "median ms") else "left")
    for row in rows:
        *words, median_ms, p90_ms, ratio, loss = row.values()
        table.add_row(
            *map(str, words),
            f"{median_ms:.2f}",
            f"{p90_ms:.2f}",
            f"{ratio:.1f}",
            f"{loss:.0e}" if loss else "",
        )
    Console(width=120).print(table)
    print(", ".join(f"{name} {circumstances[name]}" for name in ("python", "numpy", "numba")))
    if options.json:
        document = {"circumstances": circumstances, "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
