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

#: As each declares it. Those for one number of drafts are left out, as `spechub` for two.
TABLE = {
    name: tuple(scheme for scheme in SCHEMES if verifiers.get(name).supports(EXAMPLES[scheme]))
    for name in verifiers.names()
    if verifiers.get(name).only_num_drafts is None
}
PAIRS = [(name, scheme) for name, schemes in TABLE.items() for scheme in schemes]
SINGLE_MODEL = {
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "greedy": GreedyDrafts,
    "top_k": TopKDrafts,
}
