r"""Checks whether a list of inequalities is exactly the condition for acceptance one.

The targets with acceptance one are the Minkowski sum of :math:`W_S\,\mathrm{conv}\{e_i : i \in S\}`
over the draft sets. A linear function is smallest on it where every set gives its mass to its
cheapest token, so each claimed inequality is tested for being too strong by one such priority law.
For being too weak, double description lists all vertices of the claimed polytope, and each one is
held against all subset inequalities.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mdsd_opt.cddlib_checks import double_description
from mdsd_opt.cddlib_checks.draft_laws import document, scope_of, set_law
from mdsd_opt.cddlib_checks.polyhedra import Polyhedron
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, Inequality, approximate
from mdsd_opt.cddlib_checks.subsets import (
    SetLaw,
    best_cuts,
    containment_table,
    describe,
    exact_acceptance,
    members,
    priority_law,
    priority_laws,
    proper_subsets,
    with_last_token,
    without_last_token,
)
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import SolverError

FLOW = "an integer maximum flow"


def subset_inequalities(containment: Sequence[Fraction], vocab_size: int) -> list[Inequality]:
    """Inequalities P(A) >= Q(A) for every A but the empty and the full set."""
    return [
        Inequality.on_subset(vocab_size, members(mask), containment[mask])
        for mask in proper_subsets(vocab_size)
    ]


def acceptance_polytope(drafts: DraftScheme) -> Evidence:
    """Compare the subset inequalities with the definition, for these drafts and every target."""
    table = containment_table(set_law(drafts), drafts.vocab_size)
    return claimed_condition(drafts, subset_inequalities(table, drafts.vocab_size))


def claimed_condition(drafts: DraftScheme, claimed: Sequence[Inequality]) -> Evidence:
    """Whether {p : all claimed inequalities} is exactly the set of targets with acceptance one.

    Up to two counterexamples are given, one too weak and one too strong.
    """
    law = set_law(drafts)
    size = drafts.vocab_size
    containment = containment_table(law, size)
    counterexamples = [*_too_strong(law, claimed, document(drafts))]

    points = vertices_of(claimed, size)
    cuts = best_cuts(points, containment)
    rates = [(rate, mask, p) for p, (rate, mask) in zip(points, cuts, strict=True)]
    failing = [entry for entry in rates if entry[0] < 1]
    if failing:
        counterexamples.insert(0, _too_weak(law, containment, min(failing), document(drafts)))
    scope = scope_of(drafts)
    sizes = {"inequalities": len(claimed), "vertices": len(points)}
    if counterexamples:
        sizes["vertices_below_one"] = len(failing)
        kinds = " and ".join(c.kind for c in counterexamples)
        return Evidence(False, scope, tuple(counterexamples), sizes=sizes, reason=kinds)

    laws = priority_laws(law, size)
    if points != laws:
        raise SolverError(
            f"double description found {len(points)} vertices, the priority orders give "
            f"{len(laws)} laws, and they differ: please report this"
        )
    flat = not is_full_dimensional(containment, size)
    facets = () if flat else facets_of(claimed, size)
    sizes["polytope_facets"] = len(facets)
    polytope = Polyhedron(
        kind="polytope",
        title=f"targets with acceptance one: {scope_of(drafts)}",
        variables=tuple(f"p{i}" for i in range(size)),
        facets=tuple((-x.bound, *x.coefficients) for x in facets),
        equalities=((-1, *[1] * size),),
        generators=tuple((1, *point) for point in sorted(points)),
    )
    if flat:
        del sizes["polytope_facets"]
    return Evidence(
        True,
        scope,
        facets=facets,
        polyhedra=() if flat else (polytope,),
        sizes=sizes,
        reason="the polytope is not full-dimensional, so no facets are listed" if flat else "",
    )


def vertices_of(claimed: Sequence[Inequality], vocab_size: int) -> set[tuple[Fraction, ...]]:
    """Vertices of the distributions p that satisfy the claimed inequalities."""
    positive = [Inequality.on_subset(vocab_size, (i,), Fraction(0)) for i in range(vocab_size)]
    rows = {without_last_token(x.bound, x.coefficients) for x in [*claimed, *positive]}
    return {with_last_token(point) for point in double_description.vertices(sorted(rows))}


def facets_of(claimed: Sequence[Inequality], vocab_size: int) -> tuple[Inequality, ...]:
    """Inequalities, of these and of p >= 0, that no others imply."""
    positive = [Inequality.on_subset(vocab_size, (i,), Fraction(0)) for i in range(vocab_size)]
    by_row = {without_last_token(x.bound, x.coefficients): x for x in [*positive, *claimed]}
    facet_rows = double_description.irredundant(by_row)
    facets = [inequality for row, inequality in by_row.items() if row in facet_rows]
    return tuple(sorted(facets, key=lambda facet: _tokens(facet, vocab_size)))


def _tokens(inequality: Inequality, vocab_size: int) -> tuple[int, list[int]]:
    """Sort key: few tokens first, then ascending."""
    used = [i for i in range(vocab_size) if inequality.coefficients[i]]
    return len(used), used


def is_full_dimensional(containment: Sequence[Fraction], vocab_size: int) -> bool:
    """Whether no set A of tokens has fixed mass, Q(A) = 1 - Q(complement)."""
    full = (1 << vocab_size) - 1
    return all(
        containment[mask] + containment[full ^ mask] < 1 for mask in proper_subsets(vocab_size)
    )


def _too_strong(
    law: SetLaw, claimed: Sequence[Inequality], drafts: dict[str, Any]
) -> list[Counterexample]:
    worst: tuple[Fraction, Inequality, tuple[Fraction, ...]] | None = None
    for inequality in claimed:
        c = inequality.coefficients
        p = priority_law(law, sorted(range(len(c)), key=c.__getitem__))
        slack = inequality.slack(p)
        if slack < 0 and (worst is None or slack < worst[0]):
            worst = slack, inequality, p
    if worst is None:
        return []
    slack, inequality, p = worst
    rate = exact_acceptance(p, law)
    if rate != 1:
        raise SolverError(f"a priority law has acceptance {rate} by maximum flow: please report it")
    return [
        Counterexample(
            kind="too strong",
            explanation=f"this target has acceptance one, yet the claimed {inequality} fails on "
            f"it, by {approximate(-slack)}",
            drafts=drafts,
            target=p,
            acceptance_rate=rate,
            subset=tuple(i for i, c in enumerate(inequality.coefficients) if c),
            confirmed=FLOW,
        )
    ]


def _too_weak(
    law: SetLaw,
    containment: Sequence[Fraction],
    vertex: tuple[Fraction, int, tuple[Fraction, ...]],
    drafts: dict[str, Any],
) -> Counterexample:
    rate, mask, p = vertex
    if exact_acceptance(p, law) != rate:
        raise SolverError(
            f"subset {describe(mask)} gives acceptance {rate} for target {p}, and maximum flow "
            "another value: please report this"
        )
    return Counterexample(
        kind="too weak",
        explanation=f"this target satisfies every claimed inequality, yet P({describe(mask)}) is "
        f"below Q({describe(mask)}) = {approximate(containment[mask])}",
        drafts=drafts,
        target=p,
        acceptance_rate=rate,
        subset=members(mask),
        confirmed=FLOW,
    )
