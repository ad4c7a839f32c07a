"""Exact answers from the definitions, in integers and Fractions, without code of the package.

Subsets of few tokens are numbered by their bits; Q is a list over all 2^V of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, lcm

from support import oracles

from stress.weights import Weights

Subsets = list[Fraction]


def subset_sums(numbers: Sequence[int]) -> list[int]:
    sums = [0]
    for n in numbers:
        sums += [s + n for s in sums]
    return sums


def mask_of(tokens: Sequence[int]) -> int:
    return sum(1 << i for i in set(tokens))


def with_replacement(q: Weights, k: int) -> Subsets:
    scale = q.total**k
    return [Fraction(s**k, scale) for s in subset_sums(q.numerators)]


def of_law(law: oracles.Law, size: int) -> Subsets:
    """Q of any tuples of drafts."""
    masses: dict[int, Fraction] = {}
    for drafts, mass in law.items():
        members = mask_of(drafts)
        masses[members] = masses.get(members, Fraction(0)) + mass
    return of_sets(masses, size)


def of_sets(masses: dict[int, Fraction], size: int) -> Subsets:
    """Q(H) = sum of the masses of the sets inside H."""
    held = [masses.get(h, Fraction(0)) for h in range(1 << size)]
    for i in range(size):
        for h in range(1 << size):
            if h >> i & 1:
                held[h] += held[h ^ 1 << i]
    return held


def without_replacement(q: Weights, k: int) -> Subsets:
    if len(q.support) <= k:
        return of_law({tuple(q.support): Fraction(1)}, q.size)
    sums = subset_sums(q.numerators)
    drawn = {0: Fraction(1)}
    for _ in range(k):
        further: dict[int, Fraction] = {}
        for members, mass in drawn.items():
            share = mass / (q.total - sums[members])
            for i in q.support:
                if not members >> i & 1:
                    grown = members | 1 << i
                    further[grown] = further.get(grown, Fraction(0)) + share * q.numerators[i]
        drawn = further
    return of_sets(drawn, q.size)


def optimum(p: Weights, contained: Subsets) -> Fraction:
    """1 + min over all subsets of P(H) - Q(H)."""
    sums = subset_sums(p.numerators)
    scale = lcm(*(x.denominator for x in contained))
    least = min(
        s * scale - x.numerator * (scale // x.denominator) * p.total
        for s, x in zip(sums, contained, strict=True)
    )
    return 1 + Fraction(least, scale * p.total)


# --- many tokens: the sort is exact, so a prefix is the best subset ------------------------------


def ratio_order(p: Weights, q: Weights) -> list[int]:
    """Tokens that q may draw, by p/q."""
    return sorted(q.support, key=lambda i: Fraction(p.numerators[i], q.numerators[i]))


def best_prefix(p: Weights, order: Sequence[int], contained: Sequence[Fraction]) -> Fraction:
    """1 + min over prefixes; `contained` has one entry for each, the empty one included."""
    inside, least = 0, -contained[0]
    for i, x in zip(order, contained[1:], strict=True):
        inside += p.numerators[i]
        least = min(least, Fraction(inside, p.total) - x)
    return 1 + least


def power_curve(q: Weights, order: Sequence[int], k: int) -> list[Fraction]:
    """Q of all prefixes, with replacement."""
    inside, curve = 0, [0]
    for i in order:
        inside += q.numerators[i]
        curve.append(inside**k)
    scale = q.total**k
    return [Fraction(x, scale) for x in curve]


def uniform_race_curve(q: Weights, order: Sequence[int], k: int) -> list[Fraction]:
    """Q of all prefixes, without replacement from equally likely tokens."""
    everything = comb(len(q.support), k)
    return [Fraction(comb(h, k), everything) for h in range(len(order) + 1)]


def two_weight_race_curve(q: Weights, order: Sequence[int], k: int) -> list[Fraction]:
    """Q of all prefixes, without replacement from tokens of two different weights."""
    u, v = sorted({q.numerators[i] for i in q.support})
    heavy = [q.numerators[i] == v for i in order]
    contained = oracles.of_two_weights(sum(heavy), heavy.count(False), Fraction(v, u), k)
    return [contained(sum(heavy[:n]), n - sum(heavy[:n])) for n in range(len(order) + 1)]


# --- acceptance rates of the published verifiers --------------------------------------------------


def naive_target(p: Weights, contained: Subsets) -> Fraction:
    """sum p_i Pr(i is drafted)."""
    everything = len(contained) - 1
    return sum(
        (x * (contained[everything] - contained[everything ^ 1 << i]))
        for i, x in enumerate(p.exact)
    )


def rejection(p: Sequence[Fraction], laws: Sequence[Sequence[Fraction]]) -> Fraction:
    """Recursive rejection sampling of independent drafts: 1 - prod(1 - sum min(p_j, q_j))."""
    left, rejected = list(p), Fraction(1)
    for q in laws:
        rest = [max(a - b, Fraction(0)) for a, b in zip(left, q, strict=True)]
        total = sum(rest)
        rejected *= total
        if not total:
            break
        left = [x / total for x in rest]
    return 1 - rejected


def successive_rejection(p: Sequence[Fraction], q: Sequence[Fraction], k: int) -> Fraction:
    """Recursive rejection sampling without replacement, over all rejected tokens."""
    rest = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    total = sum(rest)
    rate = 1 - total
    if k == 1 or not total:
        return rate
    left = [x / total for x in rest]
    for i, (a, b) in enumerate(zip(p, q, strict=True)):
        if b > a and b < 1:
            others = [x / (1 - b) if j != i else Fraction(0) for j, x in enumerate(q)]
            rate += (b - a) * successive_rejection(left, others, k - 1)
    return rate


def single_draft(p: Sequence[Fraction], q: Sequence[Fraction], k: int) -> Fraction:
    pairs = list(zip(p, q, strict=True))
    hits = sum((max(a - b, Fraction(0)) * (1 - (1 - b) ** (k - 1)) for a, b in pairs), Fraction(0))
    return sum((min(a, b) for a, b in pairs), Fraction(0)) + hits


def kseq(p: Weights, q: Weights, k: int) -> Fraction:
    """rho beta(rho) at the root of 1 - (1 - beta)^K = rho beta, to 2^-90 of rho.

    At rho = R / 2^s: rho beta = sum min(p, rho q), in integers over `scale`.
    """
    bits = 90
    both = zip(p.numerators, q.numerators, strict=True)
    pairs = [(a * q.total << bits, b * p.total) for a, b in both]
    scale = p.total * q.total << bits

    def overlap(rho: int) -> int:
        return sum(min(a, rho * b) for a, b in pairs)

    def is_lossless(rho: int) -> bool:
        reached = overlap(rho)  # beta = reached 2^bits / (scale rho)
        whole = scale * rho
        missed = whole - (reached << bits)
        return (whole**k - missed**k) * scale <= reached * whole**k

    low, high = 1 << bits, k << bits
    if is_lossless(low):
        return Fraction(overlap(low), scale)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_lossless(middle) else (middle, high)
    return Fraction(overlap(high), scale)
