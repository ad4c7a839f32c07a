"""The hull rule on six tokens, level by level: docs/images/hull-rule.png."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import mdsd_opt as mo
from mdsd_opt.problem.water_filling import water_fill

IMAGES = Path(__file__).parents[1] / "images"
LEVELS = (0.0, 0.25, 0.5, 0.65, 0.75, 0.95)


def lower_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Vertices of the lower convex hull of points with ascending x, from left to right."""
    kept: list[int] = []
    for j in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2:]
            rise = (y[b] - y[a]) * (x[j] - x[b]) - (y[j] - y[b]) * (x[b] - x[a])
            if rise < -1e-12:
                break
            kept.pop()
        kept.append(j)
    return kept


def main() -> None:
    p, q = np.array([1, 1, 3, 4, 5, 6]) / 20, np.array([4, 4, 4, 3, 3, 2]) / 20
    problem = mo.TransportProblem(p, mo.WithReplacement(q, 3))
    subset = mo.solve(problem).subset
    selection = water_fill(
        problem.target, problem.drafts, subset, problem.drafts.containment(subset)
    )
    a = np.append(0.0, np.cumsum(q))
    r = np.append(0.0, np.cumsum(selection.values))
    f = problem.drafts.prefix_containment(np.arange(6))

    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    for number, (s, axes) in enumerate(
        zip(LEVELS, figure.subplots(2, 3).ravel(), strict=True)
    ):
        y = r - s * f
        hull = lower_hull(a, y)
        for block, (start, stop) in enumerate(pairwise(hull)):
            axes.axvspan(a[start], a[stop], color=f"C{block}", alpha=0.18, lw=0)
            names = ", ".join(str(i) for i in range(start + 1, stop + 1))
            axes.text(
                (a[start] + a[stop]) / 2,
                1.08,
                names,
                ha="center",
                va="center",
                fontsize=8,
            )
        axes.plot(a[hull], y[hull], color="black", lw=1.5)
        axes.plot(a, y, "o", color="black", ms=4, mfc="white")
        axes.plot(a[hull], y[hull], "o", color="black", ms=4)
        axes.axvline(q[subset].sum(), color="C3", ls=":", lw=1.5)
        axes.set(
            xlim=(0, 1),
            ylim=(-0.06, 1.16),
            xticks=(0, 0.2, 0.4, 0.6, 0.8, 1),
            title=f"s = {s:g}",
        )
        axes.tick_params(labelsize=8)
        if number % 3 == 0:
            axes.set_ylabel("$R_j - s\\,F_j$")
        if number >= 3:
            axes.set_xlabel("$A_j$, prefix sums of q")
    figure.savefig(IMAGES / "hull-rule.png", dpi=110)


if __name__ == "__main__":
    main()
