r"""Optimal subsets for drafts from different models, in exact arithmetic.

Let H be optimal and :math:`c_k = \prod_{l \ne k} q_l(H)`. As Q is a product of measures, its
increments at H are at most, and beyond H at least, those of its linear part, so that tokens inside
have :math:`p_i \le \sum_k c_k q_k(i)` and tokens outside :math:`p_i \ge \sum_k c_k q_k(i)`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from math import prod

from mdsd_opt.cddlib_checks.draft_laws import document, exact_models, scope_of
from mdsd_opt.cddlib_checks.hull_rule import varied_targets
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence
from mdsd_opt.cddlib_checks.subsets import (
    containment_table,
    describe,
    masses_of_subsets,
    members,
)
from mdsd_opt.drafts import DraftScheme


def threshold_sets(drafts: DraftScheme, targets: int, seed: int = 0) -> Evidence:
    """Every optimal subset of every one of the targets is a threshold set of its own weights."""
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
