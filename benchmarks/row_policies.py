"""A budget of rows over a batch: the best allocation, and what can be had from q alone.

    python benchmarks/row_policies.py

The bundled logits are 14 texts of three positions; all 42 make one batch. A policy that sees q
alone predicts the rates of a row from rows of the *other* texts: those of the nearest entropy of q,
or of the nearest largest probability. It then shares the budget out by what it predicts. Prints
Markdown.
"""

from __future__ import annotations

import numpy as np

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path

MOST, NEAREST, TEXT = 12, 9, 3


def predicted(rates: np.ndarray, feature: np.ndarray) -> np.ndarray:
    """Mean rates of the rows of other texts whose feature is nearest."""
    texts = np.arange(len(rates)) // TEXT
    rows = []
    for row, text in enumerate(texts):
        others = np.flatnonzero(texts != text)
        near = others[np.argsort(np.abs(feature[others] - feature[row]))[:NEAREST]]
        rows.append(rates[near].mean(axis=0))
    return np.array(rows)


def main() -> None:
    sample = np.load(sample_logits_path())
    q = mo.softmax(sample["draft"])
    entropy = -(q * np.log(np.maximum(q, 1e-300))).sum(axis=1)
    features = {"entropy of q": entropy, "largest q": q.max(axis=1)}
    print(f"| drafts | rows a request | uniform | best | {' | '.join(features)} |")
    print("|---" * 6 + "|")
    for scheme in ("with_replacement", "without_replacement"):
        rates = mo.acceptance_rates(
            sample["target"], sample["draft"], num_drafts=list(range(1, MOST + 1)), drafts=scheme
        )
        for each in (1, 2, 3, 4):
            budget = each * len(rates)
            best = mo.allocate_rows(rates, budget)
            cells = [best.uniform_rate, best.acceptance_rate]
            for feature in features.values():
                chosen = mo.allocate_rows(predicted(rates, feature), budget).num_drafts
                with_none = np.column_stack([np.zeros(len(rates)), rates])
                cells.append(with_none[np.arange(len(rates)), chosen].mean())
            shown = " | ".join(f"{cell:.3f}" for cell in cells)
            print(f"| {scheme.replace('_', ' ')} | {each} | {shown} |")


if __name__ == "__main__":
    main()
