"""Where on the vocabulary drafts are rejected: docs/images/rejected-drafts.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path

IMAGES = Path(__file__).parents[1] / "images"
VERIFIERS = ("rrs", "optimal")
NUM_DRAFTS = 4
TRIALS = 500
BINS = np.linspace(-4, 4, 33)  # of log2 p/q


def main() -> None:
    sample = np.load(sample_logits_path())
    drawn = np.zeros(BINS.size - 1)  # share of all drafts, by p/q
    rejected = {
        name: np.zeros(BINS.size - 1) for name in VERIFIERS
    }  # none of the step accepted
    rng = np.random.default_rng(0)
    for target, draft in zip(sample["target"], sample["draft"], strict=True):
        problem = mo.TransportProblem.from_logits(target, draft, NUM_DRAFTS)
        p, q = problem.target, problem.drafts.q
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.clip(np.log2(p / q), BINS[0], BINS[-1])
        drawn += np.histogram(place[q > 0], BINS, weights=q[q > 0])[0]
        drafts = problem.drafts.sample(rng, TRIALS)
        rows = [np.broadcast_to(x, (TRIALS, x.size)) for x in (p, q)]
        for name in VERIFIERS:
            found = mo.verifiers.get(name).verify_batch(*rows, drafts, rng)
            lost = drafts[~found.accepted]
            rejected[name] += np.histogram(place[lost], BINS)[0] / drafts.size
    steps = len(sample["target"])

    figure = Figure(figsize=(7.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.stairs(drawn / steps, BINS, color="0.85", fill=True, label="all drafts")
    for name, colour in zip(VERIFIERS, ("C3", "C0"), strict=True):
        share = rejected[name] / steps
        label = f"in steps that reject them all, '{name}': {share.sum():.3f}"
        axes.stairs(share, BINS, color=colour, fill=True, label=label)
        print(f"{name:10} {share.sum():.4f}")
    axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
    ticks = np.arange(BINS[0], BINS[-1] + 1)
    names = [f"{2.0**x:g}" if x >= 0 else f"1/{2.0**-x:g}" for x in ticks]
    axes.set_xticks(ticks, ["≤ " + names[0], *names[1:-1], "≥ " + names[-1]])
    axes.set(xlabel="p/q of the draft token", ylabel="share of all drafts")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    figure.savefig(IMAGES / "rejected-drafts.png", dpi=110)


if __name__ == "__main__":
    main()
