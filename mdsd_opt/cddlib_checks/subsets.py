"""Subsets of tokens as bit masks, and exact laws of the draft set over them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations
from math import lcm
from typing import TypeVar

Number = TypeVar("Number", int, Fraction)

SetLaw = Mapping[tuple[int, ...], Fraction]


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
    """Q(H) for every mask H, by summing over subsets one token at a time."""
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
    """P(H) for every mask H."""
    table = [0 * p[0]] * (1 << len(p))
    for i, x in enumerate(p):
        for mask in range(1 << i):
            table[mask | 1 << i] = table[mask] + x
    return table


def best_cut(p: Sequence[Fraction], containment: Sequence[Fraction]) -> tuple[Fraction, int]:
    """1 + min_H [P(H) - Q(H)] and the first mask that attains it."""
    least, mask = _least_excess(p, containment)
    return 1 + least, mask


def best_cuts(
    points: Collection[Sequence[Fraction]], containment: Sequence[Fraction]
) -> Iterator[tuple[Fraction, int]]:
    """`best_cut` of many targets, in integers over one denominator: tens of times as fast."""
    scale = lcm(*(x.denominator for x in chain(containment, *points)))
    scaled = [x.numerator * (scale // x.denominator) for x in containment]
    for p in points:
        least, mask = _least_excess([x.numerator * (scale // x.denominator) for x in p], scaled)
        yield 1 + Fraction(least, scale), mask


def _least_excess(p: Sequence[Number], containment: Sequence[Number]) -> tuple[Number, int]:
    """min_H [P(H) - Q(H)] and the first mask that attains it."""
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
    """The laws of all orders of the tokens, without repeats.

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
    """{0, 2} for the mask of tokens 0 and 2."""
    return "{" + ", ".join(map(str, members(mask))) + "}"
