"""A rule that sees q at its drafts alone, by its theorem, in Fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations

Law = Sequence[Fraction]


def support_chance(q: Law, subset: frozenset[int], draws: int) -> Fraction:
    """Probability that so many draws have exactly this support, by inclusion and exclusion."""
    return sum(
        (
            (-1) ** (len(subset) - size) * sum((q[i] for i in part), Fraction(0)) ** draws
            for size in range(len(subset) + 1)
            for part in combinations(subset, size)
        ),
        Fraction(0),
    )


class BlindRule:
    """Vectors O_U and joint masses N_U of one target and one q."""

    def __init__(self, p: Law, q: Law, num_drafts: int) -> None:
        self.p, self.q, self.k = p, q, num_drafts
        self.spent = cache(self._spent)

    def _mass(self, law: Law, subset: frozenset[int]) -> Fraction:
        return sum((law[i] for i in subset), Fraction(0))

    def _base(self, subset: frozenset[int]) -> Fraction:
        total = support_chance(self.q, subset, self.k)
        for w in subset:
            rest = subset - {w}
            if rest and self.spent(rest):
                chance = support_chance(self.q, rest, self.k - 1) * self.q[w]
                total += chance * self.spent(rest) / (1 - self._mass(self.p, rest))
        return total

    def _spent(self, subset: frozenset[int]) -> Fraction:
        p, q = self._mass(self.p, subset), self._mass(self.q, subset)
        if p in (0, 1) or q == 1:
            return Fraction(0)
        most = p * Fraction(self.k, self.k - 1) if len(subset) == self.k - 1 else p
        chance = support_chance(self.q, subset, self.k - 1) * (1 - q)
        return min(most, (1 - p) * self._base(subset) / chance)

    def is_bound(self, subset: frozenset[int]) -> bool:
        """Whether the mass on the subset is what limits T, so that the limit is not reached."""
        p, q = self._mass(self.p, subset), self._mass(self.q, subset)
        if p in (0, 1) or q == 1:
            return True
        chance = support_chance(self.q, subset, self.k - 1) * (1 - q)
        return self.spent(subset) < (1 - p) * self._base(subset) / chance

    def moved(self, subset: frozenset[int]) -> list[Fraction]:
        """The vector O_U; zero for the empty set and for K tokens."""
        zero = [Fraction(0)] * len(self.p)
        if not 1 <= len(subset) <= self.k - 1 or not self.spent(subset):
            return zero
        p = self._mass(self.p, subset)
        scale = support_chance(self.q, subset, self.k - 1) * (1 - self._mass(self.q, subset))
        scale *= self.spent(subset)
        return [scale * (-x / p if i in subset else x / (1 - p)) for i, x in enumerate(self.p)]

    def joint(self, subset: frozenset[int]) -> list[Fraction]:
        """The vector N_U: drafts of this support, and the output."""
        chance = support_chance(self.q, subset, self.k)
        masses = [chance * x - y for x, y in zip(self.p, self.moved(subset), strict=True)]
        for w in subset:
            rest = subset - {w}
            share = self.q[w] / (1 - self._mass(self.q, rest)) if rest != subset else Fraction(0)
            masses = [x + share * y for x, y in zip(masses, self.moved(rest), strict=True)]
        return masses
