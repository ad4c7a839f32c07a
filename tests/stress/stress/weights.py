"""Distributions on which careless code breaks, each beside the exact rationals it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

#: Floats below it are taken as zero by the package.
SMALLEST = 1e-300

TINY = (1e-12, 2.0**-53, 1e-17, 1e-30, 1e-100, 1e-150, 1.5e-300)
BELOW_SMALLEST = (5e-324, 1e-310, 2.3e-308, 9e-301)


@dataclass(frozen=True)
class Weights:
    """A distribution: as the package is given it, and as integers over their sum.

    `given` is an array of floats or a list of Fractions; the exact distribution is
    ``numerators[i] / total``.
    """

    given: Any
    numerators: tuple[int, ...]
    total: int

    @classmethod
    def of(cls, given: Any) -> Weights:
        exact = [Fraction(x) for x in given]
        if isinstance(given, np.ndarray):
            exact = [x if x >= Fraction(SMALLEST) else Fraction(0) for x in exact]
        scale = lcm(*(x.denominator for x in exact))
        numerators = tuple(x.numerator * (scale // x.denominator) for x in exact)
        return cls(given, numerators, sum(numerators))

    @property
    def size(self) -> int:
        return len(self.numerators)

    @property
    def exact(self) -> list[Fraction]:
        return [Fraction(n, self.total) for n in self.numerators]

    @property
    def support(self) -> list[int]:
        return [i for i, n in enumerate(self.numerators) if n]

    def __str__(self) -> str:
        if isinstance(self.given, np.ndarray):
            return f"np.array({self.given.tolist()!r})"
        return f"fractions({' '.join(map(str, self.given))})"


def rational(numbers: Sequence[int]) -> Weights:
    total = sum(numbers)
    return Weights.of([Fraction(int(n), int(total)) for n in numbers])


def floating(numbers: Any) -> Weights:
    values = np.asarray(numbers, dtype=np.float64)
    return Weights.of(values / values.sum())


def _small(rng: np.random.Generator, size: int) -> Weights:
    numbers = rng.integers(0, 10, size)
    numbers[rng.integers(size)] += 1
    return rational(numbers.tolist()) if rng.random() < 0.5 else floating(numbers)


def _ties(rng: np.random.Generator, size: int) -> Weights:
    numbers = rng.choice([0, 1, 1, 1, 2], size)
    numbers[rng.integers(size)] = 1
    return rational(numbers.tolist()) if rng.random() < 0.5 else floating(numbers)


def _uniform(rng: np.random.Generator, size: int) -> Weights:
    ones = [1] * size
    return rational(ones) if rng.random() < 0.5 else floating(ones)


def _one_hot(rng: np.random.Generator, size: int) -> Weights:
    numbers = [0] * size
    numbers[rng.integers(size)] = 1
    return rational(numbers) if rng.random() < 0.5 else floating(numbers)


def _dominated(rng: np.random.Generator, size: int) -> Weights:
    """All but one token tiny, alike or each in its own way."""
    tiny = rng.choice(TINY, size) if rng.random() < 0.5 else np.full(size, rng.choice(TINY))
    tiny = tiny * rng.integers(0, 4, size)
    tiny[rng.integers(size)] = 1.0
    return floating(tiny)


def _powers(rng: np.random.Generator, size: int) -> Weights:
    values = 10.0 ** -rng.choice([0, 0, 1, 3, 8, 16, 17, 30, 150, 299], size)
    values[rng.integers(size)] = 1.0
    return floating(values)


def _dirichlet(rng: np.random.Generator, size: int) -> Weights:
    values = rng.standard_gamma(rng.choice([0.05, 0.3, 1.0, 30.0]), size)
    values[rng.integers(size)] += 1e-3
    return floating(values)


def _denormal(rng: np.random.Generator, size: int) -> Weights:
    values = rng.choice([0.0, 1.0, 1e-17, *BELOW_SMALLEST], size)
    values[rng.integers(size)] = 1.0
    return floating(values)


def _geometric(rng: np.random.Generator, size: int) -> Weights:
    values = 2.0 ** -np.arange(size)
    return floating(rng.permutation(values))


def _nearly_uniform(rng: np.random.Generator, size: int) -> Weights:
    """One ulp to and fro."""
    values = np.full(size, 1.0 / size)
    return Weights.of(np.nextafter(values, rng.choice([0.0, 1.0], size)))


def _off_by_a_thousandth(rng: np.random.Generator, size: int) -> Weights:
    """A sum that the package still renormalises."""
    values = rng.dirichlet(np.ones(size))
    return Weights.of(values * (1.0 + rng.choice([-9e-4, 9e-4])))


KINDS: tuple[Callable[[np.random.Generator, int], Weights], ...] = (
    _small, _small, _ties, _uniform, _one_hot, _dominated, _powers, _dirichlet, _denormal,
    _geometric, _nearly_uniform, _off_by_a_thousandth,
)  # fmt: skip


def draw_weights(rng: np.random.Generator, size: int) -> Weights:
    return KINDS[rng.integers(len(KINDS))](rng, size)


def draw_beside(rng: np.random.Generator, q: Weights) -> Weights:
    """A distribution on purpose near to or far from another one of the same size."""
    size = q.size
    values = np.array([float(x) for x in q.given])
    kind = rng.integers(9)
    if kind == 0:
        return q
    if kind == 1:  # one ulp apart
        return floating(np.nextafter(values, np.where(rng.random(size) < 0.5, 0.0, 1.0)))
    if kind == 2:
        return floating(rng.permutation(values))
    if kind == 3:  # other tokens, wherever there are any
        others = np.where(values > 0, 0.0, 1.0)
        return floating(others) if others.any() else draw_weights(rng, size)
    if kind == 4:  # two tied ratios, far or hardly apart
        factor = rng.choice([1.0, 3.0, 1e-9, 1.0 + 1e-15], size)
        return floating(values * factor)
    if kind == 5:  # powers of the draft: p = q^K is where acceptance one begins
        powers = values ** int(rng.integers(1, 5))
        return floating(powers) if powers.sum() > 0 else q
    return draw_weights(rng, size)
