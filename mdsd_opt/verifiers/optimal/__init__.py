r"""The optimal verifier in closed form: exactly lossless, and accepting as often as is possible.

1. Selection marginal p_I: raise the target to c w inside the optimal subset, cap it at c' w outside
   (`mdsd_opt.water_filling`).
2. Select a draft with law exactly p_I by the hull rule (`hull`, `block_rules`).
3. Single-draft speculative sampling of p against p_I: accept the selected z with probability
   min(1, p_z / p_I(z)), else draw from the positive part of p - p_I.

Where the drafts have no prefix order, `potentials` select instead of the hull rule, with a law that
is exact and a gap that is certified.
"""

from mdsd_opt.verifiers.optimal.verifier import VERIFIER, Optimal

__all__ = ["VERIFIER", "Optimal"]
