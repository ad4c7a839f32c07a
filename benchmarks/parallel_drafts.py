"""Trees of a drafter with one law per position: certain ones beside trees that are drawn.

Models of sixteen tokens and four positions, whose logits are those of the position plus those of
the token before: the drafter has the marginal law of each position, the best there is for it. Of
each model one tree is drawn; certain trees need no draws. Prints Markdown.

    python benchmarks/parallel_drafts.py [--models 200]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import mdsd_opt as mo
from mdsd_opt.decoding import (
    Topology,
    best_first,
    by_position,
    get_rule,
    grow,
    place_rates,
    plan_tree,
)

Array = np.ndarray
TOKENS, POSITIONS, DRAFTS, FITTED = 16, 4, 16, 100
DRAWN = "without_replacement"


class Model:
    """Model whose logits mix those of the position and of the last token, by a given share."""

    def __init__(self, seed: int, dependence: float, temperature: float) -> None:
        rng = np.random.default_rng([seed, round(100 * dependence)])
        positions = 1.5 * rng.standard_normal((POSITIONS + 1, TOKENS))
        after = dependence * rng.standard_normal((TOKENS, TOKENS))
        plain = [mo.softmax(row + after) for row in positions]  # [position][last token]
        self.laws = [mo.softmax(row + after, temperature) for row in positions]
        self.first = mo.softmax(positions[0], temperature)
        marginals = [mo.softmax(positions[0])]
        for rows in plain[1:POSITIONS]:
            marginals.append(marginals[-1] @ rows)
        self.drafter = np.stack([mo.softmax(np.log(law), temperature) for law in marginals])

    def __call__(self, text: tuple[int, ...]) -> Array:
        return self.laws[len(text)][text[-1]] if text else self.first

    def probability(self, text: tuple[int, ...]) -> float:
        return float(np.prod([self(text[:n])[token] for n, token in enumerate(text)]))


def visited(model: Model, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Laws along a text of the target's own, with those of the drafter."""
    text: tuple[int, ...] = ()
    for position in range(POSITIONS):
        law = model(text)
        yield law, model.drafter[position]
        text = (*text, int(rng.choice(TOKENS, p=law)))


def planned(dependence: float, temperature: float) -> Topology:
    """Plan for other models of the same kind."""
    rng = np.random.default_rng(0)
    models = (Model(10_000 + n, dependence, temperature) for n in range(FITTED))
    rows = [pair for model in models for pair in visited(model, rng)]
    target, draft = (
        np.log(np.maximum(side, 1e-30)) for side in map(np.array, zip(*rows, strict=True))
    )
    table = place_rates(target, draft, 8, DRAWN)
    return plan_tree(table, DRAFTS, max_depth=POSITIONS).topology


def certain(model: Model, laws: Array) -> float:
    """Accepted drafts of the likeliest texts, by the target's own draws: the sum of p over them."""
    rng = np.random.default_rng(0)
    tree = grow(by_position(laws), best_first(laws, DRAFTS), "top_k", rng)
    return sum(model.probability(node.tokens) for node in tree.walk()[1:])


def drawn(model: Model, topology: Topology, rng: np.random.Generator) -> float:
    tree = grow(by_position(model.drafter), topology, DRAWN, rng)
    for node in tree.walk():
        node.target = model(node.tokens)
    return get_rule("traversal_hull").expected_accepted(tree)


def mean(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ± {2 * np.std(values) / np.sqrt(len(values)):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=200)
    asked = parser.parse_args()
    print("| dependence | T | certain | drawn | drawn less certain | bound of all certain trees |")
    print("|---|---|---|---|---|---|")
    for dependence in (0.5, 1.0, 2.0):
        for temperature in (1.0, 0.6, 0.3):
            topology, rng = planned(dependence, temperature), np.random.default_rng(1)
            rows = []
            for seed in range(asked.models):
                model = Model(seed, dependence, temperature)
                rows.append(
                    (certain(model, model.drafter), drawn(model, topology, rng), most(model))
                )
            fixed, sampled, best = (list(column) for column in zip(*rows, strict=True))
            ahead = [b - a for a, b in zip(fixed, sampled, strict=True)]
            cells = " | ".join(map(mean, (fixed, sampled, ahead, best)))
            print(f"| {dependence} | {temperature} | {cells} |", flush=True)


def most(model: Model) -> float:
    """Sum of p over the texts that are likeliest under the target, which bounds certain trees."""
    texts = [((token,), p) for token, p in enumerate(model(()).tolist())]
    found = 0.0
    for _ in range(DRAFTS):
        best = max(range(len(texts)), key=lambda n: texts[n][1])
        text, p = texts.pop(best)
        found += p
        if len(text) < POSITIONS:
            texts += [((*text, t), p * x) for t, x in enumerate(model(text).tolist())]
    return found


if __name__ == "__main__":
    main()
