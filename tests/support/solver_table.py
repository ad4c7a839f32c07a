"""Every way to solve a problem, in one table that drives the tests of all solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mdsd_opt import Solution, TransportProblem, methods, solve
from mdsd_opt.drafts import IndependentDrafts, PrefixDraftScheme, WithReplacement


def any_problem(problem: TransportProblem) -> bool:
    return True


def has_prefix_order(problem: TransportProblem) -> bool:
    return isinstance(problem.drafts, PrefixDraftScheme)


def two_independent_drafts(problem: TransportProblem) -> bool:
    independent = isinstance(problem.drafts, (WithReplacement, IndependentDrafts))
    return independent and problem.num_drafts == 2


def two_drafts(problem: TransportProblem) -> bool:
    return problem.num_drafts == 2


def few_tuples(problem: TransportProblem) -> bool:
    return problem.drafts.count_tuples() <= 2500


def of_all_tokens(problem: TransportProblem) -> dict[str, Any]:
    return {"size": problem.vocab_size}


@dataclass(frozen=True)
class Entry:
    """A method with its options, and which problems it takes."""

    method: str
    takes: Callable[[TransportProblem], bool] = any_problem
    options: dict[str, Any] = field(default_factory=dict)
    slow: bool = False
    whole: Callable[[TransportProblem], dict[str, Any]] | None = None
    """Options with which a method that is not exact finds the optimum."""

    @property
    def is_exact(self) -> bool:
        return self.whole is not None or self.method == "auto" or methods()[self.method].exact

    def solve(self, problem: TransportProblem) -> Solution:
        options = self.options if self.whole is None else self.whole(problem)
        return solve(problem, self.method, **options)


TABLE: dict[str, Entry] = {
    "auto": Entry("auto"),
    "subset_selection": Entry("subset_selection", has_prefix_order),
    "full_lp": Entry("full_lp"),
    "full_lp, interior point": Entry("full_lp", options={"algorithm": "ipm"}),
    "full_lp, pairs": Entry("full_lp", two_drafts, {"formulation": "pair"}),
    "full_lp, supports": Entry("full_lp", options={"formulation": "supports"}),
    "full_lp, tuples": Entry("full_lp", few_tuples, {"formulation": "tuples"}),
    "full_lp, cvxpy": Entry("full_lp", options={"backend": "cvxpy"}, slow=True),
    "dual_lp": Entry("dual_lp"),
    "dual_lp, cvxpy": Entry("dual_lp", options={"backend": "cvxpy"}, slow=True),
    "max_flow": Entry("max_flow"),
    "submodular": Entry("submodular"),
    "truncated_lp": Entry("truncated_lp", two_independent_drafts, whole=of_all_tokens),
}

FAST = [name for name, entry in TABLE.items() if not entry.slow]
SLOW = [name for name, entry in TABLE.items() if entry.slow]
