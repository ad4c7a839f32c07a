"""Rules of papers beside ours: UniVer on random tables, and SpecTr-GBV's code on single problems.

    python benchmarks/published_rules.py [--instances 60]
    python benchmarks/published_rules.py --orders [--instances 60]

With --orders, the orders in which a node's drafts are tested, and the best of all orders.

The rules are in tests/support/published_rules.py, written anew from descriptions. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

import mdsd_opt as mo
from mdsd_opt.decoding import get_rule, k_ary, tree_optimum

ORDERS = ("by mass", "drawn child last", "drawn child first")
TESTED = (
    (k_ary(2, 2), "greedy", 3), (k_ary(2, 2), "greedy", 4), (k_ary(3, 2), "greedy", 4),
    (k_ary(2, 2), "with_replacement", 3), (k_ary(2, 2), "without_replacement", 3),
    (k_ary(2, 2), "without_replacement", 4), (k_ary(2, 3), "greedy", 3),
    (k_ary(2, 3), "with_replacement", 2),
)  # fmt: skip
CASES = ((k_ary(2, 1), 3), (k_ary(2, 2), 3), (k_ary(2, 2), 4), (k_ary(2, 3), 3))


def univer(instances: int) -> None:
    from support.published_rules import UniVer
    from support.tables import Table, trees

    print(f"| tree | V | below the optimum | {' | '.join(f'hull - {x}' for x in ORDERS)} |")
    print("|---|---|---|" + "---|" * len(ORDERS))
    rules = [get_rule("traversal_hull"), *map(UniVer, ORDERS)]
    for topology, vocab_size in CASES:
        rows = []
        for seed in range(instances):
            rng = np.random.default_rng(seed)
            draft = Table(rng, vocab_size, topology.depth)
            target = Table(rng, vocab_size, topology.depth, near=draft)
            accepted = np.zeros(len(rules))
            for root, probability in trees(draft, topology, "greedy"):
                for node in root.walk():
                    node.target = target(node.tokens)
                accepted += [probability * rule.expected_accepted(root) for rule in rules]
            best = tree_optimum(target, draft, topology, "greedy")
            rows.append([best - accepted[1], *(accepted[0] - accepted[1:])])
        gaps = np.array(rows).T
        cells = [f"{gaps[0].mean():.4f} / {gaps[0].max():.3f}"]
        cells += [f"{gap.mean():+.4f} / {np.abs(gap).max():.1e}" for gap in gaps[1:]]
        print(f"| {topology.name} | {vocab_size} | {' | '.join(cells)} |", flush=True)


def orders(instances: int) -> None:
    """Print how far orders of tests are below the best one, and that below the optimum."""
    from support import orders as known
    from support.tables import Table

    names = ("by_mass", "by_least_mass", "by_ratio", "as_drawn", "drawn_first", "drawn_last")
    print("Below the best order, mean / largest (share that is not below):\n")
    print(f"| tree | drafts | V | best below the optimum | {' | '.join(names)} | one level on | "
          "one level on less by mass, least |")  # fmt: skip
    print("|---" * (len(names) + 6) + "|")
    for topology, scheme, vocab_size in TESTED:
        ways = [name for name in names if scheme == "greedy" or not name.startswith("drawn")]
        rows = []
        for seed in range(instances):
            rng = np.random.default_rng(seed)
            draft = Table(rng, vocab_size, topology.depth)
            model = Table(rng, vocab_size, topology.depth, near=draft), draft, topology, scheme
            tried = [getattr(known, name) for name in ways] + [known.one_level_on(*model)]
            best = known.Orders(*model).accepted()
            below = [best - known.Orders(*model, order).accepted() for order in tried]
            rows.append([tree_optimum(*model) - best, *below])
        gaps = np.array(rows).T
        cells = [f"{gap.mean():.4f} / {gap.max():.3f} ({(gap < 1e-9).mean():.2f})" for gap in gaps]
        cells[-1:-1] = [""] * (len(names) - len(ways))
        print(f"| {topology.name} | {scheme} | {vocab_size} | {' | '.join(cells)} | "
              f"{(gaps[1] - gaps[-1]).min():+.4f} |", flush=True)  # fmt: skip


def law(*weights: int) -> np.ndarray:
    return np.array([Fraction(n, sum(weights)) for n in weights], dtype=object)


def spectr_gbv(problems: int) -> None:
    from support.published_rules import spectr_gbv_code, spectr_gbv_masses

    print("\n| p | q | paths | tokens a path | distance, by number of tokens | accepted |")
    print("|---|---|---|---|---|---|")
    pairs = (((5, 3, 1), (1, 1, 1), 1), ((1, 4), (2, 3), 2), ((1, 1), (1, 1), 1))
    for p, q, length in pairs:
        for num_paths in (1, 2, 3):
            found, mean = spectr_gbv_code(
                lambda text, p=p: law(*p), lambda text, q=q: law(*q), length, num_paths
            )
            right = law(*p)
            for _ in range(length):
                right = np.multiply.outer(right, law(*p))
            away = []
            for tokens in range(1, length + 2):
                rest = tuple(range(tokens, length + 1))
                away.append(f"{float(abs((found - right).sum(axis=rest)).sum() / 2):.4f}")
            print(f"| {p} | {q} | {num_paths} | {length} | {', '.join(away)} | {float(mean):.4f} |")
    rng, rows = np.random.default_rng(0), []
    for _ in range(problems):
        vocab_size, num_paths = int(rng.integers(2, 9)), int(rng.integers(2, 5))
        p, q = rng.dirichlet(np.ones(vocab_size), 2)
        problem = mo.TransportProblem(p, mo.WithReplacement(q, num_paths))
        design = float(spectr_gbv_masses(p, q, num_paths).sum())
        names = ("optimal", "kseq", "rrs")
        rows.append(
            [mo.verifiers.get(name).acceptance_rate(problem) - design for name in names]
        )  # fmt: skip
    ahead = np.array(rows)
    counts = ", ".join(
        f"{name} {int((column > 1e-9).sum())}"
        for name, column in zip(("optimal", "kseq", "rrs"), ahead.T, strict=True)
    )
    print(f"\nThe design of one token in {problems} random problems: below {counts};")
    print(f"below the optimum by {ahead[:, 0].mean():.4f} in the mean, {ahead[:, 0].max():.3f} at "
          f"most, {ahead[:, 0].min():.1e} at least.")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--orders", action="store_true", help="orders of tests alone")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    if asked.orders:
        orders(asked.instances)
        return
    spectr_gbv(300)
    univer(asked.instances)


if __name__ == "__main__":
    main()
