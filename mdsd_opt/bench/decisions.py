"""Seconds of one decision on given probabilities, by each verifier, against the argsort route.

One thread; each round has positions and drafts of its own. The argsort route does in NumPy what the
optimal rule needs first: sort by p/q, gather, cumulate, and find the best prefix. So does the
packed sort route, with a faster sort.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from mdsd_opt import verifiers
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.bench.batches import rate_of_prefixes
from mdsd_opt.bench.record import Record, Settings
from mdsd_opt.data import sample_logits_path
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers import BinnedPlan, GroupedPlan, Uniforms, Verifier, output_token

_VOCAB_SIZE = 131_072
_QUICK_VOCAB_SIZE = 2048
_SCHEMES = ("with_replacement", "without_replacement")
_PUBLISHED = ("rrs", "kseq")
_AGAINST = "argsort route"

#: Vocabulary sizes at which the linear programme can be solved in reasonable time, by K.
_FEW_TOKENS = {2: 200, 4: 16}

Logits = tuple[np.ndarray, np.ndarray]
Source = Callable[[np.random.Generator, int], Logits]


def records(settings: Settings) -> Iterator[Record]:
    """Records of synthetic and real logits at full vocabulary, and of few tokens for the LP."""
    rng = np.random.default_rng(settings.seed)
    rounds = settings.rounds or (3 if settings.quick else 15)
    own = [verifiers.get(name) for name in settings.verifiers]
    few = {2: 20, 4: 6} if settings.quick else _FEW_TOKENS
    size = _QUICK_VOCAB_SIZE if settings.quick else _VOCAB_SIZE
    sources: dict[str, tuple[Source, tuple[int, ...]]] = {
        "synthetic logits": (lambda rng, k: _synthetic(rng, size), (2, 4, 8)),
        "few tokens": (lambda rng, k: _synthetic(rng, few[k]), tuple(few)),
    }
    if not settings.quick:
        sample = load_logits(sample_logits_path())
        sources["bundled logits"] = (lambda rng, k: _row_of(sample, rng), (2, 4, 8))
    for name, (source, counts) in sources.items():
        for scheme in _SCHEMES:
            for k in counts:
                yield from _measured(name, source, scheme, k, rounds, rng, settings.seed, own)


def _synthetic(rng: np.random.Generator, size: int) -> Logits:
    target = (2.5 * rng.standard_normal(size)).astype(np.float32)
    return target, target + rng.standard_normal(size).astype(np.float32)


def _row_of(sample: LogitsSample, rng: np.random.Generator) -> Logits:
    row = int(rng.integers(sample.num_positions))
    return sample.target[row], sample.draft[row]


def _measured(
    name: str,
    source: Source,
    scheme: str,
    num_drafts: int,
    rounds: int,
    rng: np.random.Generator,
    seed: int,
    own: Sequence[Verifier] = (),
) -> Iterator[Record]:
    seconds: dict[str, list[float]] = {}
    gap = 0.0
    for number in range(rounds + 1):  # the first round compiles and warms up
        target, draft = source(rng, num_drafts)
        problem = TransportProblem.from_logits(target, draft, num_drafts, scheme)
        binned: Any = verifiers.get("optimal", binned=True)
        gap = max(gap, binned.acceptance_rate(problem).gap)
        for route, decide in _routes(problem, rng, own).items():
            start = time.perf_counter()
            decide()
            if number:
                seconds.setdefault(route, []).append(time.perf_counter() - start)
    for route, times in seconds.items():
        yield Record.timed(
            [1e3 * time for time in times], against=_AGAINST, benchmark="decisions", route=route,
            problem=f"{name}, {scheme}", vocab_size=problem.vocab_size, num_drafts=num_drafts,
            seed=seed, gap=gap if route == "optimal, collapsed" else None,
            gap_kind="certified gap" if route == "optimal, collapsed" else "",
        )  # fmt: skip


def _routes(
    problem: TransportProblem, rng: np.random.Generator, own: Sequence[Verifier] = ()
) -> dict[str, Callable[[], Any]]:
    """Functions to time on this problem, by name."""
    drafts, draws = problem.drafts, problem.drafts.random_draws
    assert draws is not None
    tokens, uniforms = drafts.sample(rng), Uniforms.of(rng)
    p, q, k = problem.target, draws.q, problem.num_drafts
    routes: dict[str, Callable[[], Any]] = {
        "optimal": lambda: output_token(
            GroupedPlan(p, draws, (tokens, uniforms.mixing)), tokens, uniforms
        ),
        _AGAINST: lambda: _argsort_route(p, q, k),
        "packed sort route": lambda: _packed_sort_route(p, q, k),
        "optimal, collapsed": lambda: output_token(BinnedPlan(p, draws), tokens, uniforms),
    }
    if problem.vocab_size <= max(_FEW_TOKENS.values()):
        unknown = TransportProblem(p, drafts)  # of which no verifier has kept anything
        routes["lp"] = lambda: verifiers.get("lp").verify(unknown, tokens, uniforms)
    for verifier in (*map(verifiers.get, _PUBLISHED), *own):
        if verifier.supports(drafts):
            routes.setdefault(verifier.name, partial(verifier.verify, problem, tokens, uniforms))
    return routes


def _argsort_route(p: np.ndarray, q: np.ndarray, num_drafts: int) -> float:
    order = np.argsort(np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0))
    return rate_of_prefixes(p[order], q[order], num_drafts)


def _packed_sort_route(p: np.ndarray, q: np.ndarray, num_drafts: int) -> float:
    """Same as `_argsort_route`, with ratio and token in one 64-bit number, which sorts faster."""
    token_bits = np.int64((1 << 18) - 1)
    ratio = np.divide(p, q, out=np.full_like(p, 1e300), where=q > 0)
    packed = (ratio.view(np.int64) & ~token_bits) | np.arange(p.size)
    packed.sort()
    inside = q[packed & token_bits]
    difference = np.cumsum(packed.view(np.float64) * inside) - np.cumsum(inside) ** num_drafts
    return 1.0 + min(float(difference[inside > 0].min()), 0.0)
