"""Small problems solved from their definitions, in Fractions, without any code of the package.

A draft law is a mapping from ordered draft tuples (of at most K tokens, no padding) to masses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import comb, lcm

from mdsd_opt.drafts import DraftScheme

Law = dict[tuple[int, ...], Fraction]
SetLaw = dict[frozenset[int], Fraction]


def with_replacement(q: Sequence[Fraction], k: int) -> Law:
    """prod q(x_k) over every tuple."""
    return independent([q] * k)


def independent(models: Sequence[Sequence[Fraction]]) -> Law:
    """prod q_k(x_k) over every tuple."""
    law: Law = {}
    for drafts in product(range(len(models[0])), repeat=len(models)):
        mass = Fraction(1)
        for q, i in zip(models, drafts, strict=True):
            mass *= q[i]
        if mass:
            law[drafts] = mass
    return law


def without_replacement(q: Sequence[Fraction], k: int) -> Law:
    """One draw after the other from what is left; stops early where nothing is left."""
    law: Law = {}

    def draw(drawn: tuple[int, ...], mass: Fraction) -> None:
        left = [i for i in range(len(q)) if q[i] > 0 and i not in drawn]
        if len(drawn) == k or not left:
            law[drawn] = law.get(drawn, Fraction(0)) + mass
            return
        total = sum((q[i] for i in left), Fraction(0))
        for i in left:
            draw((*drawn, i), mass * q[i] / total)

    draw((), Fraction(1))
    return law


def of_two_weights(
    heavy: int, light: int, weight: Fraction, k: int
) -> Callable[[int, int], Fraction]:
    """Q without replacement of a heavy tokens, each of this weight, and b light ones of weight one.

    Pr(m of the drafts are heavy) by the draws one after another, of many to 1200 bits; given m,
    tokens of a kind are alike.
    """
    law = {0: Fraction(1)}
    for draw in range(k):
        following: dict[int, Fraction] = {}
        for m, mass in law.items():
            of_heavy, of_light = (heavy - m) * weight, Fraction(light - (draw - m))
            for more, left in ((m + 1, of_heavy), (m, of_light)):
                if left > 0:
                    share = mass * left / (of_heavy + of_light)
                    following[more] = following.get(more, Fraction(0)) + share
        if k > 8:
            following = {m: Fraction(round(x * 2**1200), 2**1200) for m, x in following.items()}
        law = following

    def contained(a: int, b: int) -> Fraction:
        shares = (
            mass * Fraction(comb(a, m) * comb(b, k - m), comb(heavy, m) * comb(light, k - m))
            for m, mass in law.items()
        )
        return sum(shares, Fraction(0))

    return contained


def likeliest(q: Sequence[Fraction], count: int) -> tuple[int, ...]:
    """The `count` largest of positive probability, ties towards the lowest id."""
    positive = [i for i in range(len(q)) if q[i] > 0]
    return tuple(sorted(positive, key=lambda i: (-q[i], i))[:count])


def top_k(q: Sequence[Fraction], k: int) -> Law:
    return {likeliest(q, k): Fraction(1)}


def greedy(q: Sequence[Fraction], k: int, fixed: tuple[int, ...] | None = None) -> Law:
    """The k - 1 likeliest, or those that are told, then one of the rest in proportion to q."""
    fixed = likeliest(q, k - 1) if fixed is None else fixed
    rest = [i for i in range(len(q)) if q[i] > 0 and i not in fixed]
    if not rest:
        return {fixed: Fraction(1)}
    total = sum((q[i] for i in rest), Fraction(0))
    return {(*fixed, i): q[i] / total for i in rest}


def mixture(masses: Sequence[Fraction], laws: Sequence[Law]) -> Law:
    result: Law = {}
    for m, law in zip(masses, laws, strict=True):
        for drafts, mass in law.items():
            if m * mass:
                result[drafts] = result.get(drafts, Fraction(0)) + m * mass
    return result


def set_law(law: Law) -> SetLaw:
    """Law of the set of distinct drafts."""
    result: SetLaw = {}
    for drafts, mass in law.items():
        members = frozenset(drafts)
        result[members] = result.get(members, Fraction(0)) + mass
    return result


def containment(law: Mapping[tuple[int, ...], Fraction], subset: Iterable[int]) -> Fraction:
    """Pr(all drafts in the subset)."""
    inside = frozenset(subset)
    return sum((mass for drafts, mass in law.items() if inside.issuperset(drafts)), Fraction(0))


def subsets(vocab_size: int) -> Iterable[tuple[int, ...]]:
    for size in range(vocab_size + 1):
        yield from combinations(range(vocab_size), size)


def optimum_over_subsets(p: Sequence[Fraction], law: Law) -> Fraction:
    """1 + min over all 2^V subsets H of P(H) - Pr(drafts in H)."""
    sets = set_law(law)
    unit = lcm(*(x.denominator for x in (*p, *sets.values())))  # 1 / unit divides them all
    shares = [int(x * unit) for x in p]
    masses = [(members, int(mass * unit)) for members, mass in sets.items()]
    least = min(
        sum(shares[i] for i in h) - sum(mass for s, mass in masses if s.issubset(h))
        for h in subsets(len(p))
    )
    return 1 + Fraction(least, unit)


def optimum_by_flow(p: Sequence[Fraction], law: Law) -> Fraction:
    """The transport problem itself, solved as a maximum flow."""
    return sum(best_plan(p, law).values(), Fraction(0))


def best_plan(p: Sequence[Fraction], law: Law) -> dict[tuple[frozenset[int], int], Fraction]:
    """Maximum flow from draft sets to tokens, by shortest paths: mass for (set, token)."""
    sets = set_law(law)
    source, sink = "source", "sink"
    capacity: dict[object, dict[object, Fraction]] = {source: {}, sink: {}}
    for members, mass in sets.items():
        capacity[source][members] = mass
        capacity[members] = {source: Fraction(0)} | dict.fromkeys(members, mass)
    for i, x in enumerate(p):
        capacity[i] = {sink: x} | dict.fromkeys((s for s in sets if i in s), Fraction(0))
        capacity[sink][i] = Fraction(0)
    while True:
        came_from: dict[object, object] = {source: source}
        queue: deque[object] = deque([source])
        while queue and sink not in came_from:
            node = queue.popleft()
            for neighbour, left in capacity[node].items():
                if left > 0 and neighbour not in came_from:
                    came_from[neighbour] = node
                    queue.append(neighbour)
        if sink not in came_from:
            return {(s, i): capacity[i][s] for s in sets for i in s}  # what could flow back
        path: list[object] = [sink]
        while path[-1] != source:
            path.append(came_from[path[-1]])
        path.reverse()
        arcs = list(pairwise(path))
        step = min(capacity[a][b] for a, b in arcs)
        for a, b in arcs:
            capacity[a][b] -= step
            capacity[b][a] += step


def listed(drafts: DraftScheme) -> dict[tuple[int, ...], Fraction]:
    """Draft tuples that a scheme lists in Fractions, padded with -1, with their masses."""
    tuples, masses = drafts.law(True).tuple_law()
    found = dict(zip(map(tuple, tuples.tolist()), masses.tolist(), strict=True))
    assert len(found) == len(tuples)
    return found
