"""Tokens that a grammar allows: rates under masks, and what the masked law is."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import tuple_law

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.batch import verify_batch
from mdsd_opt.cddlib_checks import optimum
from mdsd_opt.errors import InvalidDistribution, InvalidInput
from mdsd_opt.verifiers import Uniforms

SCHEMES = {
    "with_replacement": mo.WithReplacement,
    "without_replacement": mo.WithoutReplacement,
    "greedy": mo.GreedyDrafts,
}


def rows(seed=0, count=4, vocab_size=9):
    rng = np.random.default_rng(seed)
    mask = rng.random((count, vocab_size)) < 0.5
    mask[:, 0] = True
    return *rng.standard_normal((2, count, vocab_size)), mask


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_mask_is_minus_infinity_in_the_logits(scheme):
    p, q, mask = rows()
    both, cut = (np.where(mask, side, -np.inf) for side in (p, q)), np.where(mask, p, -np.inf)
    options = {"num_drafts": (1, 2), "drafts": scheme, "temperature": 0.7, "top_k": 4}
    np.testing.assert_array_equal(
        mo.acceptance_rates(p, q, mask=mask, **options), mo.acceptance_rates(*both, **options)
    )
    np.testing.assert_array_equal(
        mo.acceptance_rates(p, q, mask=mask, mask_draft=False, **options),
        mo.acceptance_rates(cut, q, **options),
    )
    same = np.tile(mask[0], (4, 1))
    np.testing.assert_array_equal(
        mo.acceptance_rates(p, q, 2, mask=mask[0]), mo.acceptance_rates(p, q, 2, mask=same)
    )


def test_a_mask_of_probabilities_and_of_half_precision():
    p, q, mask = rows()
    laws = [mo.softmax(side) for side in (p, q)]
    expected = mo.acceptance_rates(p, q, 2, mask=mask)
    found = mo.acceptance_rates(*laws, 2, kind="probs", mask=mask)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    half = mo.acceptance_rates(p.astype(np.float16), q.astype(np.float16), 2, mask=mask)
    np.testing.assert_allclose(half, expected, atol=5e-3)
    whole = mo.acceptance_rates(np.arange(9), np.arange(9)[::-1], 2, mask=mask[0])
    floats = mo.acceptance_rates(np.arange(9.0), np.arange(9.0)[::-1], 2, mask=mask[0])
    assert whole == floats


def test_masks_of_lazy_arrays():
    da = pytest.importorskip("dask.array")
    p, q, mask = rows()
    lazy = mo.acceptance_rates(da.from_array(p), da.from_array(q), 2, mask=mask)
    np.testing.assert_array_equal(lazy.compute(), mo.acceptance_rates(p, q, 2, mask=mask))


def test_masks_that_cannot_be():
    p, q, mask = rows()
    with pytest.raises(InvalidInput, match="give booleans"):
        mo.acceptance_rates(p, q, mask=mask.astype(float))
    with pytest.raises(InvalidInput, match="one boolean a token"):
        mo.acceptance_rates(p, q, mask=mask[:, :5])
    with pytest.raises(InvalidInput, match="one boolean a token"):
        mo.acceptance_rates(p, q, mask=mask[:3])
    with pytest.raises(InvalidInput, match="mask_draft=False"):
        mo.acceptance_rates(p, q[:, :5], mask=mask, pad=True)
    mask[2] = False
    with pytest.raises(InvalidDistribution, match="row 2"):
        mo.acceptance_rates(p, q, mask=mask)


@pytest.mark.parametrize("scheme", [*SCHEMES, "top_k"])
@given(data=st.data())
def test_to_leave_out_of_the_draft_what_the_target_cannot_say_never_hurts(scheme, data):
    """In Fractions, for the optimum of every scheme that is known by its name."""
    v, k = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    allowed = data.draw(st.lists(st.booleans(), min_size=v, max_size=v).filter(any))
    weights = st.lists(st.integers(1, 6), min_size=v, max_size=v)
    p, q = data.draw(weights), data.draw(weights)
    cut_p, cut_q = ([x * a for x, a in zip(w, allowed, strict=True)] for w in (p, q))
    p, q, masked = ([Fraction(x, sum(w)) for x in w] for w in (cut_p, q, cut_q))
    if scheme == "top_k":  # the likeliest that can come: of the masked draft maybe fewer than K
        taken = [sorted(range(v), key=lambda x: (-law[x], x))[:k] for law in (q, masked)]
        rates = [sum(p[x] for x in tokens) for tokens in taken]
    else:
        rates = [optimum(mo.TransportProblem(p, SCHEMES[scheme](law, k))) for law in (q, masked)]
    assert rates[0] <= rates[1]


def test_the_masked_law_is_not_the_law_given_the_grammar():
    """Three tokens: after 0 only 0 is allowed, at the start not 2. By enumeration."""
    third = Fraction(1, 3)
    law = {(): [third, third, third], 0: [Fraction(1, 10), Fraction(9, 20), Fraction(9, 20)]}
    law[1] = law[2] = [third, third, third]
    allowed = {(): (0, 1), 0: (0,), 1: (0, 1, 2)}
    masked, lifted, given_grammar = {}, {}, {}
    for first, second in product(range(3), repeat=2):
        if first in allowed[()] and second in allowed[first]:
            step = law[()][first] / sum(law[()][x] for x in allowed[()])
            step *= law[first][second] / sum(law[first][x] for x in allowed[first])
            masked[first, second] = step
            given_grammar[first, second] = law[()][first] * law[first][second]
            future = {x: sum(law[x][y] for y in allowed[x]) for x in allowed[()]}  # lifts the start
            step = law[()][first] * future[first] / sum(law[()][x] * future[x] for x in future)
            step *= law[first][second] / sum(law[first][x] for x in allowed[first])
            lifted[first, second] = step
    total = sum(given_grammar.values())
    assert lifted == {text: mass / total for text, mass in given_grammar.items()}
    assert sum(masked.values()) == 1
    assert masked[0, 0] == Fraction(1, 2)
    assert given_grammar[0, 0] / total == Fraction(1, 11)
    away = sum(abs(masked[text] - given_grammar[text] / total) for text in masked) / 2
    assert away == Fraction(9, 22)


P, Q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
MASK, LIFT = np.array([True, True, False, True]), np.array([0.1, 1.0, 0.5, 0.25])


def exactly(law, mask=None, lift=None):
    """Law in Fractions, masked and lifted by its definition."""
    weights = [Fraction(str(x)) for x in law]
    for factors in (mask, lift):
        if factors is not None:
            weights = [w * Fraction(str(float(x))) for w, x in zip(weights, factors, strict=True)]
    return [w / sum(weights) for w in weights]


CASES = {
    "target": ({"mask": MASK, "mask_draft": False}, (MASK,), ()),
    "both": ({"mask": MASK}, (MASK,), (MASK,)),
    "lifted": ({"mask": MASK, "lift": LIFT}, (MASK, LIFT), (MASK, LIFT)),
    "lifted alone": ({"lift": LIFT, "mask_draft": False}, (None, LIFT), ()),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", CASES)
def test_decisions_follow_the_masked_law(name, scheme):
    """By enumeration of all drafts: the rule's law in Fractions, and its decisions one by one."""
    options, of_target, of_draft = CASES[name]
    p, q = exactly(P, *of_target), exactly(Q, *of_draft)
    problem = mo.TransportProblem(p, SCHEMES[scheme](q, 2))
    rule = verifiers.get("optimal")
    assert list(rule.output_law(problem, exact=True)) == p
    rate = mo.acceptance_rates(P, Q, 2, scheme, kind="probs", **options)
    assert rate == pytest.approx(float(optimum(problem)), abs=1e-12)
    uniforms = np.random.default_rng(0).random((40, 4))
    floats = mo.TransportProblem(np.array(p, float), SCHEMES[scheme](np.array(q, float), 2))
    plain: set[int] = set()
    for drafts, _ in tuple_law(problem.drafts, exact=True):
        given_rows = [
            *(np.tile(np.log(side), (40, 1)) for side in (P, Q)),
            np.tile(drafts, (40, 1)),
        ]
        common = {"scheme": scheme, "uniforms": uniforms, "kind": "logprobs", "with_rates": True}
        tokens = [rule.verify(floats, drafts, Uniforms(*row)).token for row in uniforms.tolist()]
        found = verify_batch(*given_rows, **common, **options)
        assert found.tokens.tolist() == tokens
        np.testing.assert_allclose(found.acceptance_rate, rate, atol=1e-12)
        assert not {x for x in tokens if not p[x]}
        if not of_draft and scheme != "greedy":  # an engine that forgets its mask
            plain |= set(verify_batch(*given_rows, **common).tokens.tolist())
    assert not plain or plain == {0, 1, 2, 3}


def test_drafts_of_the_unmasked_law_are_refused_where_the_draft_is_masked():
    rows = np.log(P)[None], np.log(Q)[None]
    with pytest.raises(InvalidInput, match="row 0"):
        verify_batch(*rows, [[2]], kind="logprobs", mask=MASK)
    kept = verify_batch(*rows, [[2]], kind="logprobs", mask=MASK, mask_draft=False)
    assert kept.tokens[0] != 2


def test_a_lift_comes_after_temperature_and_filters():
    p, q, mask = rows()
    weights = np.random.default_rng(1).random(p.shape)
    options = {"temperature": 0.5, "top_k": 4, "mask": mask}
    found = mo.acceptance_rates(p, q, (1, 2), lift=weights, **options)
    sides = (np.where(mask, side, -np.inf) for side in (p, q))
    laws = [mo.softmax(side, 0.5, 4) * weights for side in sides]
    laws = [law / law.sum(axis=-1, keepdims=True) for law in laws]
    expected = mo.acceptance_rates(*laws, (1, 2), kind="probs")
    np.testing.assert_allclose(found, expected, atol=1e-12)
    before = [np.where(mask, side, -np.inf) + np.log(weights) for side in (p, q)]
    wrong = mo.acceptance_rates(*before, (1, 2), temperature=0.5, top_k=4)
    assert abs(found - wrong).max() > 0.01
    np.testing.assert_allclose(  # what all weights have in common changes nothing
        mo.acceptance_rates(p, q, 2, lift=7 * weights), mo.acceptance_rates(p, q, 2, lift=weights)
    )


def test_lifts_that_cannot_be():
    p, q, _ = rows()
    for wrong in (-np.ones(9), np.full(9, np.nan)):
        with pytest.raises(InvalidInput, match="negative or not finite"):
            mo.acceptance_rates(p, q, lift=wrong)
    with pytest.raises(InvalidInput, match="one number a token"):
        mo.acceptance_rates(p, q, lift=np.ones(4))
    with pytest.raises(InvalidDistribution, match="row 0 is all -inf"):
        mo.acceptance_rates(p, q, lift=np.zeros(9))
    da = pytest.importorskip("dask.array")
    with pytest.raises(InvalidInput, match="Dask"):
        mo.acceptance_rates(da.from_array(p), da.from_array(q), lift=np.ones(9))
