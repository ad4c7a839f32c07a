"""Speed of relaxed rates beside acceptance rates, and their error: a table in Markdown.

Both are timed in one process, a round each in turn, on float32 logits and one thread; a time is the
median over the rounds, per position. The error is against the frontier token by token.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.bench.record import timed
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.solvers.frontier.curve import CostCurve, frontier_of

BUDGETS = (0.001, 0.01, 0.1)
COUNTS = (1, 2, 4)
ROUNDS = 15
ROWS = 6


def main() -> None:
    sample = np.load(sample_logits_path())
    target, draft = (sample[name].astype(np.float32) for name in ("target", "draft"))
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"numpy {np.__version__}, V = {target.shape[1]:,}\n")  # fmt: skip
    print("| drafts | K | budgets | ms a position | times `acceptance_rates` | largest error |")
    print("|---|---|---|---|---|---|")
    for scheme in (*SINGLE_MODEL_SCHEMES, tuple(SINGLE_MODEL_SCHEMES)):
        for counts, budgets in (((2,), BUDGETS[1:2]), (COUNTS, BUDGETS)):
            line(target, draft, scheme, counts, budgets)


def line(
    target: Any,
    draft: Any,
    schemes: str | tuple[str, ...],
    counts: tuple[int, ...],
    budgets: tuple[float, ...],
) -> None:
    listed = (schemes,) if isinstance(schemes, str) else schemes
    rows = target[:ROWS], draft[:ROWS]
    seconds = timed(
        {
            "relaxed": lambda: mo.relaxed_rates(*rows, counts, listed, kl=budgets, num_threads=1),
            "lossless": lambda: [
                mo.acceptance_rates(*rows, counts, scheme, num_threads=1) for scheme in listed
            ],
        },
        ROUNDS,
    )
    found = mo.relaxed_rates(*rows, counts, listed, kl=budgets)
    error = 0.0
    for place in np.ndindex(found.shape[:3]):
        row, s, k = place
        problem = mo.TransportProblem.from_logits(target[row], draft[row], counts[k], listed[s])
        costs = CostCurve.of(frontier_of(problem))
        exact = [costs.rate_within("kl", budget) for budget in budgets]
        error = max(error, float(np.abs(found[place] - exact).max()))
    ratio = np.median(seconds["relaxed"] / seconds["lossless"])
    each = 1e3 * np.median(seconds["relaxed"]) / ROWS
    name = schemes if isinstance(schemes, str) else "all four"
    print(
        f"| {name} | {', '.join(map(str, counts))} | {len(budgets)} | {each:.2f} | {ratio:.1f} "
        f"| {error:.0e} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
