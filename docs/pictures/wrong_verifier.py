"""A wrong verifier as the audit sees it: docs/images/wrong-verifier.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.plots.deviations import audit_figure

IMAGES = Path(__file__).parents[1] / "images"


def engine(
    target, draft, drafts, rng
):  # tests every draft against the whole target
    for x in drafts:
        if rng.random() * draft[x] < target[x]:
            return int(x)
    residual = np.maximum(target - draft, 0)
    return int(rng.choice(len(target), p=residual / residual.sum()))


def main() -> None:
    sample = np.load(sample_logits_path())
    problem = mo.TransportProblem.from_logits(
        sample["target"][0], sample["draft"][0], num_drafts=3, top_k=12
    )
    report = mo.audit(engine, problem, rng=0, num_trials=600)
    print(report)
    audit_figure(report).savefig(IMAGES / "wrong-verifier.png", dpi=300)


if __name__ == "__main__":
    main()
