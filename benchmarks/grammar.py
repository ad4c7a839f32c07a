"""Acceptance under a grammar: the target masked, both models masked, and targets that are lifted.

Texts of six tokens from six: two brackets, which have to match, and four letters. The target is a
chain whose logits depend on the token before, the draft the same with noise. How likely a text
ends well is computed from its end, exactly, and so are the law of all texts and the acceptance at
each place, over the texts that are written. Prints Markdown; the models have seeds from 0.

    python benchmarks/grammar.py [--models 100] [--spread 1.5] [--noise 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import mdsd_opt as mo

Array = np.ndarray
Place = tuple[int, int, int]  # tokens written, brackets open, the token before
LENGTH, TOKENS, DRAFTS = 6, 6, (1, 3)
OPEN, CLOSE = 0, 1


def after(place: Place, token: int) -> Place | None:
    """Place after a token, unless no text that ends well goes on from there."""
    written, depth, _ = place
    depth += {OPEN: 1, CLOSE: -1}.get(token, 0)
    left = LENGTH - written - 1
    return (written + 1, depth, token) if 0 <= depth <= left else None


def places(start: Place) -> Iterator[Place]:
    """All places where a token is written, the first one first."""
    found, new = {start}, [start]
    while new:
        place = new.pop()
        yield place
        following = {after(place, token) for token in range(TOKENS)}
        for x in following - found:
            if x is not None and x[0] < LENGTH:
                found.add(x)
                new.append(x)


class Chain:
    """Laws of the next token by the token before, and what the grammar makes of them."""

    def __init__(self, logits: Array) -> None:
        self.laws = mo.softmax(logits)
        self.known: dict[Place, float] = {}

    def ends_well(self, place: Place | None) -> float:
        """Probability that the text goes on as the grammar has it."""
        if place is None:
            return 0.0
        if place[0] == LENGTH:
            return 1.0
        if place not in self.known:
            self.known[place] = float(self.laws[place[2]] @ self.lift(place))
        return self.known[place]

    def lift(self, place: Place) -> Array:
        """The same after each token."""
        return np.array([self.ends_well(after(place, token)) for token in range(TOKENS)])


def text_laws(steps: list[dict[Place, Array]], start: Place) -> list[dict[tuple[int, ...], float]]:
    """Laws of whole texts by the laws of the next token."""
    found = []
    for law in steps:
        texts = {(): (1.0, start)}
        for _ in range(LENGTH):
            texts = {
                (*text, token): (mass * law[place][token], following)
                for text, (mass, place) in texts.items()
                for token in range(TOKENS)
                if (following := after(place, token)) is not None
            }
        found.append({text: mass for text, (mass, _) in texts.items()})
    return found


def visits(law: dict[Place, Array], start: Place) -> dict[Place, float]:
    """Probability that a text comes by each place."""
    found = {start: 1.0}
    for place in sorted(law):
        for token, mass in enumerate(law[place]):
            following = after(place, token)
            if following is not None and following[0] < LENGTH:
                found[following] = found.get(following, 0.0) + found.get(place, 0.0) * mass
    return found


def measured(seed: int, spread: float, noise: float) -> Array:
    """Distance of the masked texts from the law given the grammar, and rates [way, K]."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.standard_normal((TOKENS, TOKENS))
    target, draft = Chain(logits), Chain(logits + noise * rng.standard_normal((TOKENS, TOKENS)))
    start = (0, 0, 2)
    found = sorted(places(start))
    p, q = (np.log([chain.laws[place[2]] for place in found]) for chain in (target, draft))
    phi, own = (np.array([chain.lift(place) for place in found]) for chain in (target, draft))
    mask = phi > 0
    cut, raised = mo.softmax(np.where(mask, p, -np.inf)), np.exp(p) * phi
    raised /= raised.sum(-1, keepdims=True)
    laws = [dict(zip(found, rows, strict=True)) for rows in (cut, raised)]
    masked_texts, lifted_texts = text_laws(laws, start)
    away = sum(abs(masked_texts[text] - lifted_texts[text]) for text in masked_texts) / 2
    q_cut = np.where(mask, q, -np.inf)
    with np.errstate(divide="ignore"):
        q_own = q + np.log(own)
    common = {"num_drafts": DRAFTS, "drafts": "without_replacement", "kind": "logits"}
    lifted = {**common, "lift": phi, "mask_draft": False}
    ways = [
        (0, mo.acceptance_rates(p, q, mask=mask, mask_draft=False, **common)),
        (0, mo.acceptance_rates(p, q, mask=mask, **common)),
        (1, mo.acceptance_rates(p, q_cut, **lifted)),
        (1, mo.acceptance_rates(p, q, **{**lifted, "mask_draft": True})),
        (1, mo.acceptance_rates(p, q_own, **lifted)),
    ]
    rows = [[away, away]]
    for number, rates in ways:
        seen = visits(laws[number], start)
        weights = np.array([seen.get(place, 0.0) for place in found]) / LENGTH
        rows.append(weights @ rates)
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--spread", type=float, default=1.5)
    parser.add_argument("--noise", type=float, default=1.0)
    chosen = parser.parse_args()
    found = np.array([measured(n, chosen.spread, chosen.noise) for n in range(chosen.models)])
    away = found[:, 0, 0]
    print(f"{chosen.models} models; masked texts are {away.mean():.3f} from the law given the ")
    print(f"grammar in total variation ({away.min():.3f} to {away.max():.3f})\n")
    print("| target | draft | K = 1 | K = 3 |\n|---|---|---|---|")
    names = (
        "masked | as it is", "masked | masked", "lifted | masked", "lifted | lifted by the same",
        "lifted | lifted by its own",
    )  # fmt: skip
    for name, rates in zip(names, found[:, 1:].mean(axis=0), strict=True):
        print(f"| {name} | {' | '.join(f'{rate:.3f}' for rate in rates)} |")


if __name__ == "__main__":
    main()
