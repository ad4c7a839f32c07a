"""Targets of three tokens, and their best acceptance: docs/images/acceptance-region.png."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import mdsd_opt as mo

IMAGES = Path(__file__).parents[1] / "images"
HEIGHT = np.sqrt(3) / 2
CASES = (
    ("with replacement, q uniform", mo.WithReplacement([1 / 3] * 3, 2)),
    ("with replacement, q = (.6, .3, .1)", mo.WithReplacement([0.6, 0.3, 0.1], 2)),
    (
        "without replacement, q = (.6, .3, .1)",
        mo.WithoutReplacement([0.6, 0.3, 0.1], 2),
    ),
)


def corner_coordinates(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Place of p, shape (..., 3), in a triangle with token 0 left, 1 right, 2 on top."""
    return p[..., 1] + p[..., 2] / 2, p[..., 2] * HEIGHT


def optimum(p: np.ndarray, drafts: mo.WithReplacement) -> np.ndarray:
    """1 + min over all subsets of P(H) - Q(H), for targets of shape (n, 3)."""
    subsets = [np.array(s) for s in product([False, True], repeat=3)]
    return np.min(
        [1 + p[:, s].sum(axis=1) - drafts.containment(s) for s in subsets], axis=0
    )


def main() -> None:
    steps = 160
    grid = np.array(
        [
            (i, j, steps - i - j)
            for i in range(steps + 1)
            for j in range(steps + 1 - i)
        ]
    )
    p = grid / steps
    x, y = corner_coordinates(p)
    figure = Figure(figsize=(10.6, 3.7), layout="constrained")
    panels = figure.subplots(1, 3)
    bands = np.arange(0.3, 1.0001, 0.1)
    for axes, (title, drafts) in zip(panels, CASES, strict=True):
        alpha = np.minimum(optimum(p, drafts), 1 - 1e-9)
        shades = axes.tricontourf(
            x, y, alpha, levels=bands, cmap="viridis", extend="min"
        )
        axes.tricontourf(
            x,
            y,
            optimum(p, drafts),
            levels=[1 - 1e-6, 2],
            colors="white",
            alpha=0.6,
        )
        one = axes.tricontour(
            x, y, optimum(p, drafts), levels=[1 - 1e-6], colors="red"
        )
        one.set_linewidth(2)
        axes.plot([], [], color="red", linewidth=2, label="inside: always accepted")
        qx, qy = corner_coordinates(drafts.q)
        axes.plot(qx, qy, "o", color="black", mfc="white", label="draft q")
        for token, (cx, cy) in enumerate(
            ((0, -0.06), (1, -0.06), (0.5, HEIGHT + 0.04))
        ):
            axes.text(
                cx, cy, f"token {token}", ha="center", va="center", fontsize=8
            )
        axes.set_aspect("equal")
        axes.axis("off")
        axes.set_title(title, fontsize=10, pad=14)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    figure.colorbar(shades, ax=panels, label="optimal acceptance rate", shrink=0.85)
    figure.savefig(IMAGES / "acceptance-region.png", dpi=110)


if __name__ == "__main__":
    main()
