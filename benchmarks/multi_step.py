"""Distance of the rules for trees from the exact optimum: random tables, all trees enumerated.

    python benchmarks/multi_step.py [--instances 12]

On a real model's texts: tree_rules.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from mdsd_opt.decoding import Topology, get_rule, k_ary, tree_optimum, whole_paths

RULES = ("traversal_hull", "level_sequential", "traversal", "optimal", "rrs")

WITH, WITHOUT = "with_replacement", "without_replacement"
FIRST = Topology({(): 2, (0,): 1}, "2, the first goes on")
THREE_TWO = Topology({(): 3, (0,): 2}, "3, the first has 2")
MIXED = Topology({(): 3, (0,): 2, (1,): 1, (0, 0): 1}, "3-2-1")
COMB = Topology({(): 3, (0,): 2, (0, 0): 2}, "comb 3-2-2")
CASES = (
    (k_ary(2, 2), WITH, 2), (k_ary(2, 2), WITH, 3), (k_ary(2, 2), WITHOUT, 3),
    (FIRST, WITH, 3), (THREE_TWO, WITH, 3), (MIXED, WITH, 2), (COMB, WITH, 2),
    (THREE_TWO, WITHOUT, 3), (MIXED, WITHOUT, 2), (k_ary(2, 3), WITH, 2),
)  # fmt: skip
PATHS = (
    (whole_paths(2, 2), WITH, 2), (whole_paths(2, 2), WITH, 3), (whole_paths(3, 2), WITH, 3),
    (whole_paths(2, 3), WITH, 2), (whole_paths(2, 3), WITH, 3),
)  # fmt: skip


def tiny(
    cases: tuple[tuple[Topology, str, int], ...], rules: tuple[str, ...], instances: int
) -> None:
    """Print the mean and the largest gap to the exact optimum."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.tables import Table, trees

    print(f"| tree | drafts | V | optimum | {' | '.join(rules)} |")
    for topology, scheme, vocab_size in cases:
        gaps: dict[str, list[float]] = {name: [] for name in rules}
        best = []
        for seed in range(instances):
            rng = np.random.default_rng(seed)
            draft = Table(rng, vocab_size, topology.depth)
            target = Table(rng, vocab_size, topology.depth, near=draft)
            best.append(tree_optimum(target, draft, topology, scheme))
            accepted = dict.fromkeys(rules, 0.0)
            for root, probability in trees(draft, topology, scheme):
                for node in root.walk():
                    node.target = target(node.tokens)
                for name in rules:
                    accepted[name] += probability * get_rule(name).expected_accepted(root)
            for name in rules:
                gaps[name].append(best[-1] - accepted[name])
        cells = " | ".join(f"{np.mean(g):.4f} / {max(g):.3f}" for g in gaps.values())
        print(f"| {topology.name} | {scheme} | {vocab_size} | {np.mean(best):.3f} | {cells} |",
              flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, default=12)
    instances = parser.parse_args().instances
    tiny(CASES, RULES, instances)
    tiny(PATHS, (*RULES, "greedy_multi_path"), instances)


if __name__ == "__main__":
    main()
