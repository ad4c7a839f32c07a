"""Speed and error of batched acceptance rates on the CPU, against the ways NumPy offers.

All routes are timed in one process, one after the other, again and again; a time is the median over
the rounds, per position. Rivals (with replacement only) get the same threads, one row a task. The
error is against the same logits sorted in extended precision.

Run:  python benchmarks/batch_rates.py [--sizes 32768 131072] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import mdsd_opt as mo
from mdsd_opt.batch.job import available_threads
from mdsd_opt.versions import versions

Row = NDArray[Any]
RowRoute = Callable[[Row, Row, int], float]

SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")


def softmax(logits: Row, dtype: type = np.float32) -> NDArray[Any]:
    weights = logits.astype(dtype)
    weights -= weights.max()
    np.exp(weights, out=weights)
    weights /= weights.sum()
    return weights


def two_softmaxes(target: Row, draft: Row, num_drafts: int) -> float:
    """No rates at all: what any route from logits in NumPy pays first."""
    return float(softmax(target)[0] * softmax(draft)[0])


def _scan(p: Row, q: Row, num_drafts: int) -> float:
    value = np.cumsum(p, dtype=np.float64) - np.cumsum(q, dtype=np.float64) ** num_drafts
    return float(1 + min(0.0, value.min()))


def argsort_route(target: Row, draft: Row, num_drafts: int, dtype: type = np.float32) -> float:
    """Softmax, argsort of p/q, two gathers, two cumulative sums."""
    p, q = softmax(target, dtype), softmax(draft, dtype)
    order = np.argsort(p / q)
    return _scan(p[order], q[order], num_drafts)


def packed_sort_route(target: Row, draft: Row, num_drafts: int) -> float:
    """Sort ratio and q as one 64-bit number, the ratio in the upper half; p is their product."""
    p, q = softmax(target), softmax(draft)
    ratio = p / q
    packed = ratio.view(np.uint32).astype(np.uint64) << np.uint64(32)
    packed |= q.view(np.uint32)
    packed.sort()
    q = packed.astype(np.uint32).view(np.float32)
    ratio = (packed >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return _scan(q * ratio, q, num_drafts)


def torch_route() -> RowRoute | None:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(1)  # the rows are shared among threads already

    def route(target: Row, draft: Row, num_drafts: int) -> float:
        """Softmax, torch.sort, two gathers, two cumulative sums."""
        p = torch.softmax(torch.from_numpy(target).float(), 0)
        q = torch.softmax(torch.from_numpy(draft).float(), 0)
        order = torch.sort(p / q).indices
        value = torch.cumsum(p[order].double(), 0) - torch.cumsum(q[order].double(), 0).pow(
            num_drafts
        )
        return float(1 + min(0.0, value.min()))

    return route


def by_rows(
    route: RowRoute, target: Row, draft: Row, num_drafts: int, num_threads: int
) -> NDArray[np.float64]:
    """Apply a route to every row, with threads."""
    if num_threads == 1:
        return np.array([route(t, d, num_drafts) for t, d in zip(target, draft, strict=True)])
    with ThreadPoolExecutor(num_threads) as pool:
        return np.array(list(pool.map(lambda t, d: route(t, d, num_drafts), target, draft)))


def exact_rate(target: Row, draft: Row, num_drafts: int, scheme: str) -> float:
    """One row in extended precision, by sorting; without replacement by the package's solver."""
    if scheme == "without_replacement":
        problem = mo.TransportProblem.from_logits(
            target, draft, num_drafts=num_drafts, drafts=scheme
        )
        return float(mo.solve(problem, method="subset_selection").acceptance_rate)
    p, q = (np.exp(x.astype(np.longdouble) - x.max()) for x in (target, draft))
    p, q = p / p.sum(), q / q.sum()
    likeliest = np.argsort(-draft, kind="stable")
    if scheme == "top_k":
        return float(p[likeliest[:num_drafts]].sum())
    if scheme == "greedy":
        fixed = likeliest[: num_drafts - 1]
        q[fixed] = 0
        return float(p[fixed].sum() + np.minimum(p, q / q.sum()).sum())
    order = np.argsort(p / q)
    value = np.cumsum(p[order]) - np.cumsum(q[order]) ** num_drafts
    return float(1 + min(0, value.min()))


def make_logits(size: int, num_rows: int, dtype: str, seed: int) -> tuple[Row, Row]:
    """A draft like a language model's tail, and a target that is near it."""
    rng = np.random.default_rng(seed)
    draft = rng.normal(size=(num_rows, size)) * 2.5
    target = draft + rng.normal(size=(num_rows, size)) * 0.7
    return target.astype(dtype), draft.astype(dtype)


def timed(routes: dict[str, Callable[[], Any]], rounds: int) -> dict[str, NDArray[np.float64]]:
    """Seconds of every route in every round, interleaved, each round in another order."""
    for route in routes.values():
        route()  # compile, touch memory
    names = list(routes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            start = time.perf_counter()
            routes[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def measure(
    size: int, num_rows: int, dtype: str, num_drafts: int, num_threads: int, rounds: int, seed: int
) -> list[dict[str, Any]]:
    target, draft = make_logits(size, num_rows, dtype, seed)
    exact = {
        scheme: [exact_rate(target[i], draft[i], num_drafts, scheme) for i in range(2)]
        for scheme in SCHEMES
    }
    rivals: dict[str, RowRoute] = {
        "argsort, float32": argsort_route,
        "argsort, float64": partial(argsort_route, dtype=np.float64),
        "packed sort": packed_sort_route,
    }
    torch = torch_route()
    if torch is not None:
        rivals["torch.sort"] = torch
    rows = []
    for threads in sorted({1, num_threads}):
        routes: dict[str, Callable[[], Any]] = {}
        errors: dict[str, float | None] = {}
        for scheme in SCHEMES:
            name = f"mdsd_opt, {scheme}"
            routes[name] = partial(
                mo.acceptance_rates, target, draft, num_drafts, scheme, num_threads=threads
            )
            errors[name] = float(np.abs(routes[name]()[:2] - exact[scheme]).max())
        for name, route in rivals.items():
            routes[name] = partial(by_rows, route, target, draft, num_drafts, threads)
            errors[name] = float(np.abs(routes[name]()[:2] - exact["with_replacement"]).max())
        routes["two softmaxes"] = partial(
            by_rows, two_softmaxes, target, draft, num_drafts, threads
        )
        errors["two softmaxes"] = None
        for name, seconds in timed(routes, rounds).items():
            per_position = seconds / num_rows * 1e3
            rows.append(
                {
                    "vocab_size": size,
                    "num_rows": num_rows,
                    "dtype": dtype,
                    "num_drafts": num_drafts,
                    "threads": threads,
                    "route": name,
                    "median_ms": float(np.median(per_position)),
                    "p90_ms": float(np.quantile(per_position, 0.9)),
                    "max_error": errors[name],
                }
            )
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Milliseconds per position")
    for column in ("V", "dtype", "K", "threads", "route", "median", "p90", "max error"):
        table.add_column(column, justify="left" if column == "route" else "right")
    for row, following in zip(rows, [*rows[1:], rows[-1]], strict=True):
        error = row["max_error"]
        end_section = row["threads"] != following["threads"]
        table.add_row(
            f"{row['vocab_size']:,}",
            row["dtype"],
            str(row["num_drafts"]),
            str(row["threads"]),
            row["route"],
            f"{row['median_ms']:.3f}",
            f"{row['p90_ms']:.3f}",
            "" if error is None else f"{error:.0e}",
            end_section=end_section,
        )
    return table


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32_768, 131_072, 262_144])
    parser.add_argument("--num-drafts", type=int, nargs="+", default=[3])
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=1 << 21, help="per batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers with their circumstances here")
    arguments = parser.parse_args()
    rows = []
    for size in arguments.sizes:
        for dtype in arguments.dtypes:
            for num_drafts in arguments.num_drafts:
                num_rows = max(arguments.threads, arguments.tokens // size)
                rows += measure(
                    size,
                    num_rows,
                    dtype,
                    num_drafts,
                    arguments.threads,
                    arguments.rounds,
                    arguments.seed,
                )
    Console(width=110).print(table_of(rows))
    if arguments.json:
        circumstances = {
            "processor": processor(),
            "versions": versions(),
            "rounds": arguments.rounds,
            "seed": arguments.seed,
        }
        document = {"circumstances": circumstances, "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
