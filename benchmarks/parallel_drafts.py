"""Trees of a drafter with one law per position: certain ones beside trees that are drawn.

Models of sixteen tokens and four positions, whose logits are those of the position plus those of
the token before: the drafter has the marginal law of each position. Of each model one tree is
drawn; certain trees need no draws. With --laws, the marginal law beside the one that accepts most.
Prints Markdown.

    python benchmarks/parallel_drafts.py [--models 200]
    python benchmarks/parallel_drafts.py --laws [--models 200]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from parallel_trees import best_first, by_position
from shared_laws import blind_bound, shared_law

import mdsd_opt as mo
from mdsd_opt.decoding import Topology, get_rule, grow, place_rates, plan_tree

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
    parser.add_argument("--laws", action="store_true", help="laws of one position alone")
    asked = parser.parse_args()
    if asked.laws:
        laws(asked.models)
        return
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


def laws(models: int) -> None:
    """Print the acceptance of drafts for one position, by laws that know no other token.

    Positions two to four, after the target's own tokens, in the mean; K > 1 for a tenth of the
    models.
    """
    print("| dependence | K | marginal | best law | gain | most that any drafts reach |")
    print("|---|---|---|---|---|---|")
    for dependence in (0.5, 1.0, 2.0):
        for k in (1, 2, 3):
            rows = []
            for seed in range(models if k == 1 else models // 10):
                of_positions = []
                for targets, weights in along(Model(seed, dependence, 1.0)):
                    rates = mo.acceptance_rates(targets, weights @ targets, k, kind="probs")
                    best = shared_law(targets, weights, k, tolerance=1e-4)
                    bound = blind_bound(targets, weights, k, inclusion=k > 2)  # else minutes
                    of_positions.append((weights @ rates, best.acceptance_rate, bound))
                rows.append(np.mean(of_positions, axis=0))
            by_marginal, by_best, bounds = (list(column) for column in zip(*rows, strict=True))
            ahead = [b - a for a, b in zip(by_marginal, by_best, strict=True)]
            cells = " | ".join(map(precise, (by_marginal, by_best, ahead, bounds)))
            print(f"| {dependence} | {k} | {cells} |", flush=True)


def along(model: Model) -> Iterator[tuple[Array, Array]]:
    """Laws [last token, V] of the positions after the first, and the law of that token."""
    weights = model.first
    for rows in model.laws[1:POSITIONS]:
        yield rows, weights
        weights = weights @ rows


def precise(values: list[float]) -> str:
    return f"{np.mean(values):.4f} ± {2 * np.std(values) / np.sqrt(len(values)):.4f}"


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
