r"""The optimal verifier in closed form: exactly lossless, and accepting as often as possible.

1. Selection marginal p_I: raise the target to c w inside the optimal subset, cap it at c' w outside
   (`mdsd_opt.problem.water_filling`).
2. Select a draft with law exactly p_I by the hull rule.
3. Single-draft speculative sampling of p against p_I: accept the selected z with probability
   min(1, p_z / p_I(z)), else draw from the positive part of p - p_I.

Which draft is accepted stands in `acceptance_rule`, once. It asks a plan for p_I over groups of
tokens in order of p/w. There is one plan, of which all forms are readings. The output follows the
target exactly by each of them; what groups lose is acceptance:

- `grouped_plan.SortedPlan`, the reference: every token by itself, for all schemes with a prefix
  order and in Fractions. Exact, loses nothing; takes a sort.
- `grouped_plan.GroupedPlan`: buckets of p/q, opened where that makes a difference. Exact, loses
  nothing but rounding; no sort, but a plan for each decision.
- `grouped_plan.BinnedPlan`: 2,047 closed bins of p/q (`bin_plan`), in each of which p_I has one
  ratio to q. A token is accepted by its own p: exact, given p_I. Loses its certified `gap`: at most
  6e-6 with and 2e-4 without replacement.
- `LinearPlan` of `mdsd_opt.trees.device_laws`: the same bins and the same p_I, known by their
  sums alone, so that what is accepted is linear in every bin, u p + v q. Loses more: a `gap` of at
  most 2e-4 with and 6e-4 without replacement.
- The plan of the CUDA kernels (`gpu/kernels/collapsed_marginal.cuh`): bins summed in 32 bits, each
  token by its own p; the gap is below 1e-3 in all rows that tests try. `tests/support/row_plans.py`
  reads it, and holds its decisions against this rule.

Gaps are the largest of the bundled logits at K = 2, 4, 8; `docs/benchmarks/speed-honestly.md` has
others.

Where the drafts have no prefix order, a fitted rule selects instead of the hull rule, with a law
that is exact and a gap that is certified: a `ladder` for different draft models, else `potentials`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from mdsd_opt.base.arrays import Flags, Integers
from mdsd_opt.base.checked import checked_tolerance
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, DraftScheme, PrefixDraftScheme
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import (
    MAX_RATED_TUPLES,
    Remembered,
    Verifier,
    draw,
    impossible_drafts,
    optimal_rates,
    target_of,
)
from mdsd_opt.verifiers.optimal import ladder, potentials
from mdsd_opt.verifiers.optimal.acceptance_rule import acceptance_probabilities, output_token
from mdsd_opt.verifiers.optimal.selection_rule import FittedRule, SelectionRule
from mdsd_opt.verifiers.rejection import nothing_accepted
from mdsd_opt.verifiers.verdicts import CertifiedRate, Decision, Uniforms, Verdict, verdict

if TYPE_CHECKING:
    from mdsd_opt.verifiers.optimal.grouped_plan import SortedPlan

__all__ = ["Optimal"]

#: Most elements of all draft sets together with which potentials take over from heights.
_FEW_ARCS = 1_000_000


class Optimal(Verifier):
    """Accept as often as any lossless rule can.

    Where the drafts have a prefix order (with and without replacement, greedy, top-K, any of these
    beside a fixed set, mixtures over one draft model) it decides by water levels, hull rule and
    residual, in closed form: O(V) for a decision with and without replacement, else O(V log V), and
    as much for `conditional_law`, which integrates over the mixing level. For all other draft laws
    it decides by numbers of the tokens that are fitted once for each problem and remembered:
    lossless whatever they are, and at most `gap` below the optimum. For different draft models at
    any V these are heights (see `ladder`), fitted in some ten passes of O(K^2 V); for other laws
    `potentials`, in some tens of passes over the listed draft sets. A decision then costs O(K^3 +
    V). Source: this package, on the subset selection of [Hu25].

    Parameters
    ----------
    gap : float
        Largest loss of the fitted rule against the optimum.
    """

    name: ClassVar[str] = "optimal"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)

    def __init__(self, gap: float = 1e-6) -> None:
        gap = checked_tolerance("gap", gap)
        self._rule = Remembered(partial(_fitted_rule, gap=gap))
        # In Fractions it takes long, and is small; a plan in float64 may be of a whole vocabulary.
        self._exact_plan = Remembered(partial(_plan_of, exact=True))

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return optimal_rates(SINGLE_MODEL_SCHEMES.values())

    def configured(self, **options: Any) -> Verifier:
        """Same rule with another `gap`, or with ``binned=True`` one pass and a certified gap."""
        return _form(self, **options)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """Optimum of the transport LP, alpha* = 1 + min_H [P(H) - Q(H)].

        Without a prefix order it is a `CertifiedRate`: the rate of the fitted potentials, which its
        ``gap`` tells from the optimum. Where there are too many draft tuples to enumerate, it
        leaves out the accepted part of the residual, which lies within the same gap.
        """
        self.check(problem)
        if problem.drafts.prefix_form is None:
            rule = self._rule(problem).rule
            rate, optimum = rule.bound, rule.bound + rule.gap
            if problem.drafts.count_tuples() <= MAX_RATED_TUPLES:
                rate = min(float(self.enumerated_acceptance_rate(problem)), 1.0)
            return CertifiedRate(rate, max(optimum - rate, 0.0))
        from mdsd_opt.solvers import solve

        return solve(problem, "subset_selection").acceptance_rate

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        scheme = problem.drafts.prefix_form
        if scheme is None:
            return self._rule(problem).decide(problem, drafts, exact)
        plan = self._exact_plan(problem) if exact else _plan_of(problem)
        target = target_of(problem, exact)
        accept = nothing_accepted(drafts, target)
        if plan is None:  # the drafts are certain: the target itself is the best that can be done
            return Decision(accept, target)
        places = places_drawn(scheme, plan, drafts)
        accept[places] = acceptance_probabilities(plan, drafts[places])
        return Decision(accept, plan.residual)

    def _verify(self, problem: TransportProblem, tokens: Integers, uniforms: Uniforms) -> Verdict:
        drafts, draws = problem.drafts.prefix_form, problem.drafts.random_draws
        if drafts is None:
            return super()._verify(problem, tokens, uniforms)
        # Numba comes with it, which the decisions of a device do without.
        from mdsd_opt.verifiers.optimal.grouped_plan import GroupedPlan, applies_to, resolves

        if applies_to(draws) and resolves(draws, tokens):
            grouped = GroupedPlan(problem.target, draws, (tokens, uniforms.mixing))
            return verdict(output_token(grouped, tokens, uniforms), tokens)
        plan = _plan_of(problem)
        if plan is None:
            return verdict(draw(problem.target, uniforms.residual), tokens)
        places = places_drawn(drafts, plan, tokens)
        return verdict(output_token(plan, tokens[places], uniforms), tokens)


def _fitted_rule(problem: TransportProblem, gap: float) -> FittedRule:
    return FittedRule(fitted(problem, gap))


def fitted(problem: TransportProblem, tolerance: float) -> SelectionRule:
    """Quickest rule whose gap is within `tolerance`, or the best that was found.

    Heights on a subset that is found in a few passes; heights on a subset that is proven optimal;
    potentials on it, where there are no heights, or few draft sets.
    """
    rules: list[SelectionRule] = []
    if ladder.applies_to(problem):
        rules.append(ladder.fit(problem, tolerance))
        if rules[0].gap <= tolerance:
            return rules[0]
    upper, subset = _optimal_subset(problem)
    if rules and (subset != rules[0].subset).any():
        rules.append(ladder.fit(problem, tolerance, subset))
    best = max(rules, key=lambda rule: rule.bound, default=None)
    if best is None or (best.bound < upper - tolerance and _has_few_sets(problem)):
        rules.append(potentials.fit(problem, tolerance, subset, upper))
        best = max(rules, key=lambda rule: rule.bound)
    return replace(best, upper=min(upper, best.upper))


def _has_few_sets(problem: TransportProblem) -> bool:
    return problem.drafts.count_supports()[1] <= _FEW_ARCS


def _optimal_subset(problem: TransportProblem) -> tuple[float, Flags]:
    from mdsd_opt.solvers import solve

    try:
        solution = solve(problem, "submodular")
    except ProblemTooLarge:
        solution = solve(problem)
    assert solution.subset is not None
    return solution.upper_bound, solution.subset


def _form(usual: Verifier, *, binned: bool = False, gap: float | None = None) -> Verifier:
    if not binned:
        return usual if gap is None else Optimal(gap)
    if gap is not None:
        raise InvalidInput("binned=True has no gap to choose: it certifies the one it has")
    from mdsd_opt.verifiers.optimal.grouped_plan import BinnedOptimal

    return BinnedOptimal(usual)


def _plan_of(problem: TransportProblem, exact: bool = False) -> SortedPlan | None:
    # Devices decide without numba, which plans need, but ask for what the verifier declares.
    from mdsd_opt.verifiers.optimal.grouped_plan import plan_of

    return plan_of(problem, exact)


def places_drawn(drafts: PrefixDraftScheme, plan: SortedPlan, tokens: Integers) -> Integers:
    """Places in the tuple of the drafts that were drawn at random."""
    places = drafts.random_places(tokens)
    if places.size == 0 or plan.places(tokens[places]).min() < 0:
        raise impossible_drafts(drafts, tokens)
    return places


VERIFIER = Optimal()
