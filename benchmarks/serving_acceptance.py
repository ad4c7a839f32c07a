"""Acceptance of the rules of `mdsd_opt.serving`, on the bundled logits, as a table.

One node: top-K and greedy drafts by `verify_tree`, independent draws by `verify_tree_of_draws`,
and draws without replacement by `verify_tree` (the last one as drawn, the others as certain) and
by recursive rejection, both over sampled drafts, beside the optimum of each.

    python benchmarks/serving_acceptance.py [--samples 12]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.serving import selection
from mdsd_opt.verifiers.rejection import without

NUM_DRAFTS, TEMPERATURES = (2, 4, 8), (1.0, 0.6)


def by_bins(p: Any, q: Any, num_drafts: int) -> Any:
    """Acceptance of independent draws on the bins of the operation."""
    laws = [torch.tensor(np.float32(x)) for x in (p, q)]
    bins = selection.bins_of(*laws)
    plans = [
        selection.plan_of(sums, num_drafts) for sums in selection.bin_sums(*laws, bins).numpy()
    ]
    ratios = [np.append(marginal.ratio, 0.0)[groups.place] for groups, marginal in plans]
    return np.minimum(p, np.take_along_axis(np.array(ratios), bins.long().numpy(), 1) * q).sum(1)


def last_one_drawn(p: Any, q: Any, draws: Any) -> float:
    """Acceptance if all draws but the last count as certain."""
    certain = draws[:-1]
    rest, target = q.copy(), p.copy()
    rest[certain] = target[certain] = 0.0
    return float(p[certain].sum() + np.minimum(target, rest / rest.sum()).sum())


def recursive_rejection(p: Any, q: Any, draws: Any) -> float:
    """Acceptance if draws are tried one after another."""
    left = 1.0
    for token in draws:
        left *= 1.0 - min(1.0, p[token] / q[token])
        p = np.maximum(p - q, 0.0)
        if p.sum() <= 0.0:
            break
        p, q = p / p.sum(), without(q, token)
    return 1.0 - left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12, help="drafts drawn at each position")
    samples = parser.parse_args().samples
    rng = np.random.default_rng(0)
    with np.load(sample_logits_path()) as sample:
        logits = [sample[name].astype(np.float64) for name in ("target", "draft")]
    print("| T | K | top-K | greedy | independent | their optimum | without replacement, optimum |"
          " last one drawn | recursive rejection |\n|" + "---|" * 9)  # fmt: skip
    for temperature in TEMPERATURES:
        p, q = ([mo.softmax(row, temperature) for row in x] for x in logits)
        for num_drafts in NUM_DRAFTS:
            best = {
                scheme: mo.acceptance_rates(
                    *logits, num_drafts, drafts=scheme, temperature=temperature
                ).mean()
                for scheme in ("top_k", "greedy", "with_replacement", "without_replacement")
            }
            tried = []
            for target, draft in zip(p, q, strict=True):
                keys = rng.exponential(size=(samples, draft.size)) / np.maximum(draft, 1e-300)
                draws = np.argsort(keys, axis=1)[:, :num_drafts]
                tried += [[f(target, draft, row) for f in (last_one_drawn, recursive_rejection)]
                          for row in draws]  # fmt: skip
            binned = by_bins(np.array(p), np.array(q), num_drafts).mean()
            row = [best["top_k"], best["greedy"], binned, best["with_replacement"],
                   best["without_replacement"], *np.mean(tried, axis=0)]  # fmt: skip
            cells = " | ".join(f"{x:.4f}" for x in row)
            print(f"| {temperature:g} | {num_drafts} | {cells} |")


if __name__ == "__main__":
    main()
