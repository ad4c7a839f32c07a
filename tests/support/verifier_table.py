"""Every verifier with the schemes it is lossless for, in one table that drives their tests."""

from __future__ import annotations

import numpy as np
from support.strategies import SCHEMES

from mdsd_opt import (
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
    verifiers,
)
from mdsd_opt.drafts import DraftScheme

#: A problem for each scheme; token 4 is impossible under the target and often drafted.
P = np.array([0.45, 0.25, 0.2, 0.1, 0.0])
Q = np.array([0.15, 0.3, 0.1, 0.2, 0.25])
EXAMPLES = {
    "with_replacement": WithReplacement(Q, 2),
    "without_replacement": WithoutReplacement(Q, 3),
    "greedy": GreedyDrafts(Q, 2),
    "top_k": TopKDrafts(Q, 2),
    "independent": IndependentDrafts([Q, P]),
    "set_law": DraftSetLaw(5, {(0, 4): 0.5, (1, 2, 3): 0.5}),
    "mixture": MixtureDrafts([(0.4, WithReplacement(Q, 3)), (0.6, WithoutReplacement(Q, 2))]),
    "fixed_plus": FixedPlusDrafts([1], WithReplacement(Q, 2)),
    "mixed_models": MixtureDrafts([(0.4, IndependentDrafts([Q, P])), (0.6, WithReplacement(Q, 1))]),
    "fixed_beside_any": FixedPlusDrafts([1], DraftSetLaw(5, {(0, 4): 0.5, (1, 2): 0.5})),
}

SINGLE_MODEL = {
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "greedy": GreedyDrafts,
    "top_k": TopKDrafts,
}


def counts_for(verifier: verifiers.Verifier, *usual: int) -> tuple[int, ...]:
    """Numbers of drafts to try a verifier with: those given, or the only one that it takes."""
    only = verifier.only_num_drafts
    return usual if only is None else (only,)


def example(scheme: str, verifier: verifiers.Verifier) -> DraftScheme:
    """The example of a scheme, with as many drafts as the verifier takes."""
    usual = EXAMPLES[scheme]
    (k,) = counts_for(verifier, usual.num_drafts)
    if k == usual.num_drafts:
        return usual
    if scheme in SINGLE_MODEL:
        return SINGLE_MODEL[scheme](Q, k)
    return IndependentDrafts([Q, P, Q, P][:k]) if scheme == "independent" else usual


#: As each declares it.
TABLE = {
    verifier.name: tuple(x for x in SCHEMES if verifier.supports(example(x, verifier)))
    for verifier in map(verifiers.get, verifiers.names())
}
PAIRS = [(name, scheme) for name, schemes in TABLE.items() for scheme in schemes]
