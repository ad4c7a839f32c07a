"""Each verifier on the bundled logits, drafts with replacement: docs/images/verifier-gaps.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path

IMAGES = Path(__file__).parents[1] / "images"
VERIFIERS = ("optimal", "kseq", "rrs", "single_draft", "naive_target")
NUM_DRAFTS = range(1, 9)


def main() -> None:
    sample = np.load(sample_logits_path())
    means = {
        name: [
            mo.acceptance_rates(
                sample["target"], sample["draft"], k, verifier=name
            ).mean()
            for k in NUM_DRAFTS
        ]
        for name in VERIFIERS
    }
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    rate, gap = figure.subplots(1, 2)
    best = np.array(means["optimal"])
    for number, (name, values) in enumerate(means.items()):
        style = {
            "color": f"C{number}",
            "marker": "osD^v"[number],
            "ms": 4,
            "label": name,
        }
        rate.plot(NUM_DRAFTS, values, **style)
        if name not in ("optimal", "naive_target"):
            gap.plot(NUM_DRAFTS, np.maximum(best - values, 0), **style)
    rate.set(xlabel="number of drafts K", ylabel="acceptance rate", ylim=(0, 1.02))
    gap.set(xlabel="number of drafts K", ylabel="below the optimum", ylim=(0, 0.2))
    for axes in (rate, gap):
        axes.grid(alpha=0.3)
        axes.set_xticks(list(NUM_DRAFTS))
    rate.legend(fontsize=8)
    figure.savefig(IMAGES / "verifier-gaps.png", dpi=110)
    for name, values in means.items():
        print(f"{name:14}", " ".join(f"{value:.4f}" for value in values))


if __name__ == "__main__":
    main()
