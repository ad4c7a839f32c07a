"""Samplers whose streams are right or wrong in one way: mechanisms of engines, made anew.

`Toy` keys its noise by a hash of (seed, position, salt of the role); the others change one line.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import mdsd_opt as mo

SALTS = {"draft": 1, "accept": 2, "residual": 3, "target": 4}


def hashed(*keys: Any) -> Any:
    """Hash of 64 bits of integers, by rounds of splitmix64."""
    state = np.uint64(0)
    with np.errstate(over="ignore"):
        for key in keys:
            state = np.asarray(key).astype(np.uint64) ^ state
            state = state + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
            state = state ^ (state >> np.uint64(31))
    return state


def uniforms(*keys: Any) -> Any:
    return ((hashed(*keys) >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


class Toy:
    """Exponential races on hashed noise; requests without a seed get one from the system."""

    def __init__(self, entropy: int | None = None) -> None:
        self.entropy = np.random.SeedSequence(entropy)
        self.given: dict[int, int] = {}

    def __reduce__(self) -> Any:
        return type(self), ()

    def seed(self, request: mo.StreamRequest) -> int:
        if request.seed is not None:
            return request.seed
        if request.request not in self.given:
            self.given[request.request] = self.fresh(request)
        return self.given[request.request]

    def fresh(self, request: mo.StreamRequest) -> int:
        return int(self.entropy.spawn(1)[0].generate_state(1, np.uint64)[0] >> 1)

    def keys(self, seeds: Any, positions: Any, role: str) -> tuple[Any, ...]:
        return seeds, positions, np.full(seeds.size, SALTS[role])

    def noise(self, requests: list[mo.StreamRequest], role: str, size: int) -> Any:
        seeds = np.array([self.seed(r) for r in requests], dtype=np.uint64)
        keys = self.keys(seeds, np.array([r.position for r in requests]), role)
        return uniforms(*(np.asarray(key)[:, None] for key in keys), np.arange(size))

    def coins(self, requests: list[mo.StreamRequest]) -> Any:
        return self.noise(requests, "accept", 1)[:, 0]

    def __call__(self, requests: list[mo.StreamRequest]) -> Any:
        role, size = requests[0].role, requests[0].logits.size
        law = np.exp(np.stack([r.logits for r in requests]))
        if role == "accept":
            return (self.coins(requests) < law[:, 1]).astype(int)
        return self.token(requests, role, law, size)

    def token(self, requests: list[mo.StreamRequest], role: str, law: Any, size: int) -> Any:
        with np.errstate(divide="ignore"):
            return (-np.log(self.noise(requests, role, size)) / law).argmin(axis=1)


class ResidualOfTheDraft(Toy):
    """vLLM before pull request 54282: the residual's race has the noise of the draft's."""

    def keys(self, seeds: Any, positions: Any, role: str) -> tuple[Any, ...]:
        return super().keys(seeds, positions, "draft" if role == "residual" else role)


class CoinInTheResidual(Toy):
    """vllm-ascend, issue 16370: the residual inverts its law at the uniform that refused."""

    def token(self, requests: list[mo.StreamRequest], role: str, law: Any, size: int) -> Any:
        if role != "residual":
            return super().token(requests, role, law, size)
        reached = law.cumsum(axis=1)
        return (self.coins(requests)[:, None] > reached).sum(axis=1).clip(max=size - 1)


class CoinOfItsOwn(CoinInTheResidual):
    """The same, mended: another uniform for the residual."""

    def coins(self, requests: list[mo.StreamRequest]) -> Any:
        return self.noise(requests, requests[0].role, 1)[:, 0]


class OneStateWithoutSeeds(Toy):
    """TensorRT-LLM, issue 19487: rows without a seed share one stream, which goes on by calls."""

    counter = itertools.count()

    def noise(self, requests: list[mo.StreamRequest], role: str, size: int) -> Any:
        own = super().noise(requests, role, size)
        unseeded = [n for n, r in enumerate(requests) if r.seed is None]
        rng = np.random.default_rng([next(self.counter), 7])
        own[unseeded] = rng.random(size)
        return own


class AddedKeys(Toy):
    """Seed and position are added before they are hashed."""

    def keys(self, seeds: Any, positions: Any, role: str) -> tuple[Any, ...]:
        return seeds + positions.astype(np.uint64), np.full(seeds.size, SALTS[role])


class NoPosition(Toy):
    """The position is not in the key."""

    def keys(self, seeds: Any, positions: Any, role: str) -> tuple[Any, ...]:
        return seeds, np.full(seeds.size, SALTS[role])


class SameInEveryProcess(Toy):
    """Requests without a seed are numbered: a new process begins as the last one did."""

    def fresh(self, request: mo.StreamRequest) -> int:
        return int(hashed(request.request) >> np.uint64(1))


class RowInTheKey(Toy):
    """The row of the batch is in the key, so that a seed depends on its neighbours."""

    def keys(self, seeds: Any, positions: Any, role: str) -> tuple[Any, ...]:
        return (*super().keys(seeds, positions, role), np.arange(seeds.size))


class Race(Toy):
    """Draft and plain sample have one noise, as lists from one race do."""

    def keys(self, seeds: Any, positions: Any, role: str) -> tuple[Any, ...]:
        return super().keys(seeds, positions, "draft" if role == "target" else role)


class Biased(Toy):
    """Laws are flattened a little."""

    def token(self, requests: list[mo.StreamRequest], role: str, law: Any, size: int) -> Any:
        return super().token(requests, role, law**0.8, size)
