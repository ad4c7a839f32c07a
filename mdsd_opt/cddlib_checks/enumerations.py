"""Claims settled by enumeration in fractions: of all draft tuples, of all subsets, of all pairs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from math import prod

from mdsd_opt.cddlib_checks.condition import FLOW
from mdsd_opt.cddlib_checks.draft_laws import document, exact_models, scope_of
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, approximate
from mdsd_opt.cddlib_checks.subsets import (
    containment_table,
    describe,
    exact_acceptance,
    masses_of_subsets,
    members,
)
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.problem import TransportProblem


def hull_rule_evidence(drafts: DraftScheme, targets: int, seed: int = 0) -> Evidence:
    """Enumerate all draft tuples, with the mixing variable integrated over its breakpoints.

    For each target, the output law must equal the target and the acceptance rate the maximum flow.
    """
    from mdsd_opt import verifiers

    verifier = verifiers.get("optimal")
    law = drafts.exact_support_law()
    chosen = varied_targets(drafts, targets, random.Random(seed))
    scope = scope_of(drafts, f"{len(chosen)} targets")
    for p in chosen:
        problem = TransportProblem(list(p), drafts)
        output = tuple(verifier.output_law(problem, exact=True))
        rate = verifier.enumerated_acceptance_rate(problem, exact=True)
        best = exact_acceptance(p, law)
        if output != p or rate != best:
            kind = "lossy" if output != p else "suboptimal"
            told = f"output law ({', '.join(map(str, output))})" if output != p else f"rate {rate}"
            found = Counterexample(kind, told, document(drafts), p, best, None, FLOW)
            return Evidence(False, scope, (found,))
    return Evidence(True, scope, sizes={"targets": len(chosen)})


def varied_targets(
    drafts: DraftScheme, count: int, rng: random.Random
) -> list[tuple[Fraction, ...]]:
    """The draft itself, a point mass, and random ones with ties, zeros and mixed magnitudes."""
    size = drafts.vocab_size
    chosen = [tuple(exact_models(drafts)[0]), tuple(Fraction(int(i == 0)) for i in range(size))]
    while len(chosen) < count:
        weights = [rng.choice((0, 1, 1, 2, 5, 30)) * rng.choice((1, 1, 7)) for _ in range(size)]
        total = sum(weights)
        if total:
            chosen.append(tuple(Fraction(x, total) for x in weights))
    return list(dict.fromkeys(chosen))


def threshold_sets(drafts: DraftScheme, targets: int, seed: int = 0) -> Evidence:
    r"""Every optimal subset of every one of the targets is a threshold set of its own weights.

    Let H be optimal and :math:`c_k = \prod_{l \ne k} q_l(H)`. As Q is a product of measures, its
    increments at H are at most, and beyond H at least, those of its linear part, so that tokens
    inside have :math:`p_i \le \sum_k c_k q_k(i)` and tokens outside
    :math:`p_i \ge \sum_k c_k q_k(i)`.
    """
    models = exact_models(drafts)
    tables = [masses_of_subsets(q) for q in models]
    contained = containment_table(drafts.exact_support_law(), drafts.vocab_size)
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
                told = f"token {token} is on the wrong side of the optimal subset {describe(mask)}"
                found = Counterexample(
                    "not a threshold set", told, document(drafts), p, 1 + best, members(mask)
                )
                return Evidence(False, scope, (found,))
    return Evidence(True, scope, sizes={"targets": len(chosen), "optimal_subsets": optimal})


def misplaced(
    p: Sequence[Fraction],
    models: Sequence[Sequence[Fraction]],
    weights: Sequence[Fraction],
    mask: int,
) -> int | None:
    """A token on the wrong side of sum_k c_k q_k, for these weights c and this subset."""
    for i, x in enumerate(p):
        threshold = sum((c * q[i] for c, q in zip(weights, models, strict=True)), Fraction(0))
        if (x > threshold) if mask >> i & 1 else (x < threshold):
            return i
    return None


def excess_supermodular(drafts: DraftScheme) -> Evidence:
    r"""Whether :math:`(Q - c)_+` is supermodular, as the laws beyond lossless acceptance need it.

    Q is monotone and supermodular, and a convex function that does not fall keeps both. For two
    sets the inequality is piecewise linear in c, with kinks at four values of Q, below and above
    which it says nothing new: so all pairs of sets are compared at these.
    """
    table = containment_table(drafts.exact_support_law(), drafts.vocab_size)
    compared = 0
    for a in range(len(table)):
        for b in range(a):
            values = table[a], table[b], table[a | b], table[a & b]
            for level in sorted({Fraction(0), *values}):
                compared += 1
                if _lacks(values, level):
                    told = f"of {describe(a)} and {describe(b)}, at c = {approximate(level)}"
                    odd = Counterexample(
                        "not supermodular", told, document(drafts), subset=members(a)
                    )
                    return Evidence(False, scope_of(drafts), (odd,))
    return Evidence(True, scope_of(drafts), sizes={"comparisons": compared})


def _lacks(values: Sequence[Fraction], level: Fraction) -> bool:
    first, second, union, common = (max(x - level, Fraction(0)) for x in values)
    return first + second > union + common
