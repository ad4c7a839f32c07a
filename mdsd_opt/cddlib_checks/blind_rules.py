r"""Rules that see q at their drafts alone: the space of all of them, where masses are of a grid.

With masses that are multiples of 1/n, a rule that is lossless for every q is a solution of
:math:`\sum_{U \subseteq \mathrm{supp}\, q} F_U(q_U) = 0`, one equation for each q, where
:math:`F_U` is what the output has beyond the target if the drafts have the support U. The theorem
names a family of solutions. It is all of them if the dimensions agree. One of them accepts more
than matching does: `BlindRule`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise

from mdsd_opt.cddlib_checks.result import Evidence

#: A set of tokens with their masses, in units of 1/n.
Masses = tuple[tuple[int, int], ...]

#: Ranks are taken modulo a prime, which can only lower them: that is enough, see `form`.
_PRIME = (1 << 61) - 1


def form(vocab_size: int, num_drafts: int) -> Evidence:
    """Compare the dimensions, on the grid of K + 2 parts.

    The rank of the equations modulo a prime is at most theirs, so that there are no more solutions
    than it leaves; the rank of the family is at most its own, and its members are solutions.
    """
    v, k, n = vocab_size, num_drafts, num_drafts + 2
    scope = f"V = {v}, K = {k}, all q of multiples of 1/{n}"
    unknown = [x for size in range(1, k + 1) for x in _masses(v, size, n)]
    laws = [x for size in range(1, n + 1) for x in _masses(v, size, n) if _sum(x) == n]
    equations = [
        {part: 1 for size in range(1, k + 1) for part in combinations(law, size)} for law in laws
    ]
    family = [_member(x, v, n) for size in range(1, k) for x in _masses(v, size, n - 1)]
    free, named = len(unknown) - _rank(equations), _rank(family)
    sizes = {"unknowns": len(unknown), "equations": len(laws), "dimension": named}
    if free == named:
        return Evidence(True, scope, sizes=sizes)
    reason = f"{free - named} dimensions are not named; the theorem asks for {2 * k + 1} tokens"
    return Evidence(None, scope, sizes=sizes, reason=reason)


def _sum(masses: Masses) -> int:
    return sum(mass for _, mass in masses)


def _masses(vocab_size: int, size: int, most: int) -> Iterator[Masses]:
    """Sets of so many tokens with positive masses that sum to `most` or less."""
    for tokens in combinations(range(vocab_size), size):
        for ends in combinations(range(1, most + 1), size):
            yield tuple(zip(tokens, (b - a for a, b in pairwise((0, *ends))), strict=True))


def _member(held: Masses, vocab_size: int, n: int) -> dict[Masses, int]:
    """What the output has beyond p if the next draw moves it where the tokens `held` are held."""
    left = n - _sum(held)
    row = {held: -left}
    for token in set(range(vocab_size)).difference(t for t, _ in held):
        for mass in range(1, left + 1):
            row[tuple(sorted((*held, (token, mass))))] = mass
    return row


def _rank(rows: list[dict[Masses, int]]) -> int:
    """Rank modulo the prime, by elimination."""
    pivots: dict[Masses, Mapping[Masses, int]] = {}
    for given in rows:
        row = dict(given)
        while row:
            first = min(row)
            if first not in pivots:
                inverse = pow(row[first], -1, _PRIME)
                pivots[first] = {x: value * inverse % _PRIME for x, value in row.items()}
                break
            factor = row[first]
            for x, value in pivots[first].items():
                changed = (row.get(x, 0) - factor * value) % _PRIME
                row[x] = changed
            row = {x: value for x, value in row.items() if value}
    return len(pivots)


class BlindRule:
    """The rule of Theorem 18 for one target and one q: vectors O_U and joint masses N_U."""

    def __init__(self, p: Sequence[Fraction], q: Sequence[Fraction], num_drafts: int) -> None:
        self.p, self.q, self.k = p, q, num_drafts
        self.terms = cache(self._terms)

    def _chance(self, held: frozenset[int], draws: int) -> Fraction:
        """W_n(U): so many draws have just this support, by inclusion and exclusion."""
        parts = (x for size in range(len(held) + 1) for x in combinations(held, size))
        return sum(((-1) ** (len(held) - len(x)) * self._mass(self.q, x) ** draws for x in parts),
                   Fraction(0))  # fmt: skip

    def _mass(self, law: Sequence[Fraction], tokens: Collection[int]) -> Fraction:
        return sum((law[i] for i in tokens), Fraction(0))

    def _terms(self, held: frozenset[int]) -> tuple[Fraction, Fraction]:
        """Scale W_{K-1}(U) (1 - q(U)) T_U of O_U, and what it would be without the bound b_U."""
        p, q, base = self._mass(self.p, held), self._mass(self.q, held), self._chance(held, self.k)
        if not 1 <= len(held) < self.k or p in (0, 1) or q == 1:
            return Fraction(0), Fraction(0)
        for w in held:
            rest = held - {w}
            if scale := self.terms(rest)[0]:
                share = self.q[w] / (1 - self._mass(self.q, rest))
                base += share * scale / (1 - self._mass(self.p, rest))
        most = p * Fraction(self.k, self.k - 1) if len(held) == self.k - 1 else p
        return min(most * self._chance(held, self.k - 1) * (1 - q), (1 - p) * base), (1 - p) * base

    def is_bound(self, held: frozenset[int]) -> bool:
        """Whether the mass on the drafts is what limits T_U: then the limit is not reached."""
        scale, free = self.terms(held)
        return not free or scale < free

    def _moved(self, held: frozenset[int]) -> list[Fraction]:
        scale, p = self.terms(held)[0], self._mass(self.p, held)
        if not scale:
            return [Fraction(0)] * len(self.p)
        return [scale * (-x / p if i in held else x / (1 - p)) for i, x in enumerate(self.p)]

    def joint(self, held: frozenset[int]) -> list[Fraction]:
        """Vector N_U: probabilities that the drafts have this support and the output is a token."""
        chance = self._chance(held, self.k)
        masses = [chance * x - y for x, y in zip(self.p, self._moved(held), strict=True)]
        for w in held:
            rest = held - {w}
            share = self.q[w] / (1 - self._mass(self.q, rest))
            masses = [x + share * y for x, y in zip(masses, self._moved(rest), strict=True)]
        return masses
