"""Claims proved and refuted by double description, and the process they run in."""

from __future__ import annotations

import json
import pickle
import random
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from math import comb, factorial, prod

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt import cddlib_checks
from mdsd_opt.cddlib_checks import (
    Inequality,
    blind_rules,
    checking,
    cones,
    double_description,
    drafts_for,
    expressions,
    false_conditions,
    provers,
    run_in_child,
    two_values,
    with_ppl,
)
from mdsd_opt.cddlib_checks.false_conditions import power_above, power_below
from mdsd_opt.cddlib_checks.subsets import (
    best_cut,
    best_cuts,
    containment_table,
    exact_acceptance,
    primitive,
    priority_law,
    priority_laws,
)
from mdsd_opt.decoding import value_bound
from mdsd_opt.errors import InvalidInput, MissingExtra, SolverError, UnknownName
from mdsd_opt.solvers import exact_optimum

TRUE = [name for name, c in cddlib_checks.conjectures().items() if c.status == "theorem"]
FALSE = [name for name, c in cddlib_checks.conjectures().items() if c.status == "false"]
#: Claims that are put to instances alone.
SAMPLED = {
    "hull_rule", "threshold_sets_non_identical", "race_between_bounds", "race_loses_at_most",
    "rrs_loses_at_most", "kseq_loses_at_most", "gains_of_drafts_fall", "kseq_gains_at_most",
    "spectr_gbv_loses_at_most", "rrs_of_distinct_drafts_loses_a_quarter", "closest_law_for_a_rate",
    "rule_without_q_gains",
}  # fmt: skip

NEAR_MISSES = list(false_conditions.NEAR_MISSES)

TOO_STRONG = {
    "exponent_minus_tenth",
    "thresholds_raised",
    "mean_draft_power",
    "with_replacement_formula_without_replacement",
}


@pytest.fixture(autouse=True)
def jobs_run_here(monkeypatch):
    """Jobs run in this process, pickled as for another: to start one takes longer than most."""

    def run(job, arguments, **limits):
        return pickle.loads(pickle.dumps(job(**pickle.loads(pickle.dumps(arguments)))))

    monkeypatch.setattr(checking, "run_in_child", run)


def acceptance_of(counterexample):
    """alpha* recomputed from the printed instance, by a cut and by a flow."""
    told = counterexample.drafts
    size, k = len(counterexample.target), told.get("num_drafts", len(told["q"]))
    drafts = drafts_for(told["scheme"], size, k, told["q"])
    return cddlib_checks.optimum(mo.TransportProblem(list(counterexample.target), drafts))


# --- claims that hold ----------------------------------------------------------------------------


def says_something(name, v, k):
    least_v, least_k = cddlib_checks.conjectures()[name].smallest
    return v >= least_v and k >= least_k


SIZES = [(2, 2), (3, 3), (4, 2), (5, 3)]
FEWER = {
    "value_of_two_classes": SIZES[:2],
    "rules_without_q_have_one_form": [(2, 1), (3, 1), (5, 1), (5, 2), (6, 2), (7, 3)],
}
ALL_SIZES = [(name, v, k) for name in TRUE for v, k in FEWER.get(name, SIZES)]


@pytest.mark.parametrize(
    ("name", "v", "k"), [case for case in ALL_SIZES if not says_something(*case)]
)
def test_claims_that_say_nothing_at_a_size_say_so(name, v, k):
    with pytest.raises(InvalidInput, match="says nothing"):
        cddlib_checks.check(name, vocab_size=v, num_drafts=k)


def stands(result):
    """Whether it is proved, or held on instances where nothing else is looked at; never both."""
    if result.name not in SAMPLED:
        return result.verdict == "proved" and result.holds is True and result.instances == 0
    held = f"HELD on {result.instances} instances, which settles nothing"
    return result.verdict == "held" and result.holds is None and held in str(result)


@pytest.mark.parametrize(("name", "v", "k"), [case for case in ALL_SIZES if says_something(*case)])
def test_true_claims_hold(name, v, k):
    result = cddlib_checks.check(name, vocab_size=v, num_drafts=k, timeout=120)
    assert stands(result), str(result)
    assert result.counterexample is None
    assert f"V = {v}" in result.scope
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", [n for n in TRUE if n not in {*FEWER, *SAMPLED, "projection"}])
def test_six_tokens_four_drafts(name):
    result = cddlib_checks.check(name, vocab_size=6, num_drafts=4, timeout=120)
    assert stands(result), str(result)
    if name == "acceptance_one":
        assert len(result.facets) == 2**6 - 2
        assert result.sizes["vertices"] == factorial(6)
    if name == "facets_without_replacement":
        assert len(result.facets) == 6 + comb(6, 4) + comb(6, 5)


@pytest.mark.parametrize(("v", "k"), [(1, 1), (1, 3), (2, 1), (3, 1), (2, 5)])
def test_smallest_sizes(v, k):
    for name in ("acceptance_one", "optimal_value", "q_convexity", "vertex_counts", "projection"):
        assert cddlib_checks.check(name, vocab_size=v, num_drafts=k).holds is True


@pytest.mark.parametrize(("v", "k", "others"), [(2, 1, 2), (4, 2, 5), (6, 3, 14)])
def test_on_fewer_tokens_rules_without_q_have_other_forms(v, k, others):
    found = blind_rules.form(v, k)
    assert found.holds is None
    assert found.reason.startswith(f"{others} dimensions are not named")


def test_tokens_that_are_never_drafted():
    draft = [Fraction(1, 2), Fraction(0), Fraction(1, 2)]
    result = cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, draft=draft)
    assert result.holds is True
    assert result.sizes["vertices"] == 2
    counts = cddlib_checks.check("vertex_counts", vocab_size=3, num_drafts=2, draft=draft)
    assert counts.holds is True


# --- claims that do not --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEAR_MISSES)
@pytest.mark.parametrize(("v", "k"), [(2, 2), (4, 3), (5, 2)])
def test_near_misses_are_refuted(name, v, k):
    result = cddlib_checks.check(name, vocab_size=v, num_drafts=k)
    assert result.holds is False, str(result)
    found = result.counterexample
    assert found.kind == ("too strong" if name in TOO_STRONG else "too weak")
    assert sum(found.target) == 1
    assert min(found.target) >= 0
    assert found.acceptance_rate == acceptance_of(found)
    assert (found.acceptance_rate == 1) == (found.kind == "too strong")
    assert str(found.target[0]) in str(result)
    json.dumps(result.to_dict(), allow_nan=False)


def test_known_values_of_near_misses():
    def rate(name):
        return cddlib_checks.check(name, vocab_size=4, num_drafts=3).counterexample.acceptance_rate

    assert float(rate("exponent_plus_tenth")) == pytest.approx(0.98798, abs=1e-5)
    assert float(rate("exponent_plus_1e_4")) == pytest.approx(0.999988, abs=1e-6)
    assert float(rate("one_size_dropped")) == pytest.approx(0.856, abs=1e-12)
    assert float(rate("prefixes_only")) == pytest.approx(0.271, abs=1e-12)


@pytest.mark.parametrize(("v", "k"), [(4, 2), (4, 3), (5, 2), (6, 4)])
def test_prefixes_fail_for_different_drafts(v, k):
    result = cddlib_checks.check("prefix_optimality_non_identical", vocab_size=v, num_drafts=k)
    found = result.counterexample
    assert result.holds is False
    assert found.acceptance_rate == acceptance_of(found)

    models = [[Fraction(x) for x in q] for q in found.drafts["q"]]
    mean = [sum(column) for column in zip(*models, strict=True)]
    ratios = [p / w for p, w in zip(found.target, mean, strict=True)]
    assert len(set(ratios)) == v  # no tie that could be broken otherwise
    table = containment_table(mo.IndependentDrafts(models).law(True).support_law().masses(), v)
    value, mask = Fraction(0), 0
    for i in sorted(range(v), key=ratios.__getitem__):
        mask |= 1 << i
        mass = sum(found.target[j] for j in range(v) if mask >> j & 1)
        value = min(value, mass - table[mask])
    assert 1 + value > found.acceptance_rate


def test_known_counterexample_to_prefixes():
    models = [["4/5", "0", "1/5", "0"], ["0", "3/10", "0", "7/10"]]
    result = cddlib_checks.check(
        "prefix_optimality_non_identical", vocab_size=4, num_drafts=2, draft=models
    )
    assert result.holds is False


@pytest.mark.parametrize(("v", "k"), [(3, 2), (5, 2), (6, 4)])
def test_gains_rise_without_replacement(v, k):
    found = cddlib_checks.check("gains_of_distinct_drafts_fall", vocab_size=v, num_drafts=k)
    assert found.holds is False
    assert found.counterexample.acceptance_rate == acceptance_of(found.counterexample)
    stuck = cddlib_checks.check("gains_of_distinct_drafts_fall", vocab_size=3, num_drafts=3)
    assert stuck.holds is None


def test_convexity_fails_for_different_drafts_and_three_tokens_stay_undecided():
    assert cddlib_checks.check(
        "q_convexity_non_identical", vocab_size=4, num_drafts=2
    ).holds is False  # fmt: skip
    few = cddlib_checks.check("prefix_optimality_non_identical", vocab_size=3, num_drafts=2)
    assert few.holds is None
    assert "no counterexample for" in few.reason


# --- inequalities of one's own -------------------------------------------------------------------

RIGHT = ["p0 >= 1/36", "p1 >= 1/9", "p2 >= 1/4", "p0 + p1 >= 1/4", "p0 + p2 >= 4/9",
         "p1 + p2 >= 25/36"]  # fmt: skip


def test_the_right_condition_is_recognised_in_every_spelling():
    assert cddlib_checks.check_condition(3, 2, RIGHT).holds is True
    spelled = ["36 p0 >= 1", ((1,), "1/9"), ({2: 2}, Fraction(1, 2)), "p2 <= 3/4",
               "p1 <= 5/9", "-p0 >= -11/36"]  # fmt: skip
    assert cddlib_checks.check_condition(3, 2, spelled).holds is True


@pytest.mark.parametrize("missing", range(6))
def test_a_missing_inequality_is_too_weak(missing):
    claimed = [x for i, x in enumerate(RIGHT) if i != missing]
    result = cddlib_checks.check_condition(3, 2, claimed)
    assert result.holds is False
    assert [c.kind for c in result.counterexamples] == ["too weak"]
    assert result.counterexample.acceptance_rate == acceptance_of(result.counterexample) < 1


def test_both_too_weak_and_too_strong():
    result = cddlib_checks.check_condition(3, 2, ["p0 >= 1/2"])
    assert {c.kind for c in result.counterexamples} == {"too weak", "too strong"}
    for found in result.counterexamples:
        assert found.acceptance_rate == acceptance_of(found)
        assert (found.target[0] >= Fraction(1, 2)) == (found.kind == "too weak")


def test_impossible_and_empty_conditions():
    impossible = cddlib_checks.check_condition(2, 2, ["p0 + p1 >= 2"])
    assert [c.kind for c in impossible.counterexamples] == ["too strong"]
    assert cddlib_checks.check_condition(2, 2, []).counterexample.kind == "too weak"
    assert cddlib_checks.check_condition(1, 2, []).holds is True


def test_conditions_for_other_schemes():
    models = [["1/2", "1/2"], ["1/4", "3/4"]]
    right = ["p0 >= 1/8", "p1 >= 3/8"]
    assert cddlib_checks.check_condition(2, 2, right, models, scheme="independent").holds is True
    law = mo.DraftSetLaw(3, {(0, 1): Fraction(1, 3), (2,): Fraction(2, 3)})
    assert cddlib_checks.check_condition(3, 2, ["p2 >= 2/3", "p2 <= 2/3"], law).holds is True


@pytest.mark.parametrize(
    ("inequality", "message"),
    [
        ("p0 + p1", "not readable"),
        ("p0 * p1 >= 0", "not linear in p.*multiplies by p"),
        ("p0 >= 1/p1", "not linear in p.*divides by p"),
        ("rrs(2) >= 1", "not linear in p.*is a rate"),
        ("abs(p0 - q0) <= 1/2", "not linear in p.*least or largest p"),
        ("q0 >= 1/9 implies p0 >= 1/9", "has a premise"),
        ("p0 >= 1/(q0 + q1 - q2)", "divides by zero"),
        (((7,), 1), "not readable"),
        ("p0 p1 >= 1", "not readable"),
        ("p0 + >= 1", "not readable"),
        (">= 1", "not readable"),
        ("p7 >= 1", "tokens are 0 to 2"),
        ("x >= 1", "not readable"),
        ((0, 1, 2), "not readable"),
        (((0,), "half"), "not readable"),
    ],
)
def test_unreadable_inequalities(inequality, message):
    with pytest.raises(InvalidInput, match=message):
        cddlib_checks.check_condition(3, 2, [inequality])


def test_another_rule_of_blocks_is_noticed(monkeypatch):
    drafts = mo.WithoutReplacement([Fraction(n, 10) for n in (1, 2, 3, 4)], 3)
    assert provers.block_rules(drafts).holds
    half = Fraction(1, 2)  # of what the first draft passes on
    monkeypatch.setattr(
        provers, "prod", lambda x, start=1: prod(x, start=start) * (1 if type(x) is list else half)
    )
    assert provers.block_rules(drafts).holds is False


def test_linear_texts_are_expanded():
    q = tuple(Fraction(n, 6) for n in (1, 2, 3))
    text = "2 * (p0 + q1) - p2/3 * 2 + min(q) * sum(pi) >= (q0 + q1)**2 and p1 = max(q0, 1/4)"
    read = expressions.inequalities_of([text], mo.WithReplacement(q, 2))
    assert len(read) == 3
    for p in (q, (Fraction(1), Fraction(0), Fraction(0)), q[::-1]):
        assert -min(x.slack(p) for x in read) == expressions.TextClaim(text, 3)(p, q)
    models = mo.IndependentDrafts([q, q[::-1]])
    assert expressions.inequalities_of(["p0 >= 1/9"], models)
    with pytest.raises(InvalidInput, match="names q, which is not one law"):
        expressions.inequalities_of(["p0 >= q0"], models)


# --- input ---------------------------------------------------------------------------------------


def test_unknown_names_and_sizes():
    with pytest.raises(UnknownName, match="Did you mean 'acceptance_one'"):
        cddlib_checks.check("acceptance-on", vocab_size=3, num_drafts=2)
    for bad in (0, -1, 2.5, "3", None):
        with pytest.raises(InvalidInput, match="vocab_size"):
            cddlib_checks.check("acceptance_one", vocab_size=bad, num_drafts=2)
    with pytest.raises(mo.ProblemTooLarge):
        cddlib_checks.check("acceptance_one", vocab_size=1000, num_drafts=2)
    with pytest.raises(InvalidInput, match="timeout"):
        cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, timeout=0)


@pytest.mark.parametrize(
    "draft", [["1/2"], ["1/2", "x", "1/2"], ["1/2", "1/0", "1/2"], [0.5, 0.4, 0.3], [-1, 1, 1]]
)
def test_bad_drafts(draft):
    with pytest.raises(InvalidInput):
        cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, draft=draft)


def test_floats_that_are_what_they_print_are_taken():
    def bound(draft):
        found = cddlib_checks.check("acceptance_one", vocab_size=2, num_drafts=2, draft=draft)
        assert found.holds is True
        return found.facets[0].bound

    assert bound([0.25, 0.75]) == Fraction(1, 16)
    assert bound(["0.1", Decimal("0.9")]) == Fraction(1, 100)
    bits = Fraction(0.1)
    assert bound([bits, 1 - bits]) == bits**2
    with pytest.raises(
        InvalidInput, match=r"0\.1 is a float, whose bits hold 36028.* write '0\.1'"
    ):
        bound([0.1, 0.9])
    with pytest.raises(InvalidInput, match="sums to 1999/2000, not 1"):
        bound(["0.1", "0.8995"])


TENTHS = [Fraction(1, 10), Fraction(2, 5), Fraction(1, 2)]


@pytest.mark.parametrize(
    "draft",
    [
        [0.1, 0.4, 0.5],
        np.array([0.1, 0.4, 0.5]),
        mo.WithReplacement([0.1, 0.4, 0.5], 2),
        mo.MixtureDrafts([(0.1, mo.WithReplacement(TENTHS, 2)),
                          (0.9, mo.WithoutReplacement(TENTHS, 2))]),
    ],
)  # fmt: skip
def test_a_true_claim_is_not_refuted_by_the_bits_of_its_floats(draft):
    """0.25 = (1/2)^2 is Q({2}), but not that of 0.5 divided by a sum of other bits than one."""
    claim = [f"p{i} >= {q * q}" for i, q in enumerate(TENTHS)]
    claim += ["p0 + p1 >= 0.25", "p0 + p2 >= 0.36"]
    claim += ["p1 + p2 >= 81/100"]
    assert cddlib_checks.check_condition(3, 2, claim, TENTHS).holds is True
    assert cddlib_checks.check_condition(3, 2, claim, ["0.1", "0.4", ".5"]).holds is True
    with pytest.raises(InvalidInput, match=r"0\.1 is a float"):
        cddlib_checks.check_condition(3, 2, claim, draft)


@pytest.mark.parametrize("bound", [0.1, np.float32(0.1), "0.1/0", "a", None])
def test_bounds_are_what_is_written(bound):
    with pytest.raises(InvalidInput, match="is not readable"):
        cddlib_checks.check_condition(3, 2, [((0,), bound)])
    with pytest.raises(InvalidInput, match="is not readable"):
        cddlib_checks.check_condition(3, 2, [Inequality((0.1, 0, 0), Fraction(1))])


@pytest.mark.parametrize("engine", double_description.ENGINES)
def test_the_message_without_an_engine_names_every_package(monkeypatch, engine):
    monkeypatch.setattr(double_description, "available", lambda name: False)
    with pytest.raises(MissingExtra) as error:
        cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, engine=engine)
    if engine != "ppl":
        for word in ("gcc", "libcdd-dev", "libgmp-dev", "pip install pycddlib"):
            assert word in str(error.value)
    if engine in ("ppl", "auto"):
        assert "pip install pplpy" in str(error.value)


def test_an_unknown_engine_is_named():
    with pytest.raises(UnknownName, match="'lrs'"):
        cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, engine="lrs")


@pytest.mark.parametrize("installed", ["cddlib", "ppl"])
def test_one_engine_is_enough(monkeypatch, installed):
    if not double_description.available(installed):
        pytest.skip(f"{installed} is not installed")
    available = double_description.available
    monkeypatch.setattr(
        double_description, "available", lambda name: name == installed and available(name)
    )
    square = [(0, 1, 0), (0, 0, 1), (1, -1, 0), (1, 0, -1)]
    assert double_description.vertices(square) == {(x, y) for x in (0, 1) for y in (0, 1)}


# --- both engines, which must agree --------------------------------------------------------------

needs_both = pytest.mark.skipif(
    not all(map(double_description.available, ("cddlib", "ppl"))), reason="needs both engines"
)


@needs_both
@pytest.mark.parametrize("name", [n for n in TRUE + FALSE if n not in SAMPLED])
def test_both_engines_settle_every_claim_alike(name):
    small = ("projection", "prefix_optimality_non_identical", "value_of_two_classes")
    v, k = (3, 2) if name in small else (4, 3)
    found = {
        engine: cddlib_checks.check(name, vocab_size=v, num_drafts=k, engine=engine, timeout=120)
        for engine in ("cddlib", "ppl", "both")
    }
    assert len({result.holds for result in found.values()}) == 1, found
    assert found["both"].sizes == found["ppl"].sizes == found["cddlib"].sizes
    assert found["both"].facets == found["ppl"].facets


@needs_both
def test_an_engine_that_errs_is_found_out(monkeypatch):
    square = [(0, 1, 0), (0, 0, 1), (1, -1, 0), (1, 0, -1)]
    right = double_description.run_with("both", double_description.vertices, {"rows": square})
    assert right == {(x, y) for x in (0, 1) for y in (0, 1)}
    monkeypatch.setattr(with_ppl, "generators", lambda rows: ({(Fraction(0), Fraction(0))}, set()))
    with pytest.raises(SolverError, match="disagree"):
        double_description.run_with("both", double_description.vertices, {"rows": square})


@needs_both
@pytest.mark.parametrize("seed", range(20))
def test_both_engines_on_random_polyhedra(seed):
    """Boxes cut by random half-spaces, some of them empty or flat, and random cones."""
    rng = random.Random(seed)
    size = rng.randint(1, 4)
    unit = [[int(i == j) for j in range(size)] for i in range(size)]
    rows = [(3, *(-x for x in row)) for row in unit] + [(0, *row) for row in unit]
    rows += [tuple(rng.randint(-4, 4) for _ in range(size + 1)) for _ in range(rng.randint(0, 6))]
    rays = [[rng.randint(-2, 4) for _ in range(size)] for _ in range(rng.randint(1, 7))]
    for function, arguments in (
        (double_description.vertices, {"rows": rows}),
        (double_description.maximise, {"rows": rows, "objective": unit[0]}),
    ):
        double_description.run_with("both", function, arguments)
    by_cddlib, by_ppl = (
        double_description.run_with(engine, double_description.facets_of_cone, {"rays": rays})
        for engine in ("cddlib", "ppl")
    )
    if not by_cddlib[1] and not by_ppl[1]:  # rows of a flat cone are unique up to its equalities
        assert by_cddlib == by_ppl


# --- parts ---------------------------------------------------------------------------------------


def test_maximum_flow_agrees_with_subset_selection():
    rng = random.Random(1)
    for _ in range(60):
        v, k = rng.randint(1, 5), rng.randint(1, 4)
        scheme = rng.choice(["with_replacement", "without_replacement"])
        weights = [rng.choice((0, 1, 2, 7, 50)) for _ in range(v - 1)] + [1]
        q = [Fraction(x, sum(weights)) for x in weights]
        weights = [rng.choice((0, 1, 3, 8)) for _ in range(v - 1)] + [2]
        p = [Fraction(x, sum(weights)) for x in weights]
        drafts = drafts_for(scheme, v, k, q)
        expected, _ = exact_optimum(mo.TransportProblem(p, drafts))
        law = drafts.law(True).support_law().masses()
        assert exact_acceptance(p, law) == expected
        table = containment_table(law, v)
        assert best_cut(p, table)[0] == expected
        assert list(best_cuts([p, p[::-1]], table)) == [
            best_cut(p, table),
            best_cut(p[::-1], table),
        ]


def test_priority_laws_are_those_of_all_orders():
    law = drafts_for("independent", 4, 3).law(True).support_law().masses()
    expected = {priority_law(law, order) for order in permutations(range(4))}
    assert priority_laws(law, 4) == expected
    assert len(expected) == 24


def test_powers_are_bounded_from_the_right_side():
    for x in (Fraction(1, 10), Fraction(343, 1000), Fraction(999, 1000), Fraction(1, 10**9)):
        for a, b in ((29, 10), (31, 10), (30001, 10000)):
            low, high = power_below(x, Fraction(a, b)), power_above(x, Fraction(a, b))
            assert low**b <= x**a <= high**b
            assert (high - low) / high < Fraction(1, 10**11)
    assert power_below(Fraction(1, 4), Fraction(1, 1)) == Fraction(1, 4)
    assert power_above(Fraction(0), Fraction(5, 2)) == 0


def test_rows_have_one_canonical_form():
    assert primitive([Fraction(1, 2), Fraction(-1, 3), 0]) == (3, -2, 0)
    assert primitive([6, -4, 2]) == (3, -2, 1)
    assert primitive([0, 0]) == (0, 0)


def test_a_cone_with_a_missing_or_a_wrong_row_is_noticed():
    complete = run_in_child(
        cones.acceptance_cone, {"vocab_size": 4, "sizes": [1, 2, 3]}, timeout=60
    )
    assert complete.describes_cone
    weaker = {"vocab_size": 4, "sizes": [1, 2, 3], "smallest_subset": 3}
    finding = run_in_child(cones.acceptance_cone, weaker, timeout=60)
    assert len(finding.unexpected) == comb(4, 2)
    assert not finding.describes_cone


@pytest.mark.parametrize(
    "name",
    [
        "acceptance_one",
        "optimal_value",
        "q_convexity",
        "prefix_optimality",
        "without_replacement_dominates",
    ],
)
def test_random_search_finds_nothing_and_says_how_blind_it_is(name):
    result = cddlib_checks.search(name, vocab_size=5, num_drafts=2, trials=100)
    assert result.holds is None
    assert result.sizes["trials"] == result.sizes["next_trial"] == 100
    assert result.sizes["control_trials"] == 100
    assert "how blind" in result.reason
    if name != "prefix_optimality":
        assert result.sizes["control_caught"] > 10


def test_random_search_is_resumable_and_independent_of_workers():
    def at(**options):
        return cddlib_checks.search(
            "q_convexity_non_identical", vocab_size=4, num_drafts=2, rng=3, **options
        )

    first = at(trials=300, workers=1)
    assert first.holds is False
    place = first.sizes["found_at"]
    again = at(trials=1, start=place, workers=2)
    assert again.sizes["found_at"] == place
    assert again.counterexample == first.counterexample
    with pytest.raises(UnknownName, match="random search"):
        cddlib_checks.search("vertex_counts", vocab_size=4, num_drafts=2)


# --- drafts from different models ----------------------------------------------------------------


@pytest.mark.parametrize(("v", "k"), [(2, 2), (4, 3)])
def test_different_drafts_may_accept_less_than_one_of_their_models(v, k):
    result = cddlib_checks.check("single_model_dominated_non_identical", vocab_size=v, num_drafts=k)
    assert result.holds is False
    found = result.counterexample
    assert found is not None
    assert found.acceptance_rate < 1
    assert acceptance_of(found) == found.acceptance_rate


@pytest.mark.parametrize("zero", [False, True])
def test_claims_for_given_different_drafts(zero):
    draft = [["1/2", "1/3", "1/6"], ["1/10", "1/5", "7/10"]]
    if zero:
        draft[1] = ["0", "1/4", "3/4"]
    for name in (
        "acceptance_one_non_identical",
        "threshold_sets_non_identical",
        "mean_dominated_non_identical",
    ):
        result = cddlib_checks.check(name, vocab_size=3, num_drafts=2, draft=draft)
        assert stands(result), str(result)


def test_a_wrong_threshold_is_noticed():
    """The check itself: against weights of another subset, tokens are out of place."""
    from mdsd_opt.cddlib_checks.provers import misplaced

    p = [Fraction(1, 10), Fraction(9, 10)]
    models = [[Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 4), Fraction(3, 4)]]
    weights = [Fraction(1, 4), Fraction(1, 2)]  # of H = {0}
    assert misplaced(p, models, weights, 0b01) is None
    assert misplaced(p, models, weights, 0b11) == 1
    assert misplaced(p, models, weights, 0b00) == 0


# --- drafts of two values ------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3])
def test_the_formula_for_two_values_is_the_one_of_value_bound(length):
    drafts = drafts_for("with_replacement", 3, 3)
    q = drafts.model.exact()
    values = [2 * length - 1] + 2 * [2 * length - 3]
    for order in permutations(range(3)):
        chains = [two_values.chains_of(q, order, 1, 2, n) for n in (length, length - 1)]
        for p, value in two_values.vertices_below(q, order, *chains):
            target, draft = np.array(p, float), np.array(q, float)
            assert value_bound(target, draft, values).optimum == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("lie", ["too small", "too large"])
def test_a_wrong_formula_for_two_values_is_noticed(monkeypatch, lie):
    chains = two_values.chains_of
    shift = Fraction(1, 10**9) * (1 if lie == "too large" else -1)
    monkeypatch.setattr(
        two_values, "chains_of", lambda *given: [(y, x + shift) for y, x in chains(*given)]
    )
    found = two_values.two_values(drafts_for("with_replacement", 2, 2), 1, 2)
    assert found.holds is False
    kind = "another optimum" if lie == "too large" else "no bound"
    assert found.counterexamples[0].kind == kind
