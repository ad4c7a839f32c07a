"""Trees of which a rule loses most: ascents over tables of fractions, from random ones.

    python benchmarks/worst_trees.py [--rule traversal] [--tree 2x2] [--vocab-size 2] [--seed 0]

Every law is of multiples of 1/N. A unit of mass goes from one token to another where the rule then
loses more; N doubles where none does. The end is an instance, with what the rule accepts of it as a
fraction, and a bound from below of the best: the largest loss there is may be larger.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.decoding import Topology, get_rule, parse_topology, tree_bound, whole_paths

#: Random tables of which the ascent begins at the best.
_STARTS = 10

#: Counts of the tokens after a text: ("p" or "q", text) to (V,).
Counts = dict[tuple[str, tuple[int, ...]], tuple[int, ...]]


class Problem:
    """A rule and the trees that it verifies."""

    def __init__(self, rule: str, topology: Topology, scheme: str) -> None:
        self.rule, self.topology, self.scheme = get_rule(rule), topology, scheme

    def accepted(self, counts: Counts, dtype: Any = object) -> Any:
        """Mean number of accepted drafts, exact unless in floats."""
        from support.tables import trees

        p, q = (laws(counts, side, dtype) for side in "pq")
        total: Any = 0
        for root, probability in trees(q, self.topology, self.scheme):
            for node in root.walk():
                node.target = p(node.tokens)
            ways = self.rule.stops(root)
            total += probability * sum(way.probability * way.node.depth for way in ways)
        return total

    def best(self, counts: Counts, tolerance: float = 1e-7) -> float:
        """Number that some rule accepts, almost the largest."""
        p, q = (laws(counts, side, np.float64) for side in "pq")
        return tree_bound(p, q, self.topology, self.scheme, tolerance=tolerance).lower

    def lost(self, counts: Counts, share: bool) -> float:
        """What the rule loses of the best, or its share of it."""
        best, accepted = self.best(counts), float(self.accepted(counts, np.float64))
        return 1 - accepted / max(best, 1e-9) if share else best - accepted


def laws(counts: Counts, side: str, dtype: Any) -> Any:
    """Laws of one side; what follows the last drafts is of no account."""
    table = {
        text: np.array([Fraction(n, sum(law)) for n in law], dtype=object).astype(dtype)
        for (whose, text), law in counts.items()
        if whose == side
    }
    some = table[()]
    return lambda text: table.get(tuple(text), some)


def climbed(
    problem: Problem, size: int, rng: np.random.Generator, doublings: int, share: bool
) -> tuple[float, Counts]:
    """The largest loss that is reached from the best of some random tables."""
    starts: list[Counts] = [
        {
            (side, text): tuple((rng.multinomial(3 * size, np.full(size, 1 / size)) + 1).tolist())
            for depth in range(problem.topology.depth)
            for text in product(range(size), repeat=depth)
            for side in "pq"
        }
        for _ in range(_STARTS)
    ]
    loss, counts = max(((problem.lost(x, share), x) for x in starts), key=lambda one: one[0])
    for _ in range(doublings):
        counts = {key: tuple(2 * n for n in law) for key, law in counts.items()}
        waiting = [(key, pair) for key in counts for pair in permutations(range(size), 2)]
        rng.shuffle(waiting)
        since = 0  # moves that were tried since the last that helped
        while since < len(waiting):
            key, (a, b) = waiting[0]
            law = list(counts[key])
            law[a], law[b] = law[a] - 1, law[b] + 1
            since += 1
            if law[a] >= (key[0] == "q"):
                trial = {**counts, key: tuple(law)}
                if (higher := problem.lost(trial, share)) > loss + 1e-7:
                    loss, counts, since = higher, trial, 0
                    continue  # the same way again
            waiting.append(waiting.pop(0))
    return loss, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rule", default="traversal")
    parser.add_argument("--tree", default="2x2", help="as 2x2; paths2x2: whole paths")
    parser.add_argument("--scheme", default="with_replacement")
    parser.add_argument("--vocab-size", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument("--doublings", type=int, default=5)
    parser.add_argument("--share", action="store_true", help="the loss as a share of the best")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    number, depth = given.tree.removeprefix("paths").split("x") if "x" in given.tree else (0, 0)
    is_paths = given.tree.startswith("paths")
    topology = whole_paths(int(number), int(depth)) if is_paths else parse_topology(given.tree)
    problem = Problem(given.rule, topology, given.scheme)
    rng = np.random.default_rng(given.seed)
    top = (-1.0, Counts())
    for _ in range(given.restarts):
        found = climbed(problem, given.vocab_size, rng, given.doublings, given.share)
        print(f"{found[0]:.6f}", flush=True)
        top = max(top, found, key=lambda one: one[0])
    counts = top[1]
    accepted, best = problem.accepted(counts), problem.best(counts, 1e-10)
    print(f"{given.rule}, {topology.name}, {given.scheme}:")
    print(f"  accepts {accepted}, {best - float(accepted):.6f} less than {best:.6f}")
    for (side, text), law in counts.items():
        print(f"  {side}({'.'.join(map(str, text))}) = {law} / {sum(law)}")


if __name__ == "__main__":
    main()
