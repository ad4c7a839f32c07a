r"""Rules that see q at their drafts alone: the space of all of them, where masses are of a grid.

With masses that are multiples of 1/n, a rule that is lossless for every q is a solution of
:math:`\sum_{U \subseteq \mathrm{supp}\, q} F_U(q_U) = 0`, one equation for each q, where
:math:`F_U` is what the output has beyond the target if the drafts have the support U. The theorem
names a family of solutions. It is all of them if the dimensions agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
