"""Laws of draft sets that know q alone, beside bounds by their marginals, and the best law.

On the bundled logits, cut to ten tokens, and on synthetic laws; every optimum is that of all
subsets of ten tokens. Prints Markdown.

    python benchmarks/draft_laws.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import combinations, pairwise
from math import prod

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.sparse import coo_array

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import DraftScheme

Law = np.ndarray
TOKENS, COUNTS = 10, (2, 4)

#: Law that the others are compared with, pair by pair.
BESIDE = "without replacement"


def product_of_q(q: Law, k: int) -> DraftScheme:
    """Law with P(S) in proportion to the product of q over S, |S| = K."""
    return _weighed({s: prod(q[list(s)]) for s in combinations(range(q.size), k)}, q.size)


def conditional_poisson(q: Law, k: int) -> DraftScheme:
    """Law with P(S) in proportion to a product of odds, with marginals min(1, c q) of sum K."""
    scale = brentq(lambda c: np.minimum(1.0, c * q).sum() - k, 0.0, 1e6) if k < q.size else 1.0
    wanted = np.clip(np.minimum(1.0, scale * q), 1e-9, 1 - 1e-9)
    odds, scheme = wanted / (1 - wanted), None
    for _ in range(60):  # odds whose conditional law has these marginals
        scheme = product_of_q(odds / odds.sum(), k)
        found = np.zeros(q.size)
        law = scheme.support_law()
        np.add.at(found, law.tokens, law.mass[law.arc_support])
        odds = odds * (wanted / np.maximum(found, 1e-12)) ** 0.7
    return scheme


def systematic(q: Law, k: int, orders: int = 200) -> DraftScheme:
    """Law of tokens of q at the points (u + i) / K, in random orders of the tokens."""
    rng, masses = np.random.default_rng(0), {}
    for _ in range(orders):
        order = rng.permutation(q.size)
        ends = np.cumsum(q[order]) * k
        cuts = np.unique(np.concatenate([[0.0], ends % 1.0, [1.0]]))
        for low, high in pairwise(cuts):
            places = np.searchsorted(ends, (low + high) / 2 + np.arange(k), side="right")
            drawn = tuple(sorted({int(order[min(i, q.size - 1)]) for i in places}))
            masses[drawn] = masses.get(drawn, 0.0) + (high - low) / orders
    return _weighed(masses, q.size)


def _weighed(masses: dict[tuple[int, ...], float], size: int) -> DraftScheme:
    total = sum(masses.values())
    return mo.DraftSetLaw(size, {s: float(x) / total for s, x in masses.items() if x > 0})


LAWS: dict[str, Callable[[Law, int], DraftScheme]] = {
    "with replacement": mo.WithReplacement,
    "without replacement": mo.WithoutReplacement,
    "greedy": mo.GreedyDrafts,
    "top-K": mo.TopKDrafts,
    "P(S) by the product of q": product_of_q,
    "conditional Poisson, min(1, c q)": conditional_poisson,
    "systematic, random order": systematic,
}


def optimum(p: Law, drafts: DraftScheme) -> float:
    return mo.solve(mo.TransportProblem(p, drafts), "max_flow").acceptance_rate


def real(temperature: float) -> list[tuple[Law, Law]]:
    """Pairs of laws at the bundled positions, each cut to the ten tokens of largest p + q."""
    sample, pairs = np.load(sample_logits_path()), []
    for p, q in zip(
        *(mo.softmax(sample[x], temperature) for x in ("target", "draft")), strict=True
    ):
        kept = np.argsort(-(p + q), kind="stable")[:TOKENS]
        pairs.append((p[kept] / p[kept].sum(), q[kept] / q[kept].sum()))
    return pairs


def noisy(spread: float, count: int) -> list[tuple[Law, Law]]:
    """Pairs of laws with q by normal logits of deviation 2, p = q exp(spread z), normalised."""
    rng = np.random.default_rng(1)
    logits = 2.0 * rng.standard_normal((count, TOKENS))
    return [(mo.softmax(x + spread * rng.standard_normal(TOKENS)), mo.softmax(x)) for x in logits]


def dirichlet(count: int) -> list[tuple[Law, Law]]:
    """Pairs of independent laws p and q, both flat on the simplex."""
    rng = np.random.default_rng(2)
    return [tuple(rng.dirichlet(np.ones(TOKENS), 2)) for _ in range(count)]


def best_law(q: Law, k: int, targets: list[Law]) -> float:
    """Mean alpha* of the best law of sets of K tokens, chosen on these targets: an upper bound."""
    sets = list(combinations(range(q.size), k))
    size, n = len(sets), len(targets)
    arcs = [(s, i) for s, drafts in enumerate(sets) for i in drafts]
    rows, columns, values, bounds = [], [], [], []
    for t, p in enumerate(targets):
        first = size + t * len(arcs)
        for a, (s, i) in enumerate(arcs):
            rows += [t * (q.size + size) + i, t * (q.size + size) + q.size + s]
            columns += [first + a] * 2
            values += [1.0, 1.0]
        for s in range(size):
            rows.append(t * (q.size + size) + q.size + s)
            columns.append(s)
            values.append(-1.0)
        bounds += [*p, *np.zeros(size)]
    total = size + n * len(arcs)
    gains = np.concatenate([np.zeros(size), np.full(n * len(arcs), -1.0 / n)])
    found = linprog(
        gains,
        A_ub=coo_array((values, (rows, columns)), shape=(len(bounds), total)).tocsr(),
        b_ub=bounds,
        A_eq=coo_array((np.ones(size), (np.zeros(size, int), np.arange(size))), shape=(1, total)),
        b_eq=[1.0],
        method="highs",
    )
    assert found.status == 0, found.message
    return -float(found.fun)


def best_by_marginals(q: Law, k: int, targets: list[Law]) -> float:
    """Mean of sum min(p, pi) for the best marginals, chosen on these targets, an upper bound."""
    size, n = q.size, len(targets)
    first = np.arange(n)[:, None] * size + size + np.arange(size)
    rows = np.arange(n * size)
    below = coo_array(  # each min at most pi
        (
            np.concatenate([np.ones(n * size), -np.ones(n * size)]),
            (np.tile(rows, 2), np.concatenate([first.ravel(), np.tile(np.arange(size), n)])),
        ),
        shape=(n * size, size * (n + 1)),
    )
    total = np.concatenate([np.ones(size), np.zeros(n * size)])
    found = linprog(
        np.concatenate([np.zeros(size), np.full(n * size, -1.0 / n)]),
        A_ub=below.tocsr(), b_ub=np.zeros(n * size), A_eq=total[None], b_eq=[k],
        bounds=[(0.0, 1.0)] * size + [(0.0, p) for target in targets for p in target.tolist()],
        method="highs",
    )  # fmt: skip
    assert found.status == 0, found.message
    return -float(found.fun)


def interval(values: Law) -> str:
    """Text of the mean and two standard errors."""
    return f"{values.mean():.3f} ± {2 * values.std() / np.sqrt(values.size):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthetic", type=int, default=60, help="pairs of each synthetic kind")
    parser.add_argument("--targets", type=int, default=60, help="for the best law there is")
    asked = parser.parse_args()
    samples = {
        "bundled, T = 1": real(1.0),
        "bundled, T = 0.6": real(0.6),
        "noise 1.5": noisy(1.5, asked.synthetic),
        "Dirichlet": dirichlet(asked.synthetic),
    }
    heads = [f"{name}, K = {' / '.join(map(str, COUNTS))}" for name in samples]
    print(f"| law | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    found: dict[str, list[list[Law]]] = {}  # of a law: [sample][K], each optimum
    for name, make in LAWS.items():
        cells, found[name] = [], []
        for pairs in samples.values():
            rates, bounds = [], []
            for k in COUNTS:
                drafted = [(p, make(q, k)) for p, q in pairs]
                rates.append(np.array([optimum(p, drafts) for p, drafts in drafted]))
                bounds.append(
                    np.mean([mo.inclusion_bound(mo.TransportProblem(*x)) for x in drafted])
                )
            found[name].append(rates)
            allowed = " / ".join(f"{x:.3f}" for x in bounds)
            cells.append(f"{' / '.join(f'{x.mean():.3f}' for x in rates)} (of {allowed})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n| law | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    beside = found.pop(BESIDE)
    for name, rates in found.items():
        cells = [
            " / ".join(interval(mine - theirs) for mine, theirs in zip(*sides, strict=True))
            for sides in zip(rates, beside, strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| q | K | spread | without replacement | best law of sets | best marginals |")
    print("|---|---|---|---|---|---|")
    for seed in range(3):
        rng = np.random.default_rng([3, seed])
        q = mo.softmax(2.0 * rng.standard_normal(TOKENS))
        for spread in (0.5, 1.5):
            shifts = spread * rng.standard_normal((asked.targets, TOKENS))
            targets = [mo.softmax(np.log(q) + x) for x in shifts]
            drawn = mo.WithoutReplacement(q, 2)
            ours = np.array([optimum(p, drawn) for p in targets])
            best, allowed = best_law(q, 2, targets), best_by_marginals(q, 2, targets)
            print(f"| {seed + 1} | 2 | {spread} | {interval(ours)} | {best:.4f} | {allowed:.4f} |")


if __name__ == "__main__":
    main()
