"""Speed and error of batched acceptance rates on the CPU, beside what a user would write instead.

All routes are timed in one process, one after the other, again and again; a time is the median over
the rounds, per position. Rivals (with replacement only) get the same threads, one row a task. The
error is against the same logits sorted in extended precision.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Row
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.bench.record import Record, Settings, timed
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import solve

RowRoute = Callable[[Row, Row, int], float]

_AGAINST = "argsort, float32"

SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")


def softmax(logits: Row, dtype: type = np.float32) -> NDArray[Any]:
    """Probabilities of a row, as a user would compute them."""
    weights: NDArray[Any] = logits.astype(dtype)
    weights -= weights.max()
    np.exp(weights, out=weights)
    weights /= weights.sum()
    return weights


def two_softmaxes(target: Row, draft: Row, num_drafts: int) -> float:
    """Compute two softmaxes without rates: any route from logits in NumPy pays for these first."""
    return float(softmax(target)[0] * softmax(draft)[0])


def rate_of_prefixes(p: Row, q: Row, num_drafts: int) -> float:
    """Rate with replacement of tokens in rising order of p/q, by the best prefix."""
    value = np.cumsum(p, dtype=np.float64) - np.cumsum(q, dtype=np.float64) ** num_drafts
    return float(1 + min(0.0, value.min()))


def argsort_route(target: Row, draft: Row, num_drafts: int, dtype: type = np.float32) -> float:
    """Compute the rate by softmax, argsort of p/q, two gathers, two cumulative sums."""
    p, q = softmax(target, dtype), softmax(draft, dtype)
    order = np.argsort(p / q)
    return rate_of_prefixes(p[order], q[order], num_drafts)


def packed_sort_route(target: Row, draft: Row, num_drafts: int) -> float:
    """Compute the rate by sorting 64-bit numbers with the ratio in the upper half."""
    p, q = softmax(target), softmax(draft)
    ratio = p / q
    packed = ratio.view(np.uint32).astype(np.uint64) << np.uint64(32)
    packed |= q.view(np.uint32)
    packed.sort()
    q = packed.astype(np.uint32).view(np.float32)
    ratio = (packed >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return rate_of_prefixes(q * ratio, q, num_drafts)


def scipy_route(target: Row, draft: Row, num_drafts: int) -> float:
    """Compute the rate by SciPy's log_softmax, argsort of log p/q, and two gathers and sums."""
    from scipy.special import log_softmax

    log_p, log_q = log_softmax(target), log_softmax(draft)
    order = np.argsort(log_p - log_q)
    return rate_of_prefixes(np.exp(log_p[order]), np.exp(log_q[order]), num_drafts)


def torch_route() -> RowRoute | None:
    """Route by torch.sort; None if PyTorch is not installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(1)  # the rows are shared among threads already

    def route(target: Row, draft: Row, num_drafts: int) -> float:
        """Compute the rate by softmax, torch.sort, two gathers, two cumulative sums."""
        p = torch.softmax(torch.from_numpy(target).float(), 0)
        q = torch.softmax(torch.from_numpy(draft).float(), 0)
        order = torch.sort(p / q).indices
        p, q = (torch.cumsum(x[order].double(), 0) for x in (p, q))
        return float(1 + min(0.0, (p - q.pow(num_drafts)).min()))

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
    """Rate of a row in extended precision, by sorting; without replacement by the solver."""
    composition = SINGLE_MODEL_SCHEMES[scheme].composition
    if composition is None or (composition.is_random and not composition.is_replaced):
        problem = TransportProblem.from_logits(target, draft, num_drafts=num_drafts, drafts=scheme)
        return float(solve(problem, method="subset_selection").acceptance_rate)
    p, q = (np.exp(x.astype(np.longdouble) - x.max()) for x in (target, draft))
    p, q = p / p.sum(), q / q.sum()
    if not composition.is_random:
        fixed = np.argsort(-draft, kind="stable")[: composition.num_fixed(num_drafts)]
        q[fixed] = 0
        drawn = np.minimum(p, q / q.sum()).sum() if composition.num_random else 0.0
        return float(p[fixed].sum() + drawn)
    order = np.argsort(p / q)
    value = np.cumsum(p[order]) - np.cumsum(q[order]) ** num_drafts
    return float(1 + min(0, value.min()))


def make_logits(size: int, num_rows: int, dtype: str, seed: int) -> tuple[Row, Row]:
    """A draft like a language model's tail, and a target that is near it."""
    rng = np.random.default_rng(seed)
    draft = rng.normal(size=(num_rows, size)) * 2.5
    target = draft + rng.normal(size=(num_rows, size)) * 0.7
    return target.astype(dtype), draft.astype(dtype)


def records(settings: Settings) -> Iterator[Record]:
    """Records of batches of float32 logits; in quick runs small ones."""
    sizes = (4096,) if settings.quick else (32_768, 131_072, 262_144)
    tokens = 1 << 15 if settings.quick else 1 << 21  # per batch
    rounds = settings.rounds or (3 if settings.quick else 9)
    for size in sizes:
        num_rows = max(settings.threads, tokens // size)
        yield from _measured(size, num_rows, "float32", 3, settings.threads, rounds, settings.seed)


def _measured(
    size: int, num_rows: int, dtype: str, num_drafts: int, num_threads: int, rounds: int, seed: int
) -> Iterator[Record]:
    target, draft = make_logits(size, num_rows, dtype, seed)
    exact = {
        scheme: [exact_rate(target[i], draft[i], num_drafts, scheme) for i in range(2)]
        for scheme in SCHEMES
    }
    rivals: dict[str, RowRoute] = {
        _AGAINST: argsort_route,
        "argsort, float64": partial(argsort_route, dtype=np.float64),
        "scipy.special": scipy_route,
        "packed sort": packed_sort_route,
    }
    torch = torch_route()
    if torch is not None:
        rivals["torch.sort"] = torch
    for threads in sorted({1, num_threads}):
        routes: dict[str, Callable[[], Any]] = {}
        errors: dict[str, float | None] = {}
        for scheme in SCHEMES:
            name = f"mdsd_opt, {scheme}"
            routes[name] = partial(
                acceptance_rates, target, draft, num_drafts, scheme, num_threads=threads
            )
            errors[name] = float(np.abs(routes[name]()[:2] - exact[scheme]).max())
        for name, route in rivals.items():
            routes[name] = partial(by_rows, route, target, draft, num_drafts, threads)
            errors[name] = float(np.abs(routes[name]()[:2] - exact["with_replacement"]).max())
        routes["two softmaxes"] = partial(
            by_rows, two_softmaxes, target, draft, num_drafts, threads
        )
        errors["two softmaxes"] = None
        per_position = {
            name: seconds / num_rows * 1e3 for name, seconds in timed(routes, rounds).items()
        }
        for name, milliseconds in per_position.items():
            yield Record.timed(
                milliseconds.tolist(), against=_AGAINST, benchmark="batches", route=name,
                problem="synthetic logits", vocab_size=size, num_drafts=num_drafts, dtype=dtype,
                threads=threads, seed=seed, gap=errors[name],
                gap_kind="" if errors[name] is None else "error", note=f"{num_rows} rows",
            )  # fmt: skip
