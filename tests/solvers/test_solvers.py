"""All solvers, driven by one table: known optima, random rationals, laws of the optimum, advice."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import oracles
from support.known_problems import known_problems
from support.loops import of_each
from support.solver_table import FAST, SLOW, TABLE, Entry, has_prefix_order
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import ProblemTooLarge, UnknownName, UnsupportedScheme
from mdsd_opt.solvers import exact_optimum

ALL = pytest.mark.parametrize("entry", TABLE.values(), ids=TABLE.keys())


EVEN = [0.4, 0.3, 0.2, 0.1]


def takes(entry: Entry, *drafts: DraftScheme) -> bool:
    return all(entry.takes(mo.TransportProblem(EVEN, scheme)) for scheme in drafts)


#: Entries that take two drafts alone.
OF_TWO_DRAFTS = [name for name in FAST if not takes(TABLE[name], mo.WithReplacement(EVEN, 1))
                 and takes(TABLE[name], mo.WithReplacement(EVEN, 2))]  # fmt: skip


def check(entry: Entry, problem: mo.TransportProblem, optimum: Fraction | float) -> None:
    """The value, the bounds, the certificate and the claims that go with them."""
    solution = entry.solve(problem)
    if not entry.is_exact:
        assert mo.certify(problem, solution).valid
        assert solution.lower_bound - 1e-9 <= optimum <= solution.upper_bound + 1e-9
        return
    assert solution.acceptance_rate == pytest.approx(float(optimum), abs=1e-9)
    assert 0 <= solution.acceptance_rate <= 1
    assert solution.lower_bound - 1e-9 <= optimum <= solution.upper_bound + 1e-9
    assert solution.status is mo.Status.OPTIMAL
    assert solution.subset is not None or solution.plan is not None
    assert solution.solve_seconds > 0
    for array in (solution.subset, solution.plan and solution.plan.mass):
        assert array is None or not array.flags.writeable
    certificate = mo.certify(problem, solution)
    assert certificate.valid, certificate.violations
    assert certificate.upper >= optimum - Fraction(1, 10**12)
    assert certificate.lower <= optimum + Fraction(1, 10**12)
    if solution.subset is not None:
        assert certificate.upper == pytest.approx(float(optimum), abs=1e-9)
    if solution.plan is not None:
        assert certificate.lower == pytest.approx(float(optimum), abs=1e-9)


@ALL
@of_each(name=known_problems())
def test_known_problems(entry: Entry, name: str) -> None:
    known = known_problems()[name]
    if entry.takes(known.problem):
        check(entry, known.problem, known.optimum)


def test_the_message_names_the_case() -> None:
    @of_each(name=("good", "bad"))
    def test(limit: int, name: str) -> None:
        assert len(name) > limit

    with pytest.raises(AssertionError) as found:
        test(3)
    assert found.value.__notes__ == ["the case: {'name': 'bad'}"]


def drawn(data: st.DataObject, name: str) -> Case:
    """A problem that an entry takes."""
    kinds = {"schemes": ["with_replacement", "independent"], "max_drafts": 2}
    case = data.draw(cases(**(kinds if name in OF_TWO_DRAFTS else {})))
    assume(TABLE[name].takes(case.problem))
    return case


@pytest.mark.parametrize("name", SLOW)
@settings(max_examples=12)
@given(data=st.data())
def test_random_rationals_by_the_slow(name: str, data: st.DataObject) -> None:
    case = drawn(data, name)
    check(TABLE[name], case.problem, oracles.optimum_over_subsets(case.target, case.law))


@pytest.mark.parametrize("name", FAST)
@given(data=st.data())
def test_random_rationals(name: str, data: st.DataObject) -> None:
    """In Fractions the bounds enclose the optimum, too, and meet where the method is exact."""
    case, entry = drawn(data, name), TABLE[name]
    problem, optimum = case.problem, oracles.optimum_over_subsets(case.target, case.law)
    check(entry, problem, optimum)
    solution = entry.solve(problem)
    certificate = mo.certify(problem, solution, exact=True)
    assert certificate.valid, certificate.violations
    assert certificate.lower <= optimum <= certificate.upper
    if not entry.is_exact:  # a method to come, which only bounds it
        return
    assert certificate.upper == optimum or solution.subset is None
    only_a_subset = solution.plan is None and solution.selection is None
    if only_a_subset and has_prefix_order(problem):
        assert certificate.gap == 0
    if solution.plan is not None and solution.plan.basis is not None:
        assert certificate.lower == optimum
    assert certificate.gap <= Fraction(1, 10**12)


def logits(vocab_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    target = 2 * rng.standard_normal(vocab_size)
    return target, target + rng.standard_normal(vocab_size)


def law(vocab_size: int, seed: int) -> np.ndarray:
    return mo.softmax(logits(vocab_size, seed)[0])


@of_each(dtype=[np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("entry", "scheme"),
    [
        pytest.param(entry, scheme, id=f"{name}-{scheme}")
        for scheme in ("with_replacement", "without_replacement", "greedy")
        for name, entry in TABLE.items()
        if takes(entry, mo.drafts.SINGLE_MODEL_SCHEMES[scheme](EVEN, 2))
    ],
)
def test_logits_of_any_precision(entry: Entry, dtype: type, scheme: str) -> None:
    target, draft = (x.astype(dtype) for x in logits(24, 1))
    problem = mo.TransportProblem.from_logits(target, draft, 2, drafts=scheme)
    check(entry, problem, exact_optimum(problem)[0])


@ALL
def test_a_hundred_tokens_with_tiny_masses(entry: Entry) -> None:
    """Masses down to 1e-12, far below the feasibility tolerance of a linear program."""
    target, draft = logits(100, 3)
    problem = mo.TransportProblem.from_logits(4 * target, 4 * draft, 2)
    assert problem.target.min() < 1e-12
    check(entry, problem, exact_optimum(problem)[0])


@ALL
def test_solving_twice_gives_the_same(entry: Entry) -> None:
    problem = mo.TransportProblem(law(12, 0), mo.WithReplacement(law(12, 1), 2))
    one, other = entry.solve(problem), entry.solve(problem)
    assert one.acceptance_rate == other.acceptance_rate
    assert (one.subset is None) == (other.subset is None)
    assert one.subset is None or (one.subset == other.subset).all()
    assert one.plan is None or other.plan is None or (one.plan.mass == other.plan.mass).all()


class TestSubsetSelectionAtScale:
    @pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
    @pytest.mark.parametrize("num_drafts", [1, 2, 4])
    def test_three_hundred_tokens_exactly(self, scheme: str, num_drafts: int) -> None:
        vocab_size = 300 if num_drafts < 4 else 24
        target, draft = logits(vocab_size, 5)
        problem = mo.TransportProblem.from_logits(target, draft, num_drafts, drafts=scheme)
        optimum, subset = exact_optimum(problem)
        solution = mo.solve(problem)
        assert solution.acceptance_rate == pytest.approx(float(optimum), abs=1e-14)
        assert solution.subset is not None
        assert problem.law(True).cut_value(solution.subset) == pytest.approx(optimum, abs=1e-14)
        assert problem.law(True).cut_value(subset) == optimum

    @pytest.mark.parametrize(
        "scheme", ["with_replacement", "without_replacement", "greedy", "top_k"]
    )
    def test_the_certificate_meets_at_full_vocabulary(self, scheme: str) -> None:
        target, draft = logits(131_072, 6)
        problem = mo.TransportProblem.from_logits(target, draft, 4, drafts=scheme)
        certificate = mo.certify(problem, mo.solve(problem))
        assert certificate.valid, certificate.violations
        assert certificate.lower > 0
        assert certificate.gap < 1e-12

    def test_the_shortest_optimal_prefix_is_taken(self) -> None:
        p = [Fraction(1, 4)] * 4
        solution = mo.solve(mo.TransportProblem(p, mo.WithReplacement(p, 1)))
        assert solution.subset is not None
        assert not solution.subset.any()  # every prefix ties: none is the shortest


class TestAdvice:
    PROBLEM = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.5, 0.5], 2))
    INDEPENDENT = mo.TransportProblem([0.5, 0.5], mo.IndependentDrafts([[0.5, 0.5], [0.4, 0.6]]))

    def test_methods_describe_themselves(self) -> None:
        for method in mo.methods().values():
            assert re.fullmatch(r".+\. Cost: .+\. Needs: .+\.", str(method))

    @pytest.mark.parametrize(
        ("given_name", "guess"),
        [("full_pl", "full_lp"), ("subset selection", "subset_selection"), ("maxflow", "max_flow")],
    )
    def test_unknown_methods_are_guessed_and_listed(self, given_name: str, guess: str) -> None:
        with pytest.raises(UnknownName, match=f"Did you mean '{guess}'") as caught:
            mo.solve(self.PROBLEM, given_name)
        assert all(name in str(caught.value) for name in ("auto", *mo.methods()))
        with pytest.raises(UnknownName, match=r"unknown method None\. Known"):
            mo.solve(self.PROBLEM, None)  # type: ignore[arg-type]

    @pytest.mark.parametrize("method", ["full_lp", "dual_lp"])
    def test_unknown_backends_are_listed(self, method: str) -> None:
        with pytest.raises(UnknownName, match=r"'glpk'.*Known: cvxpy, highs"):
            mo.solve(self.PROBLEM, method, backend="glpk")

    def test_subset_selection_names_what_takes_other_schemes(self) -> None:
        with pytest.raises(
            UnsupportedScheme, match=r"'independent' has not: use method='submodular'"
        ):
            mo.solve(self.INDEPENDENT, "subset_selection")
        with pytest.raises(UnsupportedScheme, match="'set_law'"):
            exact_optimum(mo.TransportProblem([1.0], mo.DraftSetLaw(1, {(0,): 1.0})))

    @pytest.mark.parametrize("scheme", [mo.WithReplacement, mo.WithoutReplacement])
    @pytest.mark.parametrize("name", ["full_lp", "full_lp, cvxpy", "dual_lp", "max_flow"])
    def test_too_large_names_a_method_that_works(self, name: str, scheme: Any) -> None:
        problem = mo.TransportProblem(law(3000, 0), scheme(law(3000, 1), 4))
        with pytest.raises(ProblemTooLarge, match=r"at V=3000, K=4 needs about .* GB") as caught:
            TABLE[name].solve(problem)
        assert isinstance(caught.value, ValueError)
        advised = re.search(r"method='(\w+)' solves this size", str(caught.value))
        assert advised is not None
        solution = mo.solve(problem, advised[1])
        assert solution.status is mo.Status.OPTIMAL

    @pytest.mark.parametrize("name", ["full_lp", "dual_lp", "max_flow"])
    def test_too_large_without_a_prefix_order_says_what_to_do(self, name: str) -> None:
        models = [law(3000, seed) for seed in range(4)]
        problem = mo.TransportProblem(law(3000, 9), mo.IndependentDrafts(models))
        with pytest.raises(ProblemTooLarge, match=r"method='\w+' solves|restrict the vocabulary"):
            TABLE[name].solve(problem)


def test_the_interior_point_where_presolve_takes_rounding_for_infeasible():
    """HiGHS would raise an error, although nothing at all is a feasible plan."""
    q = [3e-300, 1.5e-300, 0.0, 0.0, 1.0]
    problem = mo.TransportProblem([0.0, 0.0, 0.0, 0.0, 1.0], mo.WithoutReplacement(q, 2))
    solution = mo.solve(problem, "full_lp", algorithm="ipm")
    assert solution.acceptance_rate == pytest.approx(1.0, abs=1e-9)
    assert mo.certify(problem, solution).valid
