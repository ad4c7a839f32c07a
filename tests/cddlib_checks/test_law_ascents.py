"""Ascents of the search for laws: they reach what random laws of small weights do not."""

from __future__ import annotations

from fractions import Fraction

import pytest

import mdsd_opt as mo
from mdsd_opt import cddlib_checks
from mdsd_opt.cddlib_checks import TextClaim, laws_tried
from mdsd_opt.cddlib_checks.rule_bounds import rejected_by_rrs


def lost_by_rrs(bound: Fraction):
    """Claim that recursive rejection with two drafts loses no more than a bound."""

    def claim(p, q):
        best = cddlib_checks.optimum(mo.TransportProblem(p, mo.WithReplacement(q, 2)))
        return best - (1 - rejected_by_rrs(p, q, 2)) - bound

    return claim


def test_a_bound_that_is_a_little_too_small_is_refuted() -> None:
    tight = Fraction(4, 27)
    found = cddlib_checks.search_laws(lost_by_rrs(tight - Fraction(1, 2000)), 2, trials=300)
    assert found is not None
    assert found.excess > 0
    assert lost_by_rrs(tight - Fraction(1, 2000))(*found.laws) == found.excess


def test_random_laws_alone_do_not_refute_it() -> None:
    claim, trials = lost_by_rrs(Fraction(4, 27) - Fraction(1, 2000)), 300
    seen = []

    def random_ones(p, q):
        seen.append((p, q))
        return claim(p, q) if len(seen) <= trials else Fraction(-1)

    assert cddlib_checks.search_laws(random_ones, 2, trials=trials) is None


def test_what_holds_is_never_refuted_and_comes_near() -> None:
    found = laws_tried(lost_by_rrs(Fraction(4, 27)), 2, 2, 300, 0)
    assert found.counterexample is None
    assert found.verdict == "held"
    assert found.nearest is not None
    assert Fraction(-1, 1000) < found.nearest.excess <= 0
    assert 300 < found.instances <= 5 * 300


def test_thin_tokens_are_reached() -> None:
    """A claim that fails where q0 is below 1/5000 and not zero alone."""

    def claim(p, q):
        return Fraction(1, 5000) - q[0] if q[0] else Fraction(-1)

    found = cddlib_checks.search_laws(claim, 3, trials=1000)
    assert found is not None
    assert 0 < found.laws[1][0] < Fraction(1, 5000)


def test_a_search_depends_on_its_seed_alone() -> None:
    claim = lost_by_rrs(Fraction(4, 27))
    assert laws_tried(claim, 2, 2, 60, 3) == laws_tried(claim, 2, 2, 60, 3)


def test_laws_are_made_simple_within_a_number_of_tries() -> None:
    calls = []

    def fails(p, q):
        calls.append(p)
        return Fraction(1)

    found = cddlib_checks.search_laws(fails, 3)
    assert found is not None
    assert all(sorted(law) == [0, 0, 1] for law in found.laws)
    assert len(calls) < 2100


def test_tables_of_laws_after_texts() -> None:
    def claim(p, q):
        """That the second level never has its own law."""
        assert sorted(p) == sorted(q) == [(), (0,), (1,)]
        return p[0,][1] - p[()][1] - q[1,][0] - Fraction(1, 3)

    found = cddlib_checks.search_tables(claim, 2, 2, trials=200)
    assert found is not None
    p, q = found
    assert claim(p, q) > 0
    assert all(sum(law) == 1 for table in found for law in table.values())
    assert cddlib_checks.search_tables(lambda p, q: Fraction(0), 2, 2, trials=20) is None


def test_one_token_has_one_law() -> None:
    found = laws_tried(lambda p, q: p[0] - q[0], 1, 2, 5, 0)
    assert found.verdict == "held"
    assert 0 < found.instances <= 5


@pytest.mark.parametrize(
    "premise", ["q0 == 1/7", "q0 == 1/7 and p0 == 3/11 and p1 == 5/13", "p1 == 0.37"]
)
def test_premises_of_equalities_are_met_on_purpose(premise: str) -> None:
    claim = TextClaim("with_replacement(2) <= 1", 3, TextClaim(premise, 3))
    found = laws_tried(claim, 3, 2, 30, 0)
    assert found.verdict == "held"
    assert found.instances > 0
    assert found.nearest is not None
    assert TextClaim(premise, 3)(*found.nearest.laws) <= 0


def test_premises_that_no_law_meets_are_told() -> None:
    nowhere = TextClaim("q0 >= 1/2 and q1 >= 1/2 and q2 >= 1/2", 3)
    found = laws_tried(TextClaim("p0 >= 2", 3, nowhere), 3, 2, 30, 0)
    assert (found.verdict, found.instances, found.counterexample) == ("open", 0, None)


@pytest.mark.parametrize("depth", [0, 1.5])
def test_depth_of_tables_is_a_count(depth) -> None:
    with pytest.raises(mo.MdsdError, match="depth"):
        cddlib_checks.search_tables(lambda p, q: Fraction(0), 2, depth)
