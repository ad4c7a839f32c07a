"""Acceptance on the bundled logits, each line with its name: docs/images/acceptance-labels.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path

IMAGES = Path(__file__).parents[1] / "images"
COUNTS = list(range(1, 9))

#: Scheme, verifier, name at the line's end, colour, style and how far the name is moved up.
LINES = (
    (
        "without_replacement",
        "optimal",
        "optimal, without replacement",
        "C1",
        "-",
        0.012,
    ),
    ("with_replacement", "optimal", "optimal, with replacement", "C0", "-", -0.004),
    ("with_replacement", "kseq", "kseq, with replacement", "C0", ":", 0.004),
    ("greedy", "optimal", "optimal, greedy", "C2", "-", -0.009),
    ("with_replacement", "rrs", "rrs, with replacement", "C0", "--", -0.014),
)


def main() -> None:
    with np.load(sample_logits_path()) as sample:
        target, draft = sample["target"], sample["draft"]

    def rates(scheme: str, verifier: str) -> np.ndarray:
        found = mo.acceptance_rates(
            target, draft, COUNTS, drafts=scheme, verifier=verifier
        )
        return found.reshape(-1, len(COUNTS)).mean(axis=0)

    figure = Figure(figsize=(8.0, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3.2, 1))
    for scheme, verifier, name, color, style, up in LINES:
        y = rates(scheme, verifier)
        left.plot(COUNTS, y, color=color, linestyle=style)
        left.text(8.15, y[-1] + up, name, color=color, va="center", fontsize=8)
    left.set_xlim(1, 12.6)
    left.set_xticks(COUNTS)
    left.set_title("drawn drafts", fontsize=9)
    top = rates("top_k", "optimal")
    right.plot(COUNTS, top, color="C3")
    right.text(
        8, top[-1] + 0.03, "optimal, top-K", color="C3", ha="right", fontsize=8
    )
    right.set_ylim(0, 1)
    right.set_xticks(COUNTS[1::2])
    right.set_title("the K likeliest tokens", fontsize=9)
    for axes in (left, right):
        axes.set_xlabel("number of drafts K")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    left.set_ylabel("acceptance rate")
    figure.savefig(IMAGES / "acceptance-labels.png", dpi=130)


if __name__ == "__main__":
    main()
