"""What certain and drawn trees accept by their number of drafts, and how near q must be to p.

Models without memory, by the types of texts: the best certain tree, that of the drafter, and bounds
for trees that are drawn with replacement. With --small, models of two to four tokens whose drafts
are a mixture of the target and another model: the certified optimum of each drawn tree beside the
best certain one. Prints Markdown.

    python benchmarks/tree_growth.py
    python benchmarks/tree_growth.py --small [--models 12]      # some minutes
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from itertools import product
from math import factorial, log, prod

import numpy as np

from mdsd_opt.decoding import Topology, tree_bound

Array = np.ndarray
Text, Law = tuple[int, ...], tuple[float, ...]
DRAWN = "without_replacement"

MEMORYLESS = (
    ((0.6, 0.4), (0.4, 0.6)), ((0.8, 0.2), (0.5, 0.5)), ((0.9, 0.1), (0.5, 0.5)),
    ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5)),
)  # fmt: skip
SIZES = (1, 4, 16, 256, 65_536)
SMALL, NUMBERS = ((2, 3), (3, 2), (4, 2)), (2, 3, 4)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def types(vocab_size: int, length: int) -> Iterator[Text]:
    """How often each token is in a text."""
    if vocab_size == 1:
        yield (length,)
        return
    for first in range(length + 1):
        for rest in types(vocab_size - 1, length - first):
            yield (first, *rest)


@cache
def level(p: Law, q: Law, length: int) -> Array:
    """Number of texts of each type, and one's log probabilities under p and q, shape (3, N)."""
    rows = [
        (
            float(factorial(length) // prod(map(factorial, t))),
            sum(n * log(x) for n, x in zip(t, p, strict=True)),
            sum(n * log(x) for n, x in zip(t, q, strict=True)),
        )
        for t in types(len(p), length)
    ]
    return np.array(rows).T


def certain(p: Law, size: int, guide: Law | None = None) -> float:
    """Sum of p over the texts that are likeliest under p, or under a guide: what is accepted."""
    guide = p if guide is None else guide
    levels: list[Array] = []
    while True:
        levels.append(level(p, guide, len(levels) + 1))
        count, log_p, log_guide = np.concatenate(levels, axis=1)
        order = np.argsort(-log_guide, kind="stable")
        taken = np.clip(size - (np.cumsum(count[order]) - count[order]), 0, count[order])
        last = log_guide[order][taken > 0].min()
        if taken.sum() >= size and last >= (len(levels) + 1) * log(max(guide)):
            return float(taken @ np.exp(log_p[order]))


def deepest(p: Law) -> int:
    """Levels that are listed by types."""
    return 150 if len(p) == 2 else 60


def drawn_at_least(p: Law, q: Law, size: int, most: int | None = None) -> float:
    """What a rule accepts of n whole paths of L tokens, n L drafts or fewer, for the best L.

    It accepts a whole path or nothing: L alpha*, of p and q on texts and n drafts.
    """
    best = 0.0
    for length in range(1, min(size, most or deepest(p)) + 1):
        count, log_p, log_q = level(p, q, length)
        order = np.argsort(log_p - log_q)
        of_p = np.cumsum((count * np.exp(log_p))[order])
        of_q = np.cumsum((count * np.exp(log_q))[order])
        alpha = 1 + min(0.0, float((of_p - np.minimum(of_q, 1) ** (size // length)).min()))
        best = max(best, length * alpha)
    return best


def drawn_at_most(p: Law, q: Law, size: int) -> float:
    r"""Bound for all trees of so many places, drawn with replacement.

    With k_n places on level n that is :math:`\sum_n \sum_w \min(p(w), k_n q(w))`; with any price s
    of a place it is at most :math:`s P + \sum_n \max_k [\sum_w \min(p(w), k q(w)) - s k]`, where
    levels beyond the last have :math:`\rho^{2n} / 4s`, :math:`\rho = \sum \sqrt{p q}`.
    """
    levels = deepest(p)
    rho = float(np.sqrt(np.multiply(p, q)).sum()) ** 2
    if rho > 1 - 1e-12:
        return float(size)
    parts = []
    for n in range(1, levels + 1):
        count, log_p, log_q = level(p, q, n)
        order = np.argsort(log_p - log_q)
        ratio = np.exp(log_p - log_q)[order]
        of_p = np.cumsum((count * np.exp(log_p))[order])
        above = np.cumsum((count * np.exp(log_q))[order][::-1])[::-1]  # q of this ratio and more
        parts.append((ratio, of_p + ratio * np.append(above[1:], 0.0)))  # k and its sum

    def at(price: float) -> float:
        found = sum(max(float((sums - price * k).max()), 0.0) for k, sums in parts)
        return price * size + found + rho ** (levels + 1) / (4 * price * (1 - rho))

    return min(float(size), *(at(price) for price in np.geomspace(1e-6, 1, 120)))


def entropy(p: Law) -> tuple[float, float]:
    """Mean of -log p in nats, and mean of its square."""
    logs = -np.log(p)
    return float(np.dot(p, logs)), float(np.dot(p, logs**2))


def code_bound(mu: float, size: int, vocab_size: int) -> float:
    """Bound for certain trees by the number of ways to leave them."""
    return log(1 + (size + 1) * (vocab_size - 1)) / mu - 1


def moment_bound(mu: float, mu_2: float, size: int) -> float:
    """Bound for certain trees that does not depend on the number of tokens."""
    return 2 * log(size + 1) / mu + mu_2 / mu**2 - 1


def memoryless() -> None:
    print("| p | q | KL/H | P | likeliest under p | at most | of the abstract | under q | "
          "drawn, at least | drawn, at most |")  # fmt: skip
    print("|---" * 10 + "|")
    for p, q in MEMORYLESS:
        mu, mu_2 = entropy(p)
        divergence = float(np.dot(p, np.log(p) - np.log(q)))
        for size in SIZES:
            cells = [
                certain(p, size), code_bound(mu, size, len(p)),
                (mu + mu_2) * log(size) / mu**2, certain(p, size, q),
                drawn_at_least(p, q, size), drawn_at_most(p, q, size),
            ]  # fmt: skip
            print(f"| {p} | {q} | {divergence / mu:.2f} | {size} | "
                  f"{' | '.join(f'{x:.2f}' for x in cells)} |", flush=True)  # fmt: skip


class Table:
    """Laws after every text."""

    def __init__(self, laws: dict[Text, Array]) -> None:
        self.laws = laws

    @classmethod
    def random(cls, rng: np.random.Generator, vocab_size: int, depth: int) -> Table:
        texts = [w for n in range(depth) for w in product(range(vocab_size), repeat=n)]
        return cls({text: rng.dirichlet(np.full(vocab_size, 0.5)) for text in texts})

    def __call__(self, text: Text) -> Array:
        return self.laws[text]

    def probabilities(self, depth: int) -> dict[Text, float]:
        """Of all texts up to so many tokens, the empty one among them."""
        found = {(): 1.0}
        for text in [w for w in self.laws if len(w) < depth]:
            found |= {(*text, x): found[text] * float(c) for x, c in enumerate(self(text))}
        return found


Shape = tuple["Shape", ...]


def shapes(size: int, levels: int, widest: int) -> Iterator[Shape]:
    """Trees of so many drafts: each node the trees after its drafts, the largest first."""

    def after(left: int, width: int, largest: int) -> Iterator[Shape]:
        if width == 0 and left == 0:
            yield ()
        for part in range(min(left, largest) if width else -1, -1, -1):
            for first in shapes(part, levels - 1, widest):
                for rest in after(left - part, width - 1, part):
                    yield (first, *rest)

    if size == 0:
        yield ()
    elif levels > 0:
        for width in range(1, min(widest, size) + 1):
            yield from after(size - width, width, size)


def topology(shape: Shape) -> Topology:
    found: dict[Text, int] = {}

    def add(place: Text, part: Shape) -> None:
        if part:
            found[place] = len(part)
        for n, child in enumerate(part):
            add((*place, n), child)

    add((), shape)
    return Topology(found, str(sum(found.values())))


def crossing(far: Array, ahead: Array) -> float:
    """Where differences fall to zero, between neighbouring points, or the last point."""
    for n in range(1, far.size):
        if ahead[n] < 0:
            share = ahead[n - 1] / (ahead[n - 1] - ahead[n])
            return float(far[n - 1] + share * (far[n] - far[n - 1]))
    return float(far[-1])


def distances(target: Table, draft: Table, depth: int) -> tuple[float, float]:
    """TV of the laws, and KL over entropy, along the target's texts."""
    reached = target.probabilities(depth - 1)
    weights = np.array(list(reached.values())) / depth
    p, q = (np.array([model(text) for text in reached]) for model in (target, draft))
    far = float(weights @ np.abs(p - q).sum(axis=1)) / 2
    divergence = float(weights @ (p * np.log(p / q)).sum(axis=1))
    return far, -divergence / float(weights @ (p * np.log(p)).sum(axis=1))


def small(models: int) -> None:
    print("| V | levels | P | share of the other model | TV | KL/H | likeliest under p | under q | "
          "drawn, optimum | drawn less likeliest under p | ahead |")  # fmt: skip
    print("|---" * 11 + "|")
    ends = []
    for vocab_size, depth in SMALL:
        for size in NUMBERS:
            trees = [topology(shape) for shape in shapes(size, depth, vocab_size)]
            found = np.array([one(seed, vocab_size, depth, trees, size) for seed in range(models)])
            label = f"| {vocab_size} | {depth} | {size} |"
            for n, share in enumerate(SHARES):
                ahead = found[:, n, 4] - found[:, n, 2]
                error = 2 * ahead.std(ddof=1) / models**0.5
                means = " | ".join(f"{x:.2f}" for x in found[:, n].mean(axis=0))
                print(f"{label} {share} | {means} | {ahead.mean():+.2f} ± {error:.2f} | "
                      f"{(ahead > 1e-9).mean():.2f} |", flush=True)  # fmt: skip
            ends.append((label, [crossing(row[:, 0], row[:, 4] - row[:, 2]) for row in found]))
    print("\n| V | levels | P | TV where the best drawn tree is level with the best certain one |")
    print("|---" * 4 + "|")
    for label, values in ends:
        error = 2 * np.std(values, ddof=1) / models**0.5
        print(f"{label} {np.mean(values):.2f} ± {error:.2f} |")


def one(
    seed: int, vocab_size: int, depth: int, trees: list[Topology], size: int
) -> list[list[float]]:
    """For each share: distances, the best certain tree, that of q, and the best drawn one."""
    rng = np.random.default_rng([seed, vocab_size])
    target, other = (Table.random(rng, vocab_size, depth) for _ in range(2))
    chances = target.probabilities(depth)
    del chances[()]
    rows = []
    for share in SHARES:
        draft = Table(
            {text: (1 - share) * p + share * other(text) for text, p in target.laws.items()}
        )
        guide = draft.probabilities(depth)
        bounds = [tree_bound(target, draft, tree, DRAWN, tolerance=1e-4) for tree in trees]
        rows.append([
            *distances(target, draft, depth),
            sum(sorted(chances.values())[-size:]),
            sum(chances[text] for text in sorted(chances, key=guide.__getitem__)[-size:]),
            max(bound.lower for bound in bounds),
        ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="small models with certified optima")
    parser.add_argument("--models", type=int, default=12)
    asked = parser.parse_args()
    if asked.small:
        small(asked.models)
    else:
        memoryless()


if __name__ == "__main__":
    main()
