"""Draws of a sampler that share random numbers: a test of pairs, and what it cannot see.

A verifier is lossless if its coins are new. Engines make them of a seed, a position and a salt for
what a draw is for (draft, coin, residual), and two draws with one key share their numbers. The test
asks a sampler for tokens of one law, for thousands of consecutive seeds, and holds how often each
pair of tokens came against independent draws: at any two positions and for any two roles, of one
seed and of two consecutive ones. It sees nothing of keys that collide elsewhere: at positions that
it did not ask for, of seeds that are far apart, for laws of more tokens than its own.

    python examples/shared_streams.py    # samplers it finds, samplers it cannot find

To try a sampler of your own, give `shared_draws` a function of seeds [N], a position, a role and
logits [V] that returns tokens [N].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

#: Roles of draws, in an order that stands for their salts.
ROLES = ("draft", "accept", "residual")

#: Law of all tokens that the test asks for, and the positions at which it asks.
LOGITS = np.log([0.4, 0.3, 0.2, 0.1])
POSITIONS = 3

Sampler = Callable[[Any, int, str, Any], Any]


def shared_draws(sampler: Sampler, num_seeds: int = 4_000, false_alarm: float = 1e-6) -> list[str]:
    """Pairs of draws that depend on each other, in words; [] where none was found.

    Each pair is judged by Pearson's test of independence at a share of `false_alarm`.
    """
    seeds = np.arange(num_seeds + 1)
    places = list(itertools.product(range(POSITIONS), ROLES))
    drawn = {(at, role): np.asarray(sampler(seeds, at, role, LOGITS)) for at, role in places}
    pairs = [("the same seed", a, b, 0) for a, b in itertools.combinations(places, 2)]
    pairs += [("the next seed", a, b, 1) for a, b in itertools.product(places, repeat=2)]
    level = false_alarm / len(pairs)
    found = []
    for whose, first, second, ahead in pairs:
        table = np.zeros((LOGITS.size, LOGITS.size))
        np.add.at(table, (drawn[first][:num_seeds], drawn[second][ahead:][:num_seeds]), 1)
        if _p_value(table) < level:
            (s, a), (t, b) = first, second
            found.append(f"{a} at {s} and {b} at {t} of {whose}")
    return found


def _p_value(table: Any) -> float:
    """P-value of Pearson's test of independence, by the cube root of Wilson and Hilferty (1931)."""
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    free = (table.shape[0] - 1) * (table.shape[1] - 1)
    if not free:
        return 1.0
    spread = 2 / (9 * free)
    cube_root = (((table - expected) ** 2 / expected).sum() / free) ** (1 / 3)
    return math.erfc((cube_root - 1 + spread) / math.sqrt(2 * spread)) / 2


def _hashed(*keys: Any) -> Any:
    """Hash of 64 bits of integers, by rounds of splitmix64."""
    state = np.uint64(0)
    with np.errstate(over="ignore"):
        for key in keys:
            state = (np.asarray(key).astype(np.uint64) ^ state) + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
            state = state ^ (state >> np.uint64(31))
    return state


def keyed(key: Callable[[Any, int, int], tuple[Any, ...]], stride: int = 0) -> Sampler:
    """Sampler that races exponentials, made of ``key(seeds, position, salt)`` and a counter.

    With a stride the counter goes on by that much a position; without, each key begins anew.
    """

    def sampler(seeds: Any, position: int, role: str, logits: Any) -> Any:
        counter = stride * position + np.arange(logits.size)
        parts = [np.broadcast_to(part, seeds.shape) for part in key(seeds, position, _salt(role))]
        bits = _hashed(*(part[:, None] for part in parts), counter)
        uniforms = ((bits >> np.uint64(11)).astype(float) + 0.5) / 2.0**53
        return (logits - np.log(-np.log(uniforms))).argmax(axis=1)

    return sampler


def _salt(role: str) -> int:
    return 1 + ROLES.index(role)


RIGHT = keyed(lambda seed, at, salt: (seed, at, salt))

FOUND = {
    "the role is not in the key": keyed(lambda seed, at, salt: (seed, at)),
    "the position is not in the key": keyed(lambda seed, at, salt: (seed, salt)),
    "seed and position are added": keyed(lambda seed, at, salt: (seed + at, salt)),
}

NOT_FOUND = {
    "keys by position % 64": keyed(lambda seed, at, salt: (seed, at % 64, salt)),
    "keys by seed * (position + 1)": keyed(lambda seed, at, salt: (seed * (at + 1), salt)),
    "a counter that goes on by 4, where a draw uses V numbers": keyed(
        lambda seed, at, salt: (seed, salt), stride=4
    ),
}


def shared_elsewhere(name: str) -> float:
    """Share of seeds at which two draws that the test does not ask for are one draw, told twice."""
    sampler, seeds = NOT_FOUND[name], np.arange(1, 4_001)
    if "% 64" in name:
        first, second = (sampler(seeds, at, "draft", LOGITS) for at in (0, 64))
    elif "seed *" in name:
        first, second = (sampler(seeds * n, 1 - n // 2, "draft", LOGITS) for n in (1, 2))
    else:
        # of V = 512 the noise of position 0, token x + 4, is that of position 1, token x
        first, second = (sampler(seeds, at, "draft", np.zeros(512)) - 4 * (1 - at) for at in (0, 1))
    return float((first == second).mean())


def main() -> None:
    """Say of each sampler what the test found."""
    print(f"right keys: {len(shared_draws(RIGHT))} pairs of draws depend on each other")
    for name, sampler in FOUND.items():
        pairs = shared_draws(sampler)
        print(f"{name}: {len(pairs)} pairs, as {pairs[0]}")
    for name, sampler in NOT_FOUND.items():
        missed = f"{len(shared_draws(sampler))} pairs found"
        print(
            f"{name}: {missed}, and yet {shared_elsewhere(name):.0%} of seeds draw alike elsewhere"
        )


if __name__ == "__main__":
    main()
