"""Subsets of tokens as bit masks, exact laws of the draft set over them, and rows of inequalities.

A row ``(b, a_1..a_d)`` says b + a.x >= 0. Double description returns rows up to a positive factor;
divided by the greatest common divisor of their integer multiples they are unique, so that sets of
rows can be compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations
from math import gcd, lcm
from typing import TypeVar

Number = TypeVar("Number", int, Fraction)

SetLaw = Mapping[tuple[int, ...], Fraction]
Row = tuple[int, ...]
Point = tuple[Fraction, ...]


def proper_subsets(vocab_size: int) -> range:
    """Masks of all subsets but the empty and the full one."""
    return range(1, (1 << vocab_size) - 1)


def members(mask: int) -> tuple[int, ...]:
    """Tokens of a mask, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def mask_of(tokens: Iterable[int]) -> int:
    return sum(1 << i for i in tokens)


def draft_sets(vocab_size: int, sizes: Iterable[int]) -> list[tuple[int, ...]]:
    """All sets of these sizes, by size and then lexicographic."""
    return [s for size in sizes for s in combinations(range(vocab_size), size)]


def containment_table(law: SetLaw, vocab_size: int) -> list[Fraction]:
    """Containment Q(H) for every mask H, by summing over subsets one token at a time."""
    table = [Fraction(0)] * (1 << vocab_size)
    for drafted, mass in law.items():
        table[mask_of(drafted)] += mass
    for i in range(vocab_size):
        bit = 1 << i
        for mask in range(1 << vocab_size):
            if mask & bit:
                table[mask] += table[mask ^ bit]
    return table


def masses_of_subsets(p: Sequence[Number]) -> list[Number]:
    """Masses P(H) for every mask H."""
    table = [0 * p[0]] * (1 << len(p))
    for i, x in enumerate(p):
        for mask in range(1 << i):
            table[mask | 1 << i] = table[mask] + x
    return table


def best_cut(p: Sequence[Fraction], containment: Sequence[Fraction]) -> tuple[Fraction, int]:
    """Optimum 1 + min_H [P(H) - Q(H)] and the first mask that attains it."""
    least, mask = _least_excess(p, containment)
    return 1 + least, mask


def best_cuts(
    points: Collection[Sequence[Fraction]], containment: Sequence[Fraction]
) -> Iterator[tuple[Fraction, int]]:
    """Results of `best_cut` for many targets, in integers over one denominator, much faster."""
    scale = lcm(*(x.denominator for x in chain(containment, *points)))
    scaled = [x.numerator * (scale // x.denominator) for x in containment]
    for p in points:
        least, mask = _least_excess([x.numerator * (scale // x.denominator) for x in p], scaled)
        yield 1 + Fraction(least, scale), mask


def _least_excess(p: Sequence[Number], containment: Sequence[Number]) -> tuple[Number, int]:
    """Least P(H) - Q(H) and the first mask that attains it."""
    mass = masses_of_subsets(p)
    values = [x - y for x, y in zip(mass, containment, strict=True)]
    least = min(values)
    return least, values.index(least)


def priority_law(law: SetLaw, order: Sequence[int]) -> tuple[Fraction, ...]:
    """Law of the token drafted that comes first in `order`."""
    rank = {token: place for place, token in enumerate(order)}
    result = [Fraction(0)] * len(order)
    for drafted, mass in law.items():
        result[min(drafted, key=rank.__getitem__)] += mass
    return tuple(result)


def priority_laws(law: SetLaw, vocab_size: int) -> set[tuple[Fraction, ...]]:
    """Laws of all orders of the tokens, without repeats.

    Built from the front: what the first tokens of an order get depends on their set alone, as
    Pr(some draft in S) = 1 - Q(complement of S).
    """
    table = containment_table(law, vocab_size)
    full = (1 << vocab_size) - 1
    laws: set[tuple[Fraction, ...]] = set()

    def extend(point: list[Fraction], used: int) -> None:
        if used == full:
            laws.add(tuple(point))
            return
        for i in range(vocab_size):
            if not used >> i & 1:
                after = used | 1 << i
                point[i] = table[full ^ used] - table[full ^ after]
                extend(point, after)

    extend([Fraction(0)] * vocab_size, 0)
    return laws


def describe(mask: int) -> str:
    """Text such as {0, 2} for the mask of tokens 0 and 2."""
    return "{" + ", ".join(map(str, members(mask))) + "}"


def primitive(row: Iterable[Fraction | int]) -> Row:
    """Positive multiple with coprime integer entries; the zero row stays zero."""
    entries = [Fraction(x) for x in row]
    scale = lcm(*(x.denominator for x in entries))
    integers = [x.numerator * (scale // x.denominator) for x in entries]
    divisor = gcd(*integers)
    return tuple(x // divisor for x in integers) if divisor else tuple(integers)


def without_last_token(bound: Fraction, coefficients: Sequence[Fraction | int]) -> Row:
    """Row of c.p >= bound in the coordinates p_0..p_{V-2}, with p_{V-1} = 1 - the rest.

    Keeping the equality sum p = 1 instead would leave every row defined only up to a multiple of
    it, and sets of rows could not be compared.
    """
    last = coefficients[-1]
    return primitive([last - bound, *(c - last for c in coefficients[:-1])])


def with_last_token(point: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Law p from its first V - 1 coordinates."""
    return (*point, 1 - sum(point, Fraction(0)))


def exact_acceptance(p: Sequence[Fraction], law: SetLaw) -> Fraction:
    """Optimum alpha* of target p and a law of draft sets, by augmenting paths on integers.

    Shares nothing with double description or with the subset formula, so it can confirm what they
    find.
    """
    return sum((mass for *_, mass in exact_plan(p, law)), Fraction(0))


def exact_plan(p: Sequence[Fraction], law: SetLaw) -> list[tuple[tuple[int, ...], int, Fraction]]:
    """Best transport plan as (draft set, token, mass), by augmenting paths on integers.

    It proves its value from below; the tokens that residual paths reach are a cut, which proves it
    from above.
    """
    sets = [s for s, mass in law.items() if mass and s]
    scale = lcm(*(x.denominator for x in p), *(law[s].denominator for s in sets))
    token_left = [int(x * scale) for x in p]
    set_left = [int(law[s] * scale) for s in sets]
    flow: list[dict[int, int]] = [{} for _ in sets]  # flow[s][i]: from token i into set s
    sets_of: list[list[int]] = [[] for _ in p]
    for s, drafted in enumerate(sets):
        for i in drafted:
            flow[s][i] = 0
            sets_of[i].append(s)

    while (path := _shortest_path(token_left, set_left, flow, sets_of)) is not None:
        tokens, through = path
        amount = min(token_left[tokens[0]], set_left[through[-1]])
        for s, i in zip(through, tokens[1:], strict=False):
            amount = min(amount, flow[s][i])
        token_left[tokens[0]] -= amount
        set_left[through[-1]] -= amount
        for s, i in zip(through, tokens, strict=True):
            flow[s][i] += amount
        for s, i in zip(through, tokens[1:], strict=False):
            flow[s][i] -= amount
    return [
        (s, i, Fraction(mass, scale))
        for s, into in zip(sets, flow, strict=True)
        for i, mass in into.items()
        if mass
    ]


def _shortest_path(
    token_left: Sequence[int],
    set_left: Sequence[int],
    flow: Sequence[dict[int, int]],
    sets_of: Sequence[Sequence[int]],
) -> tuple[list[int], list[int]] | None:
    """Tokens i_0, i_1, .. and sets s_0, s_1, ..: push into s_j from i_j, pull back to i_{j+1}."""
    came_from: dict[int, tuple[int, int] | None] = {
        i: None for i, left in enumerate(token_left) if left
    }
    queue = deque(came_from)
    seen: set[int] = set()
    while queue:
        i = queue.popleft()
        for s in sets_of[i]:
            if s in seen:
                continue
            seen.add(s)
            if set_left[s]:
                tokens, through = [i], [s]
                while (previous := came_from[tokens[0]]) is not None:
                    tokens.insert(0, previous[0])
                    through.insert(0, previous[1])
                return tokens, through
            for other, amount in flow[s].items():
                if amount and other not in came_from:
                    came_from[other] = (i, s)
                    queue.append(other)
    return None
