r"""The optimal verifier in closed form: exactly lossless, and accepting as often as is possible.

1. Selection marginal p_I: raise the target to c w inside the optimal subset, cap it at c' w outside
   (`mdsd_opt.problem.water_filling`).
2. Select a draft with law exactly p_I by the hull rule.
3. Single-draft speculative sampling of p against p_I: accept the selected z with probability
   min(1, p_z / p_I(z)), else draw from the positive part of p - p_I.

Which draft is accepted stands in `acceptance_rule`, once, with its two parts: the block around the
topmost draft (`hull`), and which draft of a block to take (`block_rules`). It asks a `plan` for p_I
over groups of tokens, of which there are three: every token by itself (`plan.SortedPlan`, for all
schemes with a prefix order and in Fractions), buckets of p/q that are opened where that makes a
difference (`grouped_plan`, no sort), and closed bins (`collapsed`, one pass, a certified loss).

Where the drafts have no prefix order, a fitted rule selects instead of the hull rule, with a law
that is exact and a gap that is certified: a `ladder` for different draft models, else `potentials`.
"""

from mdsd_opt.verifiers.optimal.verifier import Optimal

__all__ = ["Optimal"]

VERIFIER = Optimal()
