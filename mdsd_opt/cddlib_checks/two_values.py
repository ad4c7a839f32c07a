r"""Formula for drafts of two values at one node (`decoding.value_bound`), for every target.

In units of half of :math:`v_1 - v_2`, chains of n prefixes serve :math:`v_1` from 2n - 2 to 2n. At
:math:`v_1 = 2n - 1` the formula is :math:`F(p) = C_n(p) + C_{n-1}(p)`. For given q it is settled
there for every p, of any mass, in two halves:

* A pair of chains has the prices y that count the prefixes around a token. It bounds the optimum
  from above if its constant is no less than :math:`\operatorname{E} \max_k (v_k - y_{X_k})_+`.
* Over the targets of one order by p/q, F is the least of finitely many affine functions. The
  optimum is concave and does not fall in p, so it reaches F everywhere if it does so at the
  vertices of the polyhedron below F.

This settles all values in between: the optimum is convex in :math:`v_1`, F is affine between 2n - 2
and 2n and a bound from above, and the two are equal in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement, pairwise, permutations

from mdsd_opt.cddlib_checks import double_description
from mdsd_opt.cddlib_checks.draft_laws import document, scope_of, set_law
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, approximate
from mdsd_opt.cddlib_checks.subsets import Point, primitive
from mdsd_opt.drafts import WithReplacement

#: Pairs of draft sets, of the drafts worth more and of the others, with their probabilities.
PairLaw = dict[tuple[tuple[int, ...], tuple[int, ...]], Fraction]

#: Tokens counted as often as there are prefixes around them, with the constant of the chain.
Chains = list[tuple[tuple[int, ...], Fraction]]

Rows = list[list[Fraction | int]]


def two_values(drafts: WithReplacement, many: int, length: int) -> Evidence:
    """Check the formula if 0 < `many` < K drafts are worth more, in chains of n = `length` > 1."""
    q, few = drafts.model.exact(), drafts.num_drafts - many
    scope = scope_of(drafts) + (
        f"; {many} worth v1 and {few} worth v2, {length - 1} <= v1 / (v1 - v2) <= {length}"
    )
    worth = 2 * length - 1
    law = _pair_law(q, many, few)
    seen = set()
    bounds = vertices = 0
    for order in permutations(i for i in range(len(q)) if q[i]):
        if tuple(q[i] for i in order) in seen:  # tokens of equal q are alike
            continue
        seen.add(tuple(q[i] for i in order))
        longer, shorter = (chains_of(q, order, many, few, n) for n in (length, length - 1))
        for prices, constant, first in _bounds(longer, shorter, worth):
            bounds += 1
            if constant < _price_of_drafts(law, prices, first):
                explanation = f"prices {list(prices)} of the order {list(order)} bound nothing"
                odd = Counterexample("no bound", explanation, document(drafts))
                return Evidence(False, scope, (odd,))
        for p, value in vertices_below(q, order, longer, shorter):
            vertices += 1
            optimum = _optimum(law, p, worth)
            if optimum != value:
                explanation = (
                    f"for v1 = {worth}, v2 = {worth - 2} the formula gives {approximate(value)}, "
                    f"the best rule {approximate(optimum)}"
                )
                odd = Counterexample("another optimum", explanation, document(drafts), target=p)
                return Evidence(False, scope, (odd,))
    return Evidence(True, scope, sizes={"pairs_of_chains": bounds, "vertices": vertices})


def _pair_law(q: Sequence[Fraction], many: int, few: int) -> PairLaw:
    first, second = (set_law(WithReplacement(q, n)) for n in (many, few))
    return {(s, r): x * y for s, x in first.items() for r, y in second.items() if x and y}


def chains_of(
    q: Sequence[Fraction], order: Sequence[int], many: int, few: int, count: int
) -> Chains:
    """All falling chains of so many prefixes, with the sum of 1 - a_j^m1 a_{j-1}^m2."""
    a = list(accumulate((q[i] for i in order), initial=Fraction(0)))
    listed = []
    for ends in combinations_with_replacement(range(len(order), -1, -1), count):
        terms = (1 - a[end] ** many * a[before] ** few for before, end in pairwise(ends))
        constant = sum(terms, 1 - a[ends[0]] ** many)
        around = [0] * len(q)
        for end in ends:
            for i in order[:end]:
                around[i] += 1
        listed.append((tuple(around), constant))
    return listed


def _bounds(
    longer: Chains, shorter: Chains, worth: int
) -> Iterator[tuple[tuple[int, ...], Fraction, int]]:
    """Prices, constants and v1 of all pairs of chains, and of both kinds alone at the ends."""
    for chains, end in ((longer, worth + 1), (shorter, worth - 1)):
        for around, constant in chains:
            yield tuple(2 * x for x in around), 2 * constant, end
    for first, one in longer:
        for second, other in shorter:
            yield tuple(x + y for x, y in zip(first, second, strict=True)), one + other, worth


def _price_of_drafts(law: PairLaw, prices: Sequence[int], worth: int) -> Fraction:
    """Mean price, E max_k (v_k - y_{X_k})_+."""
    return sum(
        (mass * max(worth - min(prices[i] for i in s), worth - 2 - min(prices[i] for i in r), 0)
         for (s, r), mass in law.items()), Fraction(0)
    )  # fmt: skip


def vertices_below(
    q: Sequence[Fraction], order: Sequence[int], longer: Chains, shorter: Chains
) -> Iterator[tuple[Point, Fraction]]:
    """Targets with p/q ascending along `order` at which F has a vertex, and F there.

    Rows in p and one variable below each of the two minima. Along rays F does not rise.
    """
    size = len(q)
    rows: Rows = [[0, *(int(i == j) for j in range(size)), 0, 0] for i in range(size)]
    for i, j in pairwise(order):
        rows.append([0, *(q[i] * (t == j) - q[j] * (t == i) for t in range(size)), 0, 0])
    for chains, below in ((longer, (-1, 0)), (shorter, (0, -1))):
        rows += [[constant, *around, *below] for around, constant in chains]
    points, rays = double_description.generators(sorted({primitive(row) for row in rows}))
    assert all(max(ray[size:]) <= 0 <= min(ray[:size]) for ray in rays)
    for point in points:
        yield point[:size], point[size] + point[size + 1]


def _optimum(law: PairLaw, p: Sequence[Fraction], worth: int) -> Fraction:
    """Largest mean value of the draft passed, a linear programme over all rules."""
    passed = [
        (pair, i, worth if i in pair[0] else worth - 2)
        for pair in law
        for i in {*pair[0], *pair[1]}
    ]
    rows: Rows = [[0, *(int(i == j) for j in range(len(passed)))] for i in range(len(passed))]
    rows += [[mass, *(-(x[0] == pair) for x in passed)] for pair, mass in law.items()]
    rows += [[mass, *(-(x[1] == i) for x in passed)] for i, mass in enumerate(p)]
    best = double_description.maximise(map(primitive, rows), [x[2] for x in passed])
    assert best is not None
    return best[0]
