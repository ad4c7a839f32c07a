"""Filters of the draft: what a search over them finds, and what they can do to the optimum."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles

import mdsd_opt as mo
from mdsd_opt import plots
from mdsd_opt.base.logits import Reading
from mdsd_opt.batch import verify_batch
from mdsd_opt.cddlib_checks import optimum, search_laws
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName

SCHEMES = {
    "with_replacement": mo.WithReplacement,
    "without_replacement": mo.WithoutReplacement,
    "greedy": mo.GreedyDrafts,
    "top_k": mo.TopKDrafts,
}
TARGET, DRAFT = np.random.default_rng(0).normal(size=(2, 6, 12)) * 2
OWN = mo.Sampling(0.8, top_k=4, top_p=0.9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_rate_is_the_optimum_of_its_setting(scheme):
    found = mo.best_draft_filter(
        TARGET, DRAFT, 2, scheme, sampling=OWN, temperatures=[0.6, 1.0],
        filters=[mo.Sampling(top_k=2), mo.Sampling(min_p=0.2)], sequence=[0, 0, 1, 1, 2, 2],
    )  # fmt: skip
    p = OWN.law(TARGET)
    for row in found.rates:
        q = row.sampling.law(DRAFT)
        rates = [
            mo.solve(mo.TransportProblem(*pair)).acceptance_rate
            for pair in zip(p, (SCHEMES[scheme](x, 2) for x in q), strict=True)
        ]
        assert row.acceptance.mean == pytest.approx(np.mean(rates), abs=1e-9)
    means = [row.acceptance.mean for row in found.rates]
    assert max(means) - means[0] <= 1e-9
    assert means[len(found.ties) :] == sorted(means[len(found.ties) :], reverse=True)
    assert len(found.rates) >= 4 * 3
    for tried in (OWN, mo.Sampling(0.8), mo.Sampling(0.6, top_k=2), mo.Sampling(min_p=0.2)):
        row = found.rate_of(tried)
        assert row.behind.mean == pytest.approx(means[0] - row.acceptance.mean)
    assert found.acceptance.num_groups == 3
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert "as the target" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["rates"][0]["mean"] == means[0]
    with pytest.raises(InvalidInput, match="was not tried"):
        found.rate_of(mo.Sampling(top_k=3))


FILTERS = (
    *(mo.Sampling(top_k=k) for k in (1, 2, 12, 40)),
    *(mo.Sampling(top_p=p) for p in (0.2, 0.5, 0.8, 1.0)),
    *(mo.Sampling(min_p=p) for p in (0.0, 0.05, 0.5, 1.0)),
    mo.Sampling(joint=True), mo.Sampling(top_k=4, top_p=0.7),
    mo.Sampling(top_k=4, top_p=0.7, min_p=0.3, joint=True),
)  # fmt: skip


def ties(num_rows, vocab_size):
    """Rows of few values, of which some are impossible, one is certain, and one is flat."""
    rng = np.random.default_rng(vocab_size)
    rows = rng.integers(-3, 4, size=(2, num_rows, vocab_size)).astype(float)
    rows[rows == -3] = -np.inf
    rows[:, :, 0] = 0.0
    rows[0, 0, 1:], rows[1, 1, 1:] = -np.inf, -np.inf
    rows[:, 2], rows[1, 3] = 0.0, rows[0, 3]
    return rows


@pytest.mark.parametrize(
    "own", [mo.Sampling(), OWN, mo.Sampling(0.0), mo.Sampling(0.7, 5, 0.8, 0.05, joint=True)]
)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        (ties(6, 12), np.float64), (ties(6, 12), ml_dtypes.bfloat16), (ties(5, 1), np.float64),
        (np.stack([TARGET, DRAFT]), np.float32), (np.stack([TARGET, TARGET]), np.float64),
    ],
)  # fmt: skip
def test_tokens_that_are_kept_have_the_rates_of_all(rows, dtype, scheme, own):
    target, draft = rows.astype(dtype)
    options = {"filters": FILTERS, "temperatures": [0.0, 0.6], "sampling": own}
    found = mo.best_draft_filter(target, draft, 3, scheme, **options)
    assert len(found.rates) >= 2 * len(FILTERS)
    for row in found.rates:
        of_all = mo.acceptance_rates(
            target, draft, 3, scheme, kind="logits", sampling=own, draft_sampling=row.sampling
        )
        assert row.acceptance.mean == pytest.approx(of_all.mean(), abs=1e-12), row.sampling


@pytest.mark.parametrize("tokens", [1, 24, 36])
def test_rates_do_not_depend_on_the_rows_at_once_or_on_threads(tokens, monkeypatch):
    options = {"filters": FILTERS, "temperatures": [0.6], "sampling": OWN}
    whole = mo.best_draft_filter(TARGET, DRAFT, 3, **options)
    monkeypatch.setattr("mdsd_opt.planning.draft_search._TOKENS_AT_ONCE", tokens)
    for threads in 1, 3:
        parts = mo.best_draft_filter(TARGET, DRAFT, 3, **options, num_threads=threads)
        assert [x.sampling for x in parts.rates] == [x.sampling for x in whole.rates]
        for row, other in zip(parts.rates, whole.rates, strict=True):
            assert row.acceptance.mean == pytest.approx(other.acceptance.mean, abs=1e-12)


def test_every_position_has_the_same_rate_in_a_vocabulary_that_is_a_part():
    ids = np.array([3, 0, 7, 11, 5])
    for options in {"draft_token_ids": ids}, {"pad": True}:
        for target, draft in zip(TARGET, DRAFT[:, :5], strict=True):
            found = mo.best_draft_filter(target, draft, 2, sampling=OWN, **options)
            for row in found.rates[::7]:
                whole = {"sampling": OWN, "draft_sampling": row.sampling, **options}
                of_all = mo.acceptance_rates(target, draft, 2, **whole)
                assert row.acceptance.mean == pytest.approx(of_all, abs=1e-12)


def drawn_from_all(q, earlier):
    """Law of drafts that may be tokens of probability zero."""
    return np.full(q.size, 1 / q.size)


def test_schemes_that_are_plugged_in_see_all_tokens(monkeypatch):
    scheme = f"{__name__}:drawn_from_all"
    monkeypatch.setitem(SINGLE_MODEL_SCHEMES, scheme, None)  # an item that is set is taken away
    del SINGLE_MODEL_SCHEMES[scheme]
    found = mo.best_draft_filter(
        TARGET, DRAFT, 2, scheme, filters=[mo.Sampling(top_k=1)], temperatures=[]
    )
    assert {row.acceptance.mean for row in found.rates} == {found.acceptance.mean}


def test_bars_tell_of_each_search(capsys):
    mo.best_draft_filter(TARGET, DRAFT, 2, progress=True)
    told = capsys.readouterr().err
    assert f"{6 * 6 * 13}/{6 * 6 * 13}" in told
    assert told.count("ways to draft") > 1


@pytest.mark.parametrize("own", [mo.Sampling(), OWN])
@pytest.mark.parametrize("side", ["target_logits", "draft_logits"])
def test_rows_that_are_no_logits_are_named(side, own):
    sides = {"target_logits": TARGET.copy(), "draft_logits": DRAFT.copy()}
    sides[side][4, 2] = np.nan
    with pytest.raises(InvalidDistribution, match=rf"{side} row 4 has a NaN \(first at token 2\)"):
        mo.best_draft_filter(**sides, sampling=own)


def test_a_target_without_temperature_is_greedy_decoding():
    cold = mo.best_draft_filter(TARGET, DRAFT, 1, sampling=mo.Sampling(0))  # greedy
    hits = (TARGET.argmax(-1) == DRAFT.argmax(-1)).mean()
    assert cold.rate_of(mo.Sampling(0)).acceptance.mean == pytest.approx(hits)
    assert cold.acceptance.mean >= hits


def test_of_equal_settings_the_simplest_is_the_best():
    """Both filters leave every token there is."""
    found = mo.best_draft_filter(
        TARGET, TARGET, 1, filters=[mo.Sampling(top_k=12), mo.Sampling(top_p=1.0)], temperatures=[]
    )
    assert next(row.sampling for row in found.ties) == mo.Sampling()
    assert {row.sampling.top_k for row in found.ties} == {None, 12}
    assert found.acceptance.mean == pytest.approx(1.0)


def test_the_temperature_of_one_position_is_that_of_the_certified_search():
    for row in range(3):
        sides = TARGET[row], DRAFT[row]
        certified = mo.best_draft_temperature(*sides, 2, bounds=(0.3, 3.0), tolerance=1e-5)
        found = mo.best_draft_filter(*sides, 2, filters=[], temperatures=np.geomspace(0.3, 3.0, 24))
        assert all(row.sampling == mo.Sampling(row.sampling.temperature) for row in found.rates)
        assert found.acceptance.mean <= certified.upper_bound + 1e-9
        assert found.acceptance.mean == pytest.approx(certified.acceptance_rate, abs=1e-3)
        coarse = max(x.acceptance.mean for x in found.rates if x.sampling.temperature == 1.0)
        assert found.acceptance.mean >= coarse


def test_what_is_found_can_be_asked_for_and_decided_with():
    found = mo.best_draft_filter(TARGET, DRAFT, 2, "without_replacement", sampling=OWN)
    common = {"sampling": OWN, "draft_sampling": found.sampling}
    rates = mo.acceptance_rates(TARGET, DRAFT, 2, "without_replacement", **common)
    assert rates.mean() == pytest.approx(found.acceptance.mean)
    p, q = OWN.law(TARGET), found.sampling.law(DRAFT)
    laws = mo.acceptance_rates(p, q, 2, "without_replacement", kind="probs")
    np.testing.assert_allclose(rates, laws, atol=1e-9)
    rng = np.random.default_rng(0)
    drafts = np.array([mo.WithoutReplacement(row, 2).sample(rng) for row in q])
    common |= {"scheme": "without_replacement", "rng": 1, "with_rates": True}
    chosen = verify_batch(TARGET, DRAFT, drafts, **common)
    same = verify_batch(
        p, q, drafts, scheme="without_replacement", rng=1, with_rates=True, kind="probs"
    )
    np.testing.assert_array_equal(chosen.tokens, same.tokens)
    np.testing.assert_allclose(chosen.acceptance_rate, rates, atol=1e-9)
    with pytest.raises(InvalidInput, match="not both"):
        mo.acceptance_rates(TARGET, DRAFT, 2, draft_temperature=1.0, draft_sampling=OWN)
    with pytest.raises(InvalidInput, match=r"mdsd_opt\.Sampling"):
        mo.acceptance_rates(TARGET, DRAFT, 2, draft_sampling=0.7)


def test_kernels_are_not_asked_for_filters_that_differ():
    """They have one set of filters for both sides."""
    assert Reading(OWN, replace(OWN, temperature=0.3)).filters_alike
    assert not Reading(OWN, mo.Sampling(0.8)).filters_alike


def test_bad_input_is_one_clear_error():
    with pytest.raises(InvalidInput, match="filters is"):
        mo.best_draft_filter(TARGET, DRAFT, filters=[{"top_k": 2}])
    with pytest.raises(InvalidInput, match="temperature is -1"):
        mo.best_draft_filter(TARGET, DRAFT, temperatures=[-1.0])
    with pytest.raises(InvalidInput, match="confidence is nan"):
        mo.best_draft_filter(TARGET, DRAFT, confidence=float("nan"))
    with pytest.raises(InvalidInput, match="fit to each other"):
        mo.best_draft_filter(TARGET, DRAFT[:2])
    with pytest.raises(InvalidInput, match="at least one position"):
        mo.best_draft_filter(TARGET, DRAFT[:1])
    with pytest.raises(InvalidInput, match="leave draft_temperature"):
        mo.best_draft_filter(TARGET, DRAFT, draft_sampling=mo.Sampling(top_k=2))
    with pytest.raises(InvalidInput, match="sequence has 2 entries"):
        mo.best_draft_filter(TARGET, DRAFT, sequence=[0, 1])
    with pytest.raises(InvalidInput, match="num_drafts"):
        mo.best_draft_filter(TARGET, DRAFT, 0)
    with pytest.raises(UnknownName, match="greedy"):
        mo.best_draft_filter(TARGET, DRAFT, 2, "greedi")


LAWS = {
    "with_replacement": oracles.with_replacement,
    "without_replacement": oracles.without_replacement,
    "greedy": oracles.greedy,
    "top_k": oracles.top_k,
}


def cuts(p, law):
    """Value of every cut, 1 + p(H) - Pr(all drafts in H)."""
    tokens = range(len(p))
    return {
        h: 1 + sum((p[i] for i in h), Fraction(0)) - oracles.containment(law, h)
        for n in range(len(p) + 1)
        for h in combinations(tokens, n)
    }


def without(q, left_out):
    kept = [Fraction(0) if i in left_out else x for i, x in enumerate(q)]
    return [x / sum(kept) for x in kept]


@pytest.mark.parametrize("scheme", LAWS)
@given(data=st.data())
def test_what_leaving_tokens_out_of_the_draft_can_do(scheme, data):
    """It costs p(D) at most, and gains nothing unless D reaches into all optimal cuts."""
    v, k = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    weights = st.lists(st.integers(0, 5), min_size=v, max_size=v).filter(any)
    p, q = ([Fraction(x, sum(w)) for x in w] for w in (data.draw(weights), data.draw(weights)))
    left_out = data.draw(st.sets(st.integers(0, v - 1)))
    if not any(x for i, x in enumerate(q) if i not in left_out):
        return
    law, cut_law = (LAWS[scheme](x, k) for x in (q, without(q, left_out)))
    before, after = cuts(p, law), cuts(p, cut_law)
    best, now = min(before.values()), min(after.values())
    assert now >= best - sum(p[i] for i in left_out)
    for h in (h for h, value in before.items() if value == best):
        inside = [i for i in h if i in left_out]
        most = oracles.containment(law, h) - oracles.containment(cut_law, h)
        assert now <= best + most - sum(p[i] for i in inside)
        if not inside:
            assert now <= best


@given(st.data())
def test_one_draft_in_closed_form(data):
    v = data.draw(st.integers(2, 5))
    weights = st.lists(st.integers(0, 6), min_size=v, max_size=v).filter(any)
    p, q = ([Fraction(n, sum(w)) for n in w] for w in (data.draw(weights), data.draw(weights)))
    x = data.draw(st.integers(0, v - 1))
    if q[x] == 1:
        return
    others = [i for i in range(v) if i != x]
    gain = sum(min(max(p[i] - q[i], 0), q[i] * q[x] / (1 - q[x])) for i in others) - min(p[x], q[x])
    cut = without(q, {x})
    assert gain == sum(map(min, p, cut)) - sum(map(min, p, q))
    wanted = sum(q[i] for i in others if p[i] > q[i]) / (1 - q[x])
    if p[x] >= q[x] * wanted:
        assert gain <= 0
    elif all(cut[i] <= p[i] for i in others if p[i] > q[i]):
        assert gain > 0


def top_two(law):
    kept = [x if x >= sorted(law)[-2] else 0 for x in law]
    return [x / sum(kept) for x in kept]


def test_filters_of_the_draft_may_help_and_may_hurt():
    """Neither direction holds, whether the target has the same filter or none."""

    def change(p, q, k=1, scheme=mo.WithReplacement):
        laws = (scheme(x, k) for x in (q, top_two(q)))
        before, after = (optimum(mo.TransportProblem(p, law)) for law in laws)
        return after - before

    assert search_laws(lambda p, q: change(p, q), 3).excess > 0
    assert search_laws(lambda p, q: -change(p, q), 3).excess > 0
    both = search_laws(lambda p, q: -change(top_two(p), q), 3)
    assert (both.laws, both.excess) == (
        ((0, 1, 0), (Fraction(2, 5), Fraction(1, 5), Fraction(2, 5))), Fraction(1, 5),
    )  # fmt: skip


def test_the_command_line_and_the_picture(run_cli, tmp_path, monkeypatch):
    monkeypatch.setattr("mdsd_opt.planning.ranking.FILTERS", (mo.Sampling(top_p=0.9),))
    monkeypatch.setattr("mdsd_opt.planning.ranking.TEMPERATURES", (0.6, 0.9))
    np.savez(tmp_path / "mine.npz", target=TARGET, draft=DRAFT, sequence=np.arange(6) // 2)
    arguments = ("rates", tmp_path / "mine.npz", "-k", "2", "--top-k", "4", "--temperature", "0.8")
    chosen = (*arguments, "--schemes", "greedy", "--best-filter", "--verifiers", "optimal")
    (told,) = json.loads(run_cli(*chosen, "--json").stdout)["filters"]
    expected = mo.best_draft_filter(
        TARGET, DRAFT, 2, "greedy", sampling=mo.Sampling(0.8, 4), sequence=np.arange(6) // 2
    )
    assert told == json.loads(json.dumps(expected.to_dict()))
    shown = run_cli(*chosen).stdout
    assert "as the target" in shown
    assert f"{expected.acceptance.mean:.4f}" in shown
    pytest.importorskip("matplotlib")
    lines = plots.draft_filters(expected).lines
    labels = [line.get_label() for line in lines]
    assert "no filter" in labels
    assert "top-k 4 (as the target)" in labels
    assert lines[-1].get_ydata() == [expected.acceptance.mean]
    for temperature, rate in zip(*lines[labels.index("no filter")].get_data(), strict=True):
        assert expected.rate_of(mo.Sampling(temperature)).acceptance.mean == rate
