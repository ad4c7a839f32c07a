"""Provers of the registry: each settles one claim at one size and states its exact scope.

They run inside the child process. A prover takes the size and the drafts and returns `Evidence`:
from polyhedra, or by enumeration in fractions of all draft tuples, all subsets or all pairs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product
from math import factorial, prod

from mdsd_opt.cddlib_checks import cones, double_description
from mdsd_opt.cddlib_checks.condition import (
    FLOW,
    facets_of,
    is_full_dimensional,
    subset_inequalities,
    vertices_of,
)
from mdsd_opt.cddlib_checks.draft_laws import document, exact_models, readable, scope_of, set_law
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, approximate
from mdsd_opt.cddlib_checks.subsets import (
    Row,
    SetLaw,
    containment_table,
    describe,
    exact_acceptance,
    masses_of_subsets,
    members,
    primitive,
    priority_law,
    priority_laws,
    proper_subsets,
    without_last_token,
)
from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.problem import TransportProblem


def _cone_sizes(vocab_size: int, num_drafts: int) -> range:
    # Sets of one token alone would leave p = W, a cone without interior; with pairs it has one.
    return range(1, min(max(num_drafts, 2), vocab_size) + 1)


def _every_law(vocab_size: int, sizes: Sequence[int]) -> str:
    if len(sizes) == vocab_size:
        return f"V = {vocab_size}: every q, every K and every other law of the drafts, every target"
    return (
        f"V = {vocab_size}: every law of at most {sizes[-1]} drafts, dependent or not, every target"
    )


def _cone_evidence(finding: cones.ConeFinding, scope: str) -> Evidence:
    if finding.describes_cone:
        return Evidence(True, scope, sizes=finding.sizes, polyhedra=(finding.cone,))
    # A cone has no one instance to show; the polytope of given drafts has.
    wrong = (*finding.unexpected, *finding.violated)
    reason = f"the cone differs: {wrong[0]}"
    return Evidence(None, scope, sizes=finding.sizes, reason=reason, polyhedra=(finding.cone,))


def acceptance_cone(vocab_size: int, num_drafts: int) -> Evidence:
    """Compute the facets of the cone of all (p, W) with acceptance one."""
    sizes = _cone_sizes(vocab_size, num_drafts)
    finding = cones.acceptance_cone(vocab_size, sizes)
    return _cone_evidence(finding, _every_law(vocab_size, sizes))


def value_cone(vocab_size: int, num_drafts: int) -> Evidence:
    """Compute the facets of the hypograph of the optimal acceptance."""
    sizes = _cone_sizes(vocab_size, num_drafts)
    finding = cones.hypograph_cone(vocab_size, sizes)
    return _cone_evidence(finding, _every_law(vocab_size, sizes))


def large_subsets_cone(vocab_size: int, num_drafts: int) -> Evidence:
    """Compute the facets of the cone whose draft sets all have K tokens."""
    size = min(num_drafts, vocab_size)
    finding = cones.acceptance_cone(vocab_size, [size], smallest_subset=size)
    scope = f"V = {vocab_size}: every law of {size} distinct drafts, every target"
    if finding.redundant:
        return Evidence(
            None, scope, sizes=finding.sizes, reason=f"no facet of the cone: {finding.redundant[0]}"
        )
    return _cone_evidence(finding, scope)


def large_subsets_polytope(drafts: DraftScheme) -> Evidence:
    """Compare facets for given q without replacement with |A| >= K and p >= 0."""
    size = drafts.vocab_size
    table = containment_table(set_law(drafts), size)
    scope = scope_of(drafts)
    if not is_full_dimensional(table, size):
        return Evidence(None, scope, reason="some tokens have fixed mass: no unique facets")
    every = subset_inequalities(table, size)
    facets = facets_of(every, size)
    smallest = min(drafts.num_drafts, size)
    expected = {
        without_last_token(x.bound, x.coefficients)
        for mask, x in zip(proper_subsets(size), every, strict=True)
        if mask.bit_count() in (1, *range(smallest, size))
    }
    rows = {without_last_token(x.bound, x.coefficients) for x in facets}
    sizes = {"inequalities": len(every), "polytope_facets": len(facets)}
    if rows == expected:
        return Evidence(True, scope, facets=facets, sizes=sizes)
    explanation = f"found {len(facets)}, claimed {len(expected)}"
    odd = Counterexample("other facets", explanation, document(drafts))
    return Evidence(False, scope, (odd,), facets=facets, sizes=sizes)


def vertex_counts(drafts: DraftScheme) -> Evidence:
    """Compare the number of vertices by double description with the closed form."""
    law = set_law(drafts)
    size = drafts.vocab_size
    claimed = subset_inequalities(containment_table(law, size), size)
    points = vertices_of(claimed, size)
    drafted = sum(1 for x in exact_models(drafts)[0] if x)
    count = min(drafts.num_drafts, drafted)
    if drafts.num_drafts == 1:
        expected, formula = 1, "1, as p = q"
    elif drafts.independent_models is None:
        expected = factorial(drafted) // factorial(count - 1)
        formula = f"{drafted}!/{count - 1}!"
    else:
        expected, formula = factorial(drafted), f"{drafted}!"
    scope = f"V = {size}, K = {drafts.num_drafts}, {readable(drafts)}"
    sizes = {"vertices": len(points), "claimed_vertices": expected}
    if len(points) == expected and points <= priority_laws(law, size):
        return Evidence(True, scope, sizes=sizes, reason=f"claimed: {formula} = {expected}")
    explanation = f"{len(points)} vertices, claimed {formula} = {expected}"
    odd = Counterexample("another count", explanation, document(drafts))
    return Evidence(False, scope, (odd,), sizes=sizes)


def smaller_acceptance(better: DraftScheme, worse: DraftScheme) -> Counterexample | None:
    """Target on which the scheme that should be better accepts less often, if there is one.

    There is none if and only if Q is nowhere larger: for H with a larger Q, the target that meets
    all subset inequalities of the other scheme and is smallest on H has acceptance one there and
    less than one here.
    """
    size = better.vocab_size
    law, other = set_law(better), set_law(worse)
    table, larger = containment_table(law, size), containment_table(other, size)
    mask = max(proper_subsets(size), key=lambda m: table[m] - larger[m], default=0)
    if table[mask] <= larger[mask]:
        return None
    p = priority_law(other, sorted(range(size), key=lambda i: mask >> i & 1))
    return Counterexample(
        kind="smaller acceptance",
        explanation=f"with {readable(worse)} the acceptance is one; here, P({describe(mask)}) is "
        f"below Q({describe(mask)})",
        drafts=document(better),
        target=p,
        acceptance_rate=exact_acceptance(p, law),
        subset=members(mask),
        confirmed=FLOW,
    )


def dominates(better: DraftScheme, worse: DraftScheme) -> Evidence:
    """Check that alpha* of the one scheme is at least that of the other, for every target."""
    size = better.vocab_size
    scope = (
        f"V = {size}, K = {better.num_drafts}, {readable(better)}, against {readable(worse)}, "
        "every target"
    )
    if (odd := smaller_acceptance(better, worse)) is not None:
        return Evidence(False, scope, (odd,))
    # The same by double description: every vertex of the one polytope lies in the other.
    law, other = set_law(better), set_law(worse)
    points = vertices_of(subset_inequalities(containment_table(other, size), size), size)
    assert all(exact_acceptance(p, law) == 1 for p in points)
    return Evidence(True, scope, sizes={"vertices": len(points)})


def projection(drafts: DraftScheme) -> Evidence:
    """Eliminate the plan variables C(i, S) and compare with the subset inequalities.

    Variables (p, C) with sum_S C(i, S) <= p_i, sum_i C(i, S) = W_S, C >= 0. The target may have any
    mass, so the full set of tokens counts among the subsets. Plans of different draft sets meet in
    the sums alone, so the variables of one set are eliminated before those of the next come in.
    """
    law = {s: mass for s, mass in set_law(drafts).items() if mass}
    size = drafts.vocab_size
    inequalities = {(0, *(int(i == j) for j in range(size))) for i in range(size)}
    largest = 0
    for s, mass in law.items():
        rows = _with_plan_of(inequalities, s, mass)
        largest = max(largest, len(rows))
        inequalities = double_description.project_out_last(rows, len(s) - 1)

    expected = double_description.irredundant(_subset_rows(law, size))
    scope = scope_of(drafts)
    variables = sum(len(s) - 1 for s in law)
    sizes = {"plan_variables": variables, "rows": largest, "polytope_facets": len(inequalities)}
    if inequalities == expected:
        return Evidence(True, scope, sizes=sizes)
    explanation = f"row {list(min(inequalities ^ expected))} is in one list only"
    odd = Counterexample("another projection", explanation, document(drafts))
    return Evidence(False, scope, (odd,), sizes=sizes)


def _with_plan_of(rows: Iterable[Row], s: tuple[int, ...], mass: Fraction) -> list[Row]:
    """Rows in p and C(., S), by which the rest of p without the plan of S satisfies the given rows.

    The last token of S gets the mass of S less the variables of the others.
    """
    free = len(s) - 1
    result = []
    for b, *a in rows:
        last = a[s[-1]]
        result.append(primitive([b - last * mass, *a, *(last - a[i] for i in s[:-1])]))
    zeros = [0] * len(a)
    result += [(0, *zeros, *(int(i == j) for j in range(free))) for i in range(free)]
    result.append(primitive([mass, *zeros, *[-1] * free]))
    return [row for row in result if any(row[1:])]


def _subset_rows(law: SetLaw, vocab_size: int) -> list[Row]:
    """Rows of P(A) >= Q(A) for all A but the empty one, for targets of any mass."""
    table = containment_table(law, vocab_size)
    rows = {
        primitive([-table[mask], *(mask >> i & 1 for i in range(vocab_size))])
        for mask in range(1, 1 << vocab_size)
    }
    return sorted(rows)


def lifted_vertices(drafts: DraftScheme) -> Evidence:
    """Check that every vertex of the subset inequalities, for targets of any mass, has a plan.

    A plan gives all mass of the sets within A to tokens of A, so that its target meets the subset
    inequalities, and what is added to a target leaves it a plan. So the projection of the plans is
    the claimed polyhedron if all vertices of this have plans, and none of its rays is negative.
    """
    law = set_law(drafts)
    points, rays = double_description.generators(_subset_rows(law, drafts.vocab_size))
    scope = scope_of(drafts)
    sizes = {"vertices": len(points), "rays": len(rays)}
    for p in sorted(points):
        if sum(p) != 1 or exact_acceptance(p, law) != 1:
            explanation = f"the vertex {', '.join(map(str, p))} has no plan"
            odd = Counterexample("no plan", explanation, document(drafts), target=p)
            return Evidence(False, scope, (odd,), sizes=sizes)
    if any(min(ray) < 0 for ray in rays):
        odd = Counterexample("another projection", "a ray is negative", document(drafts))
        return Evidence(False, scope, (odd,), sizes=sizes)
    return Evidence(True, scope, sizes=sizes)


def hull_rule_evidence(drafts: DraftScheme, targets: int, seed: int = 0) -> Evidence:
    """Enumerate all draft tuples, with the mixing variable integrated over its breakpoints.

    For each target, the output law must equal the target and the acceptance rate the maximum flow.
    """
    from mdsd_opt import verifiers

    verifier = verifiers.get("optimal")
    law = set_law(drafts)
    chosen = varied_targets(drafts, targets, random.Random(seed))
    scope = scope_of(drafts, f"{len(chosen)} targets")
    for p in chosen:
        problem = TransportProblem(list(p), drafts)
        output = tuple(verifier.output_law(problem, exact=True))
        rate = verifier.enumerated_acceptance_rate(problem, exact=True)
        best = exact_acceptance(p, law)
        if output != p or rate != best:
            kind = "lossy" if output != p else "suboptimal"
            text = f"output law ({', '.join(map(str, output))})" if output != p else f"rate {rate}"
            odd = Counterexample(kind, text, document(drafts), p, best, None, FLOW)
            return Evidence(False, scope, (odd,))
    return Evidence(None, scope, instances=len(chosen))


def block_rules(drafts: DraftScheme) -> Evidence:
    """Enumerate all draft tuples: what the rule of each block returns has the law of q there.

    Blocks are intervals of the tokens that can be drafted, from a to before b. The rule is for
    drafts that all lie before b, and some from a on.
    """
    q = [x for x in exact_models(drafts)[0] if x]
    above = [sum(q[i:], Fraction(0)) for i in range(len(q) + 1)]
    replaced = drafts.scheme == WithReplacement.scheme
    count = drafts.num_drafts if replaced else min(drafts.num_drafts, len(q))
    returned = {(a, b): [Fraction(0)] * len(q) for a, b in combinations(range(len(q) + 1), 2)}
    tuples = (
        product(range(len(q)), repeat=count) if replaced else permutations(range(len(q)), count)
    )
    for tokens in tuples:
        masses = [q[i] for i in tokens]
        left = [1 - sum(masses[:n], Fraction(0)) for n in range(count + 1)]
        chance = prod(masses, start=Fraction(1)) / (1 if replaced else prod(left[:-1]))
        for (a, b), law in returned.items():
            if not a <= max(tokens) < b:
                continue
            first, *others = [n for n, i in enumerate(tokens) if i >= a]
            z, passed_on = masses[first], Fraction(0)
            if others and not replaced:
                ratios = (x / (x + z) for x in left[first + 1 : -1])
                passed_on = prod(ratios, start=chance * above[b] / (left[-1] + z))
            law[tokens[first]] += chance
            for n in others:
                moved = passed_on * masses[n] / (above[a] - above[b])
                law[tokens[n]] += moved
                law[tokens[first]] -= moved
    for (a, b), law in returned.items():
        for i, mass in enumerate(law):
            if mass * (above[a] - above[b]) != (q[i] * sum(law) if a <= i < b else 0):
                text = f"token {i} of the block from {a} to before {b} is returned with {mass}"
                odd = Counterexample("another law", text, document(drafts))
                return Evidence(False, scope_of(drafts, "this block"), (odd,))
    return Evidence(True, scope_of(drafts, "every block"), sizes={"blocks": len(returned)})


def varied_targets(
    drafts: DraftScheme, count: int, rng: random.Random
) -> list[tuple[Fraction, ...]]:
    """Targets: the draft itself, a point mass, random ones with ties, zeros, mixed magnitudes."""
    size = drafts.vocab_size
    chosen = [tuple(exact_models(drafts)[0]), tuple(Fraction(int(i == 0)) for i in range(size))]
    while len(chosen) < count:
        weights = [rng.choice((0, 1, 1, 2, 5, 30)) * rng.choice((1, 1, 7)) for _ in range(size)]
        total = sum(weights)
        if total:
            chosen.append(tuple(Fraction(x, total) for x in weights))
    return list(dict.fromkeys(chosen))


def threshold_sets(drafts: DraftScheme, targets: int, seed: int = 0) -> Evidence:
    r"""Check that every optimal subset of all targets is a threshold set of its own weights.

    Let H be optimal and :math:`c_k = \prod_{l \ne k} q_l(H)`. As Q is a product of measures, its
    increments at H are at most, and beyond H at least, those of its linear part, so that tokens
    inside have :math:`p_i \le \sum_k c_k q_k(i)` and tokens outside
    :math:`p_i \ge \sum_k c_k q_k(i)`.
    """
    models = exact_models(drafts)
    tables = [masses_of_subsets(q) for q in models]
    contained = containment_table(set_law(drafts), drafts.vocab_size)
    chosen = varied_targets(drafts, targets, random.Random(seed))
    scope = scope_of(drafts, f"{len(chosen)} targets")
    optimal = 0
    for p in chosen:
        mass = masses_of_subsets(p)
        values = [x - y for x, y in zip(mass, contained, strict=True)]
        best = min(values)
        for mask in (m for m, value in enumerate(values) if value == best):
            optimal += 1
            weights = [
                prod((t[mask] for t in tables[:k] + tables[k + 1 :]), start=Fraction(1))
                for k in range(len(models))
            ]
            token = misplaced(p, models, weights, mask)
            if token is not None:
                text = f"token {token} is on the wrong side of the optimal subset {describe(mask)}"
                odd = Counterexample(
                    "not a threshold set", text, document(drafts), p, 1 + best, members(mask)
                )
                return Evidence(False, scope, (odd,))
    return Evidence(None, scope, sizes={"optimal_subsets": optimal}, instances=len(chosen))


def misplaced(
    p: Sequence[Fraction],
    models: Sequence[Sequence[Fraction]],
    weights: Sequence[Fraction],
    mask: int,
) -> int | None:
    """Token on the wrong side of sum_k c_k q_k, for these weights c and this subset, or None."""
    for i, x in enumerate(p):
        threshold = sum((c * q[i] for c, q in zip(weights, models, strict=True)), Fraction(0))
        if (x > threshold) if mask >> i & 1 else (x < threshold):
            return i
    return None


def excess_supermodular(drafts: DraftScheme) -> Evidence:
    r"""Check that :math:`(Q - c)_+` is supermodular, as laws beyond lossless acceptance need it.

    Q is monotone and supermodular, and a convex function that does not fall keeps both. For two
    sets the inequality is piecewise linear in c, with kinks at four values of Q, below and above
    which it says nothing new: so all pairs of sets are compared at these.
    """
    table = containment_table(set_law(drafts), drafts.vocab_size)
    compared = 0
    for a in range(len(table)):
        for b in range(a):
            values = table[a], table[b], table[a | b], table[a & b]
            for level in sorted({Fraction(0), *values}):
                compared += 1
                if _lacks(values, level):
                    explanation = f"of {describe(a)} and {describe(b)}, at c = {approximate(level)}"
                    odd = Counterexample(
                        "not supermodular", explanation, document(drafts), subset=members(a)
                    )
                    return Evidence(False, scope_of(drafts), (odd,))
    return Evidence(True, scope_of(drafts), sizes={"comparisons": compared})


def _lacks(values: Sequence[Fraction], level: Fraction) -> bool:
    first, second, union, common = (max(x - level, Fraction(0)) for x in values)
    return first + second > union + common
