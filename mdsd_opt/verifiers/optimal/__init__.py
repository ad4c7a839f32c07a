r"""The optimal verifier in closed form: exactly lossless, and accepting as often as is possible.

1. Selection marginal p_I: raise the target to c w inside the optimal subset, cap it at c' w outside
   (`mdsd_opt.problem.water_filling`).
2. Select a draft with law exactly p_I by the hull rule.
3. Single-draft speculative sampling of p against p_I: accept the selected z with probability
   min(1, p_z / p_I(z)), else draw from the positive part of p - p_I.

Which draft is accepted stands in `acceptance_rule`, once. It asks a plan for p_I over groups of
tokens in order of p/w. There is one plan, of which all forms are readings. The output follows the
target exactly by each of them; what groups lose is acceptance:

- `plan.SortedPlan`, the reference: every token by itself, for all schemes with a prefix order and
  in Fractions. Exact, loses nothing; takes a sort.
- `grouped_plan.GroupedPlan`: buckets of p/q, opened where that makes a difference. Exact, loses
  nothing but rounding; no sort, but a plan for each decision.
- `collapsed.CollapsedPlan`: 2,047 closed bins of p/q (`bin_plan`), in each of which p_I has one
  ratio to q. A token is accepted by its own p: exact, given p_I. Loses its certified `gap`: at most
  6e-6 with and 2e-4 without replacement.
- `LinearPlan` of `mdsd_opt.decoding.device_laws`: the same bins and the same p_I, known by their
  sums alone, so that what is accepted is linear in every bin, u p + v q. Loses more: a `gap` of at
  most 2e-4 with and 6e-4 without replacement.
- The plan of the CUDA kernels (`gpu/kernels/collapsed_marginal.cuh`): bins summed in 32 bits, each
  token by its own p; the gap is below 1e-3 in all rows that tests try. `tests/support/row_plans.py`
  reads it, and holds its decisions against this rule.

Gaps are the largest of the bundled logits at K = 2, 4, 8; `docs/benchmarks/device-laws.md` has
others.

Where the drafts have no prefix order, a fitted rule selects instead of the hull rule, with a law
that is exact and a gap that is certified: a `ladder` for different draft models, else `potentials`.
"""

from mdsd_opt.verifiers.optimal.verifier import Optimal

__all__ = ["Optimal"]

VERIFIER = Optimal()
