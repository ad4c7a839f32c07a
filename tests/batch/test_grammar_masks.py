"""Tokens that a grammar allows: rates under masks, and what the masked law is."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsd_opt as mo
from mdsd_opt.cddlib_checks import optimum
from mdsd_opt.errors import InvalidDistribution, InvalidInput

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


def test_masks_of_tensors():
    torch = pytest.importorskip("torch")
    p, q, mask = rows()
    expected = mo.acceptance_rates(p, q, 2, mask=mask)
    tensors = [torch.from_numpy(side) for side in (p, q)]
    for given_mask in (mask, torch.from_numpy(mask)):
        found = mo.acceptance_rates(*tensors, 2, mask=given_mask)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found.numpy(), expected)
    assert torch.isfinite(tensors[0]).all()  # what was given is left as it is


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
    masked, given_grammar = {}, {}
    for first, second in product(range(3), repeat=2):
        if first in allowed[()] and second in allowed[first]:
            step = law[()][first] / sum(law[()][x] for x in allowed[()])
            step *= law[first][second] / sum(law[first][x] for x in allowed[first])
            masked[first, second] = step
            given_grammar[first, second] = law[()][first] * law[first][second]
    total = sum(given_grammar.values())
    assert sum(masked.values()) == 1
    assert masked[0, 0] == Fraction(1, 2)
    assert given_grammar[0, 0] / total == Fraction(1, 11)
    away = sum(abs(masked[text] - given_grammar[text] / total) for text in masked) / 2
    assert away == Fraction(9, 22)
