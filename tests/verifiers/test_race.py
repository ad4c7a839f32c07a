"""Lists from one race, and what rules lose at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support import chi_square
from support.strategies import problems

import mdsd_opt as mo
from mdsd_opt import ProblemTooLarge, TransportProblem, WithoutReplacement, solve, verifiers
from mdsd_opt.cddlib_checks import rule_bounds
from mdsd_opt.errors import InvalidInput
from mdsd_opt.verifiers import gumbel
from mdsd_opt.verifiers.race import VERIFIER, joint_masses

P = [Fraction(5, 10), Fraction(3, 10), Fraction(2, 10), Fraction(0)]
Q = [Fraction(1, 10), Fraction(3, 10), Fraction(4, 10), Fraction(2, 10)]


def floats(law: list[Fraction]) -> np.ndarray:
    return np.array([float(x) for x in law])


def acceptance(p: Sequence[Fraction], q: Sequence[Fraction], num_drafts: int) -> Fraction:
    """Rate A_K by its integral, over the sets of fewer than K tokens ahead of the output."""
    total = Fraction(0)
    for j in (j for j, x in enumerate(p) if x > 0 and q[j] > 0):
        ahead = [max(q[i] * p[j] / q[j] - p[i], Fraction(0)) for i in range(len(p)) if i != j]
        for size in range(min(num_drafts, len(ahead) + 1)):
            for chosen in combinations(range(len(ahead)), size):
                late = 1 + sum(c for i, c in enumerate(ahead) if i not in chosen)
                for n in range(size + 1):  # the product of 1 - exp(-t c), term by term
                    for some in combinations(chosen, n):
                        total += p[j] * (-1) ** n / (late + sum(ahead[i] for i in some))
    return total


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_joint_laws_have_the_right_margins_in_fractions(num_drafts: int) -> None:
    """Sums over the sets give the target, sums over the output the law of the sets."""
    drafts = WithoutReplacement(Q, num_drafts)
    law = drafts.law(True).support_law().masses()
    output, accepted = [Fraction(0)] * 4, Fraction(0)
    for subset in combinations(range(4), num_drafts):
        masses = joint_masses(P, Q, subset)
        assert sum(masses) == law[subset]
        output = [x + y for x, y in zip(output, masses, strict=True)]
        accepted += sum(masses[i] for i in subset)
    assert output == P
    assert accepted == acceptance(P, Q, num_drafts)


def test_one_draft_and_a_list_of_one_row_are_the_same_race() -> None:
    assert acceptance(P, Q, 1) == gumbel.acceptance(P, Q, 1)
    assert VERIFIER.bounds(floats(P), floats(Q), [1])[0] == pytest.approx(
        float(acceptance(P, Q, 1))
    )


@settings(max_examples=60)
@given(problem=problems(("without_replacement",)))
def test_the_rate_is_the_closed_form_between_its_bound_and_the_optimum(
    problem: TransportProblem,
) -> None:
    p, q = problem.exact_target, problem.drafts.model.exact()  # type: ignore[attr-defined]
    exact = float(acceptance(list(p), list(q), problem.num_drafts))
    assert VERIFIER.acceptance_rate(problem) == pytest.approx(exact, abs=1e-12)
    assert VERIFIER.acceptance_bound(problem) <= exact + 1e-12
    assert exact <= solve(problem).acceptance_rate + 1e-9


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 5])
def test_simulated_races_follow_the_joint_law(num_drafts: int) -> None:
    problem = TransportProblem(floats(P), WithoutReplacement(floats(Q), num_drafts))
    drafts, tokens = VERIFIER.simulate(problem, np.random.default_rng(0), 40_000)
    assert ((drafts < 0).sum(axis=1) == max(num_drafts - 4, 0)).all()
    sets = [tuple(sorted(x for x in row if x >= 0)) for row in drafts.tolist()]
    joint = {}
    for subset in set(sets):
        joint |= {(*subset, -1, j): float(m) for j, m in enumerate(joint_masses(P, Q, subset)) if m}
    drawn = [(*s, -1, j) for s, j in zip(sets, tokens.tolist(), strict=True)]
    assert chi_square.p_value(drawn, joint) > 1e-6
    if 1 < num_drafts < 4:
        others = np.roll(tokens, 1).tolist()  # as if nothing were shared
        apart = [(*s, -1, j) for s, j in zip(sets, others, strict=True)]
        assert chi_square.p_value(apart, joint) < 1e-6


def test_drafts_of_a_race_come_in_the_order_of_draws() -> None:
    q = floats(Q)
    problem = TransportProblem(floats(P), WithoutReplacement(q, 2))
    drafts, _ = VERIFIER.simulate(problem, np.random.default_rng(1), 40_000)
    law = {(i, j): q[i] * q[j] / (1 - q[i]) for i in range(4) for j in range(4) if i != j}
    assert chi_square.p_value([tuple(row) for row in drafts.tolist()], law) > 1e-6
    assert chi_square.p_value([tuple(row[::-1]) for row in drafts.tolist()], law) < 1e-6


def test_a_seed_gives_the_same_text_with_any_drafter() -> None:
    p = floats(P)
    texts = {
        tuple(VERIFIER.simulate(problem, np.random.default_rng(7), 50)[1].tolist())
        for q in (floats(Q), p, np.full(4, 0.25))
        for problem in [TransportProblem(p, WithoutReplacement(q, 2))]
    }
    assert len(texts) == 1


def test_floats_bend_where_their_ratios_do() -> None:
    """Slopes change at p / q as it is in floating point: its product with q may miss p."""
    for p, q in np.random.default_rng(0).dirichlet(np.full(4, 0.5), (300, 2)):
        for num_drafts in (1, 2, 3):
            sets = combinations(range(4), num_drafts)
            masses = [joint_masses(p.tolist(), q.tolist(), subset) for subset in sets]
            assert np.sum(masses, axis=0) == pytest.approx(p, abs=1e-12)


def test_rare_sets_of_drafts_are_settled_in_fractions() -> None:
    q = np.array([1 - 3e-9, 1e-9, 1e-9, 1e-9])
    problem = TransportProblem(floats(P), WithoutReplacement(q, 2))
    law = VERIFIER.conditional_law(problem, [1, 2])
    assert law.min() >= 0
    assert law.sum() == pytest.approx(1, abs=1e-12)


# --- what rules lose at most ---

DIGITS = {  # K: rrs, kseq, race, SpecTr-GBV against the optimum with replacement
    2: (4 / 27, 1 / 9, 0.165173, np.log(2) / 2 - 0.25),
    3: (0.185903, 0.134970, 0.160593, 0.116238),
    4: (0.203223, 0.145620, 0.157787, 0.125057),
    8: (0.227513, 0.160293, 0.153016, 0.137283),
}


_FEW = Fraction(1, 10**6)
_SHARE = Fraction(144, 377)  # of (3 - sqrt 5)/2
_ODD = Fraction(169, 408)  # of sqrt 2 - 1


@pytest.mark.parametrize(
    ("p", "q", "scheme", "ahead"),
    [
        pytest.param(  # the race is ahead of rejection without replacement
            [1 - _SHARE, _SHARE, 0], [1 - _FEW, _FEW * _SHARE, _FEW * (1 - _SHARE)],
            WithoutReplacement, (5 * 5**0.5 - 11) / 2, id="above, without",
        ),
        pytest.param(  # behind it: a token without p is drafted first, then one draft races
            [0, 1 - _ODD, _ODD, *[0] * 30],
            [1 - _FEW, _FEW * (1 - _ODD), 0, *[_FEW * _ODD / 30] * 30],
            WithoutReplacement, 2 * 2**0.5 - 3, id="below, without",
        ),
        pytest.param([0, 1], [1 - _FEW, _FEW], mo.WithReplacement, 1, id="above, with"),
    ],
)  # fmt: skip
def test_race_and_rejection_are_far_apart_both_ways(
    p: list[Any], q: list[Any], scheme: Any, ahead: float
) -> None:
    p, q = [list(map(Fraction, law)) for law in (p, q)]
    rejection = verifiers.get("rrs").enumerated_acceptance_rate(
        TransportProblem(p, scheme(q, 2)), exact=True
    )
    gap = rule_bounds.race_rate(p, q, 2) - rejection
    assert isinstance(gap, Fraction)
    assert float(gap) == pytest.approx(ahead, abs=2e-3 if ahead < 0 else 4e-6)
    assert gap < ahead if ahead > 0 else gap > ahead  # both are limits


@pytest.mark.parametrize("num_drafts", DIGITS)
def test_worst_cases_have_the_known_digits(num_drafts: int) -> None:
    rules = ("rrs", "kseq", "race", "spectr_gbv")
    for rule, gap in zip(rules, DIGITS[num_drafts], strict=True):
        case = mo.worst_case(rule, num_drafts, "with_replacement")
        assert case.gap == pytest.approx(gap, abs=1e-6)
        assert case.proven


@pytest.mark.parametrize(
    ("rule", "drafts"),
    [
        ("rrs", None),
        ("kseq", None),
        ("rrs", "without_replacement"),
        ("naive_target", None),
        ("optimal", None),
    ],
)
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 8])
def test_instances_reach_what_is_claimed(rule: str, drafts: str | None, num_drafts: int) -> None:
    case = mo.worst_case(rule, num_drafts, drafts)
    best = solve(case.problem).acceptance_rate
    rate = float(verifiers.get(rule).acceptance_rate(case.problem))
    assert best - rate == pytest.approx(case.gap, abs=1e-9 if case.attained else 1e-3)
    if case.least_share is not None:
        assert rate / best == pytest.approx(case.least_share, abs=1e-9 if case.attained else 1e-3)


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 8, 64, 500])
def test_instances_of_the_race_reach_what_is_claimed(num_drafts: int) -> None:
    case = mo.worst_case("race", num_drafts, "with_replacement")
    q = case.problem.drafts.q  # type: ignore[attr-defined]
    lost = (
        solve(case.problem).acceptance_rate
        - VERIFIER.bounds(case.problem.target, q, [num_drafts])[0]
    )
    assert lost == pytest.approx(case.gap, abs=1e-6)


def planned(p: Iterable[Any], q: Iterable[Any], num_drafts: int) -> Any:
    """Mass that SpecTr-GBV is to accept of one token."""
    return sum(
        x * (1 - (1 - min(y / x, x / x)) ** num_drafts) for x, y in zip(p, q, strict=True) if x > 0
    )


def test_tokens_thin_with_the_number_of_drafts_or_it_is_refused() -> None:
    case = mo.worst_case("naive_target", 500)
    assert verifiers.get("naive_target").acceptance_rate(case.problem) < 1e-3
    for rule in ("naive_target", "race"):
        with pytest.raises(ProblemTooLarge, match="num_drafts up to 2097"):
            mo.worst_case(rule, 10**6, "with_replacement")


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 8, 1000, 10**6])
def test_the_plan_of_spectr_gbv_loses_as_much_as_is_claimed(num_drafts: int) -> None:
    case = mo.worst_case("spectr_gbv", num_drafts)
    p, q = case.problem.target, case.problem.drafts.q  # type: ignore[attr-defined]
    assert solve(case.problem).acceptance_rate == pytest.approx(1)
    assert 1 - planned(p, q, num_drafts) == pytest.approx(case.gap, abs=1e-5)
    few = 1e-6  # nearly all of p is never drafted; the rest has K times as much as q
    p, q = [0.0, num_drafts * few, 1 - num_drafts * few], [1 - few, few, 0.0]
    best = -np.expm1(num_drafts * np.log1p(-few))
    if num_drafts < 1000:
        assert planned(p, q, num_drafts) / best == pytest.approx(case.least_share, rel=1e-5)


@pytest.mark.parametrize("num_drafts", [2, 3])
def test_no_instance_of_spectr_gbv_loses_more_in_fractions(num_drafts: int) -> None:
    rng, case = np.random.default_rng(num_drafts), mo.worst_case("spectr_gbv", num_drafts)
    share = 1 - Fraction(num_drafts - 1, num_drafts) ** num_drafts
    gaps = []
    for size in (2, 3, 5) * 20:
        counts = rng.integers(0, 9, (2, size)) + np.eye(2, size, dtype=int)
        p, q = ([Fraction(int(n), int(row.sum())) for n in row] for row in counts)
        best, plan = rule_bounds.optimum(p, q, num_drafts), planned(p, q, num_drafts)
        assert plan >= share * best
        gaps.append(float(best - plan))
    assert max(gaps) <= case.gap
    assert max(gaps) > case.gap / 2


def test_worst_cases_tend_to_their_limits() -> None:
    many = 10**9
    assert mo.worst_case("rrs", many).gap == pytest.approx(0.25, abs=1e-7)
    assert mo.worst_case("kseq", many).gap == pytest.approx(0.17363729, abs=1e-7)
    race = mo.worst_case("race", 2000, "with_replacement")  # as many as an instance is made of
    assert race.gap == pytest.approx(0.148496, abs=2e-6)
    assert mo.worst_case("spectr_gbv", many).gap == pytest.approx(0.148496, abs=1e-6)


def test_a_rule_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"'spechub'.*there are 'optimal'"):
        mo.worst_case("spechub", 2)
    with pytest.raises(InvalidInput, match="a rule for trees: give levels=2"):
        mo.worst_case("traversal", 2)
    with pytest.raises(InvalidInput, match="drafts='without_replacement'"):
        mo.worst_case("kseq", 2, "without_replacement")
    with pytest.raises(InvalidInput, match="num_drafts"):
        mo.worst_case("rrs", 0)


@pytest.mark.parametrize("name", sorted(rule_bounds.CHECKS))
def test_claims_with_a_lie_in_them_are_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that lose nothing, a race of higher and an optimum of lower rates are all noticed."""
    lie = Fraction(1, 1000)
    bound, best = rule_bounds.race_bound, rule_bounds.optimum
    joint = rule_bounds.BlindRule.joint
    monkeypatch.setattr(
        rule_bounds.BlindRule, "joint", lambda rule, held: [x + lie for x in joint(rule, held)]
    )
    monkeypatch.setattr(rule_bounds, "_constant", lambda *of: Fraction(0))
    monkeypatch.setattr(rule_bounds, "race_bound", lambda *law: bound(*law) + lie)
    monkeypatch.setattr(
        rule_bounds, "optimum", lambda p, q, k, *kind: best(p, q, k, *kind) + lie * (k - 2) ** 2
    )
    monkeypatch.setattr(
        rule_bounds, "relax", lambda x, acceptance_rate, **more: mo.relax(
            x, acceptance_rate=acceptance_rate - lie, **more
        ),
    )  # fmt: skip
    laws = [Fraction(2, 3), Fraction(1, 3)], [Fraction(1, 6), Fraction(2, 3), Fraction(1, 6)]
    found = [rule_bounds.bounds_hold([mo.WithReplacement(q, 2)], name, 4).holds for q in laws]
    assert False in found
