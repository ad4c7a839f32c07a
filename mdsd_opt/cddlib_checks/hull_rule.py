"""The closed-form verifier against its claim, in exact arithmetic."""

from __future__ import annotations

import random
from fractions import Fraction

from mdsd_opt.cddlib_checks.condition import FLOW
from mdsd_opt.cddlib_checks.draft_laws import document, exact_models, scope_of
from mdsd_opt.cddlib_checks.integer_flow import exact_acceptance
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence
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
