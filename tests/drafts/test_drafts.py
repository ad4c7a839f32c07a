"""Every draft scheme against the enumeration of its definition."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.strategies import PREFIX_SCHEMES, Case, cases

from mdsd_opt.drafts import (
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    PrefixDraftScheme,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnsupportedScheme

#: Schemes whose `tuple_law` keeps the draw order; the others list each set once.
ORDERED = ("with_replacement", "without_replacement", "independent", "mixture", "fixed_plus")


def mask(members: tuple[int, ...] | frozenset[int], size: int) -> np.ndarray:
    result = np.zeros(size, dtype=np.bool_)
    result[list(members)] = True
    return result


def unpadded(drafts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in drafts if i >= 0)


@given(cases())
def test_containment_of_every_subset(case: Case) -> None:
    drafts = case.drafts
    for subset in oracles.subsets(drafts.vocab_size):
        expected = oracles.containment(case.law, subset)
        inside = mask(subset, drafts.vocab_size)
        assert drafts.law(True).containment(inside) == expected
        assert drafts.containment(inside) == pytest.approx(float(expected), abs=1e-14)


@given(cases())
def test_law_of_the_draft_set(case: Case) -> None:
    expected = oracles.set_law(case.law)
    exact = case.drafts.law(True).support_law().masses()
    assert {frozenset(s): mass for s, mass in exact.items()} == expected
    assert len(exact) == len(expected)  # no set twice
    assert all(list(s) == sorted(s) for s in exact)

    law = case.drafts.support_law()
    sets = list(law.sets())
    assert {frozenset(s) for s in sets} == set(expected)
    assert len(sets) == len(expected)
    for members, mass in zip(sets, law.mass.tolist(), strict=True):
        assert mass == pytest.approx(float(expected[frozenset(members)]), rel=1e-13)
    np.testing.assert_array_equal(
        law.arc_support, np.repeat(np.arange(len(sets)), [*map(len, sets)])
    )


@given(cases())
def test_counts_bound_the_law(case: Case) -> None:
    law = case.drafts.support_law()
    supports, arcs = case.drafts.count_supports()
    assert supports >= law.num_supports
    assert arcs >= law.num_arcs
    assert case.drafts.count_tuples() >= len(oracles.listed(case.drafts))


@given(cases())
def test_law_of_the_ordered_tuple(case: Case) -> None:
    exact = oracles.listed(case.drafts)
    assert all(len(drafts) == case.drafts.num_drafts for drafts in exact)
    without_padding = {unpadded(drafts): mass for drafts, mass in exact.items()}
    assert len(without_padding) == len(exact)
    if case.drafts.scheme in ORDERED:
        assert without_padding == case.law
    else:
        assert oracles.set_law(without_padding) == oracles.set_law(case.law)

    tuples, masses = case.drafts.tuple_law()
    found: dict[tuple[int, ...], float] = {}
    for row, mass in zip(tuples.tolist(), masses.tolist(), strict=True):
        found[tuple(row)] = found.get(tuple(row), 0.0) + mass
    for drafts, mass in exact.items():
        assert found.pop(drafts) == pytest.approx(float(mass), rel=1e-13)
    assert all(mass == 0 for mass in found.values())


@given(cases())
def test_each_draft_follows_its_law_given_those_before(case: Case) -> None:
    """Along any tuple the laws of its drafts, and of an early end, multiply to its probability."""
    tuples, masses = case.drafts.tuple_law()
    listed: dict[tuple[int, ...], float] = {}
    for row, mass in zip(tuples.tolist(), masses.tolist(), strict=True):
        listed[tuple(row)] = listed.get(tuple(row), 0.0) + mass
    for row, mass in listed.items():
        drawn = np.array([token for token in row if token >= 0], dtype=np.int64)
        probability = 1.0
        for k in range(case.drafts.num_drafts):
            law = case.drafts.next_law(drawn[:k])
            assert law.min() >= 0
            probability *= law[row[k]] if row[k] >= 0 else 1.0 - law.sum()
            if probability == 0.0 or row[k] < 0:
                break
        assert probability == pytest.approx(mass, abs=1e-13)
        assert case.drafts.is_possible(np.array(row)) == (mass > 0)


@given(cases(["mixture", "mixed_models"], max_vocab=3))
def test_a_mixture_can_draw_what_has_mass(case: Case) -> None:
    """In the order in which it is drawn, whatever else a component takes for the same set."""
    exact = oracles.listed(case.drafts)
    for row in product(range(-1, case.drafts.vocab_size), repeat=case.drafts.num_drafts):
        assert case.drafts.is_possible(np.array(row)) == (exact.get(row, 0) > 0)


@pytest.mark.parametrize("tiny", [1.0, 1e-200])  # whose products are no floats
def test_a_set_in_a_mixture_has_one_order(tiny: float) -> None:
    q = np.array([1.0, tiny, 0.0, tiny])
    successive = WithoutReplacement(q / q.sum(), 2)
    sets = DraftSetLaw(4, {(0, 1, 2): 1 - tiny / 2, (3,): tiny / 2})
    drafts = MixtureDrafts([(0.5, successive), (0.5, sets)])
    for row, possible in {
        (0, 1, 2): True, (0, 2, 1): False, (3, -1, -1): True, (-1, 3, -1): False,
        (3, 3, -1): False, (1, 3, -1): True, (3, 1, -1): True, (2, 0, -1): False,
    }.items():  # fmt: skip
        assert drafts.is_possible(np.array(row)) == possible
        assert FixedPlusDrafts([2], drafts).is_possible(np.array([2, *row])) == possible
    assert sets.is_possible(np.array([0, 2, 1]))  # by itself it is asked about the set


@given(cases(PREFIX_SCHEMES), st.randoms(use_true_random=False))
def test_prefix_curves_in_any_order(case: Case, random: object) -> None:
    drafts = case.drafts
    assert isinstance(drafts, PrefixDraftScheme)
    order = drafts.prefix_order(case.problem.target).tolist()
    random.shuffle(order)  # type: ignore[attr-defined]
    expected = [oracles.containment(case.law, order[:j]) for j in range(len(order) + 1)]
    ids = np.array(order, dtype=np.int64)
    assert drafts.law(True).prefix_containment(ids).tolist() == expected
    computed = drafts.prefix_containment(ids)
    np.testing.assert_allclose(computed, [float(x) for x in expected], atol=4e-14)


@given(cases(["with_replacement", "without_replacement", "mixture"]), st.permutations(range(5)))
def test_slopes_are_differences_over_weights(case: Case, permutation: list[int]) -> None:
    drafts = case.drafts
    assert isinstance(drafts, PrefixDraftScheme)
    order = [i for i in permutation if i < drafts.vocab_size and drafts.weights[i] > 0]
    if drafts.always_drafted.size:
        with pytest.raises(UnsupportedScheme, match="whole support"):
            drafts.prefix_slopes(np.array(order))
        return
    curve = [oracles.containment(case.law, order[:j]) for j in range(len(order) + 1)]
    expected = [
        float((after - before) / drafts.law(True).weights[i])
        for i, before, after in zip(order, curve, curve[1:], strict=False)
    ]
    slopes = drafts.prefix_slopes(np.array(order, dtype=np.int64))
    np.testing.assert_allclose(slopes, expected, rtol=1e-12, atol=1e-13)


@given(cases(PREFIX_SCHEMES))
def test_containment_is_convex_in_the_weights(case: Case) -> None:
    """[Q(H+x)-Q(H)]/w_x <= [Q(H+x+y)-Q(H+x)]/w_y, which makes prefixes optimal [Hu25]."""
    drafts = case.drafts
    assert isinstance(drafts, PrefixDraftScheme)
    w, always = drafts.law(True).weights, set(drafts.always_drafted.tolist())
    free = [i for i in range(drafts.vocab_size) if w[i] > 0 and i not in always]
    for h in oracles.subsets(drafts.vocab_size):
        if not always.issubset(h):
            continue
        for x in free:
            for y in free:
                if x == y or x in h or y in h:
                    continue
                none, one, both = (
                    oracles.containment(case.law, s) for s in (h, (*h, x), (*h, x, y))
                )
                assert (one - none) / w[x] <= (both - one) / w[y]


class TestOrders:
    def test_ties_keep_ascending_ids(self) -> None:
        drafts = WithReplacement([0.25, 0.25, 0.25, 0.25], 2)
        np.testing.assert_array_equal(drafts.prefix_order(np.full(4, 0.25)), [0, 1, 2, 3])

    def test_tokens_never_drafted_are_left_out(self) -> None:
        drafts = WithReplacement([0.5, 0.0, 0.5], 2)
        np.testing.assert_array_equal(drafts.prefix_order(np.array([0.7, 0.2, 0.1])), [2, 0])

    def test_greedy_order_is_the_fixed_tokens_then_p_over_the_last_draw(self) -> None:
        # q' = (0, 0, 2/3, 1/3), so p/q' sorts token 2 first, whatever p/q of the others is
        drafts = GreedyDrafts([0.2, 0.5, 0.2, 0.1], 3)
        np.testing.assert_array_equal(drafts.always_drafted, [1, 0])
        np.testing.assert_array_equal(
            drafts.prefix_order(np.array([0.0, 0.1, 0.4, 0.5])), [1, 0, 2, 3]
        )

    def test_likeliest_tokens_break_ties_towards_the_lowest_id(self) -> None:
        np.testing.assert_array_equal(TopKDrafts([0.1, 0.3, 0.3, 0.3], 2).always_drafted, [1, 2])


class TestRunningOutOfTokens:
    @pytest.mark.parametrize("num_drafts", [2, 3, 5])
    def test_without_replacement_drafts_the_support(self, num_drafts: int) -> None:
        drafts = WithoutReplacement([0.0, 0.75, 0.25], num_drafts)
        assert list(drafts.support_law().sets()) == [(1, 2)]
        rows = drafts.sample(np.random.default_rng(1), 50)
        assert rows.shape == (50, num_drafts)
        assert all(sorted(row[:2]) == [1, 2] for row in rows.tolist())
        assert (rows[:, 2:] == -1).all()

    def test_greedy_and_top_k_never_draft_impossible_tokens(self) -> None:
        rng = np.random.default_rng(1)
        assert TopKDrafts([0.0, 0.9, 0.1], 3).sample(rng).tolist() == [1, 2, -1]
        assert GreedyDrafts([0.0, 0.9, 0.1], 4).sample(rng).tolist() == [1, 2, -1, -1]

    def test_set_laws_pad_smaller_sets(self) -> None:
        drafts = DraftSetLaw(3, {(): 0.25, (2, 0): 0.25, (1,): 0.5})
        rows = {tuple(row) for row in drafts.sample(np.random.default_rng(1), 200).tolist()}
        assert rows == {(-1, -1), (0, 2), (1, -1)}


class TestSetLaw:
    def test_keys_that_name_one_set_are_added(self) -> None:
        drafts = DraftSetLaw(3, {(0, 2): 0.25, (2, 0): 0.25, (1, 1): 0.5})
        assert drafts.law(True).support_law().masses() == {
            (0, 2): Fraction(1, 2),
            (1,): Fraction(1, 2),
        }

    def test_numpy_integers_and_frozensets_are_keys(self) -> None:
        drafts = DraftSetLaw(np.int64(3), {frozenset({np.int32(1)}): 1.0})
        assert drafts.law(True).support_law().masses() == {(1,): Fraction(1)}

    def test_a_mass_of_one_may_be_rounded(self) -> None:
        assert DraftSetLaw(1, {(0,): 1.0000000000000002}).containment([True]) == 1.0

    @pytest.mark.parametrize(
        ("vocab_size", "masses", "message"),
        [
            (0, {(0,): 1.0}, "vocab_size is 0"),
            (3, {}, "no draft set given"),
            (3, [((0,), 1.0)], "no draft set given"),
            (3, {0: 1.0}, "draft set 0 is not a collection of integer token ids"),
            (3, {(0.5,): 1.0}, r"draft set \(0\.5,\) is not a collection"),
            (3, {(3,): 1.0}, r"draft set \(3,\) names a token outside 0\.\.2"),
            (3, {(-1,): 1.0}, r"draft set \(-1,\) names a token outside"),
            (3, {(0,): "1"}, r"draft set \(0,\) has mass '1'"),
            (3, {(0,): -0.5, (1,): 1.5}, r"draft set \(0,\) has mass -0\.5"),
            (3, {(0,): float("nan")}, r"has mass nan"),
            (3, {(0,): 0.5, (1,): 0.4}, r"masses of the draft sets sums to 0\.9"),
        ],
    )
    def test_errors(self, vocab_size: object, masses: object, message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            DraftSetLaw(vocab_size, masses)  # type: ignore[arg-type]


class TestErrors:
    def test_number_of_drafts_may_be_an_integral_float(self) -> None:
        assert WithReplacement([1.0], 2.0).num_drafts == 2  # type: ignore[arg-type]

    @pytest.mark.parametrize("subset", [[True], [0, 1], [1.0, 0.0], [[True, False]]])
    def test_subset_must_be_a_mask(self, subset: object) -> None:
        drafts = WithReplacement([0.5, 0.5], 2)
        for containment in (drafts.containment, drafts.law(True).containment):
            with pytest.raises(InvalidInput, match=r"boolean mask of shape \(2,\)"):
                containment(subset)

    @pytest.mark.parametrize(
        ("models", "message"),
        [
            ([], "no draft distribution given"),
            (3, "the draft distributions are 3"),
            ([[0.5, 0.5], [1.0]], r"have \[1, 2\] tokens"),
            ([[0.5, 0.5], [0.5, 0.6]], r"q\[1\] sums to 1\.1"),
            ([0.5, 0.5], r"q\[0\] has shape \(\)"),
        ],
    )
    def test_independent(self, models: object, message: str) -> None:
        with pytest.raises(InvalidDistribution, match=message):
            IndependentDrafts(models)  # type: ignore[arg-type]

    def test_mixtures_and_fixed_tokens(self) -> None:
        q = [0.5, 0.25, 0.25]
        with pytest.raises(InvalidInput, match=r"\[2, 3\] tokens: they must share a vocabulary"):
            MixtureDrafts([(0.5, WithReplacement(q, 1)), (0.5, WithReplacement([0.5, 0.5], 1))])
        with pytest.raises(InvalidInput, match="not distinct"):
            FixedPlusDrafts([0, 0], WithReplacement(q, 2))
        with pytest.raises(InvalidInput, match=r"not all in 0\.\.2"):
            FixedPlusDrafts([3], WithReplacement(q, 2))
