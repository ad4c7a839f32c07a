"""Which way of drafting is best, and at which temperature."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName
from mdsd_opt.planning import Candidate, rank_drafts
from mdsd_opt.planning.ranking import scheme_names


def pair(rng, vocab_size=30, num_positions=None):
    shape = (vocab_size,) if num_positions is None else (num_positions, vocab_size)
    target = 2.0 * rng.standard_normal(shape)
    return target, target + rng.standard_normal(shape)


def rate_at(target, draft, num_drafts, temperature):
    drafts = mo.WithReplacement(mo.softmax(draft, temperature), num_drafts)
    return mo.solve(mo.TransportProblem(mo.softmax(target), drafts)).acceptance_rate


# --- temperature ---


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_no_temperature_of_a_fine_grid_is_better(num_drafts, seed):
    target, draft = pair(np.random.default_rng(seed))
    best = mo.best_draft_temperature(target, draft, num_drafts, tolerance=1e-4)
    assert best.acceptance_rate == pytest.approx(
        rate_at(target, draft, num_drafts, best.temperature), abs=1e-12
    )
    assert best.upper_bound <= best.acceptance_rate + 1e-4
    grid = [rate_at(target, draft, num_drafts, t) for t in np.geomspace(0.2, 5.0, 300)]
    assert max(grid) <= best.upper_bound + 1e-12
    assert best.acceptance_rate >= max(grid) - 1e-4


def test_a_draft_that_is_only_too_hot_is_cooled():
    target = np.array([3.0, 2.0, 1.0, 0.0])
    best = mo.best_draft_temperature(target, 0.5 * target, 1, tolerance=1e-5)
    assert best.temperature == pytest.approx(0.5, abs=1e-3)
    assert best.acceptance_rate == pytest.approx(1.0, abs=1e-5)


def test_temperature_with_impossible_tokens_one_token_and_one_temperature():
    best = mo.best_draft_temperature([0.0, -np.inf, 1.0], [0.0, 2.0, -np.inf], 2)
    assert 0.0 < best.acceptance_rate <= best.upper_bound <= 1.0
    assert mo.best_draft_temperature([0.3], [0.1], 2).acceptance_rate == 1.0
    only = mo.best_draft_temperature([2.0, 0.0], [0.0, 2.0], 2, bounds=(1.3, 1.3))
    assert only.temperature == pytest.approx(1.3)


def test_temperature_refuses_bad_input():
    with pytest.raises(InvalidInput, match="bounds is"):
        mo.best_draft_temperature([0.0, 2.0], [0.0, 2.0], 2, bounds=(0.0, 2.0))
    with pytest.raises(InvalidInput, match="tolerance is 0"):
        mo.best_draft_temperature([0.0, 2.0], [0.0, 2.0], 2, tolerance=0.0)
    with pytest.raises(InvalidInput, match="one position of each"):
        mo.best_draft_temperature([[0.0, 2.0]], [[0.0, 2.0]], 2)
    with pytest.raises(InvalidInput, match="2 tokens and draft_logits has 3"):
        mo.best_draft_temperature([0.0, 2.0], [0.0, 1.0, 2.0], 2)
    with pytest.raises(InvalidInput, match="leave draft_temperature"):
        mo.best_draft_temperature([0.0, 2.0], [0.0, 2.0], 2, draft_temperature=0.7)
    with pytest.raises(InvalidInput, match="not found under top_k"):
        mo.best_draft_temperature([0.0, 2.0], [0.0, 2.0], 2, top_k=1)
    with pytest.raises(InvalidInput, match="mask_draft=False"):
        mo.best_draft_temperature([0.0, 2.0], [0.0, 2.0], 2, lift=[1.0, 0.5])
    with pytest.raises(InvalidDistribution):
        mo.best_draft_temperature([0.0, np.nan], [0.0, 2.0], 2)


# --- candidates of all kinds ---


def test_any_ways_are_ranked_by_their_optimum():
    rng = np.random.default_rng(3)
    target, draft = pair(rng, num_positions=6)
    other = target + 0.1 * rng.standard_normal(target.shape)
    asked, beside = mo.Logits(target, draft), mo.Logits(target, other)
    few = mo.Sampling(0.8, top_k=3)
    ways = [
        Candidate("drawn"),
        Candidate("few", "without_replacement", few),
        Candidate("near", draft=beside),
        Candidate("coin", draft=(asked, beside)),
    ]
    found = rank_drafts(asked, ways, (1, 2), sequence=[0, 0, 1, 1, 2, 2])
    both = np.log((mo.softmax(draft) + mo.softmax(other)) / 2)
    expected = {
        "drawn": mo.acceptance_rates(target, draft, (1, 2)),
        "few": mo.acceptance_rates(
            target, draft, (1, 2), "without_replacement", sampling=mo.Sampling(), draft_sampling=few
        ),
        "near": mo.acceptance_rates(target, other, (1, 2)),
        "coin": mo.acceptance_rates(target, both, (1, 2), kind="logits"),
    }
    for n, k in enumerate((1, 2)):
        rows = [row for row in found.rates if row.num_drafts == k]
        means = {row.name: row.acceptance.mean for row in rows}
        assert means == pytest.approx({name: x[:, n].mean() for name, x in expected.items()})
        assert [*means] == sorted(means, key=means.get, reverse=True)
        assert rows[0].behind.mean == 0.0
        assert rows[0].acceptance.num_groups == 3
    assert max(map(len, str(found).splitlines())) <= 80
    with pytest.raises(InvalidInput, match="near has 5 positions, and the pair 6"):
        rank_drafts(asked, [Candidate("near", draft=mo.Logits(target[1:], other[1:]))], 2)
    with pytest.raises(InvalidInput, match="num_drafts is empty"):
        rank_drafts(asked, ways, ())


# --- schemes ---


def test_ways_that_differ_in_name_alone_are_ranked_both():
    target, draft = pair(np.random.default_rng(3), num_positions=4)
    few = mo.Sampling(top_k=5)
    ways = [Candidate(name, sampling=few) for name in ("a", "b")]
    ranked = rank_drafts(mo.Logits(target, draft), ways, 2)
    assert [row.name for row in ranked.rates] == ["a", "b"]
    assert len({row.acceptance for row in ranked.rates}) == 1


def test_every_scheme_has_the_rate_of_its_problem():
    target, draft = pair(np.random.default_rng(0), num_positions=3)
    compared = mo.compare_draft_schemes(target, draft, 4)
    rates = {row.scheme: row.acceptance.mean for row in compared.rates}
    assert set(rates) == set(scheme_names(4))
    expected = {name: [] for name in rates}
    for p, logits in zip(mo.softmax(target), draft, strict=True):
        q, cold = mo.softmax(logits), mo.softmax(logits, 0.7)
        first = int(q.argmax())
        rest = np.where(np.arange(q.size) == first, 0.0, q)
        schemes = {
            "with_replacement": mo.WithReplacement(q, 4),
            "without_replacement": mo.WithoutReplacement(q, 4),
            "greedy": mo.GreedyDrafts(q, 4),
            "top_k": mo.TopKDrafts(q, 4),
            "with_replacement, draft temperature x 0.7": mo.WithReplacement(cold, 4),
            "half with, half without replacement": mo.MixtureDrafts(
                [(0.5, mo.WithReplacement(q, 4)), (0.5, mo.WithoutReplacement(q, 4))]
            ),
            "top 1 and 3 without replacement": mo.FixedPlusDrafts(
                [first], mo.WithoutReplacement(rest / rest.sum(), 3)
            ),
        }
        for name, drafts in schemes.items():
            expected[name].append(mo.solve(mo.TransportProblem(p, drafts)).acceptance_rate)
    for name, column in expected.items():
        if column:
            assert rates[name] == pytest.approx(np.mean(column), abs=1e-7), name


def test_schemes_are_ranked_and_the_best_is_behind_nothing():
    target, draft = pair(np.random.default_rng(1), num_positions=12)
    compared = mo.compare_draft_schemes(target, draft, 3, sequence=np.repeat(np.arange(4), 3))
    means = [row.acceptance.mean for row in compared.rates]
    assert means == sorted(means, reverse=True)
    assert compared.rates[0].behind.mean == 0.0
    assert compared.rates[0].acceptance.num_groups == 4
    assert compared.num_positions == 12
    for row in compared.rates:
        assert row.behind.mean == pytest.approx(means[0] - row.acceptance.mean)


def test_the_best_temperature_is_a_limit_of_the_tempered():
    target, draft = pair(np.random.default_rng(2), num_positions=4)
    names = [name for name in scheme_names(2) if name.startswith("with_")]
    compared = mo.compare_draft_schemes(
        target, draft, 2, schemes=names, best_temperature=True, progress=True
    )
    assert len(compared.rates) == len(names) + 1
    best = next(r for r in compared.rates if "best draft" in r.scheme)
    others = (r.acceptance.mean for r in compared.rates)
    assert best.acceptance.mean >= max(others) - 1e-3


@pytest.mark.parametrize("num_drafts", [1, 2, 9])
def test_few_tokens_and_one_hot_drafts(num_drafts):
    compared = mo.compare_draft_schemes([[0.0, 1.0, 2.0]], [[5.0, -np.inf, -np.inf]], num_drafts)
    p = mo.softmax([0.0, 1.0, 2.0])
    rates = {row.scheme: row.acceptance.mean for row in compared.rates}
    assert rates["with_replacement"] == pytest.approx(p[0])
    assert all(0.0 <= rate <= 1.0 for rate in rates.values())
    if num_drafts > 1:  # one token has all the mass: it alone is drafted
        assert "half with, half without replacement" in compared.left_out


def test_comparison_refuses_bad_input():
    with pytest.raises(UnknownName, match="greedy"):
        mo.compare_draft_schemes([[0.0, 2.0]], [[0.0, 2.0]], 2, schemes=["greedi"])
    with pytest.raises(InvalidInput, match="no schemes"):
        mo.compare_draft_schemes([[0.0, 2.0]], [[0.0, 2.0]], 2, schemes=[])
    with pytest.raises(InvalidInput, match="at least one position"):
        mo.compare_draft_schemes(np.empty((0, 4)), np.empty((0, 4)), 2)
    with pytest.raises(InvalidInput, match="2 tokens and draft_logits has 3"):
        mo.compare_draft_schemes([[0.0, 2.0]], [[0.0, 2.0, 1.0]], 2)


def test_a_searched_temperature_comes_with_its_gap() -> None:
    """The search stops within a tolerance of the best temperature: every table says so."""
    rng = np.random.default_rng(0)
    target, draft = rng.normal(size=(2, 4, 30))
    compared = mo.compare_draft_schemes(target, draft, 2, best_temperature=True)
    (searched,) = [row for row in compared.rates if "best draft temperature" in row.scheme]
    assert 0 < searched.gap <= 1e-3
    rows = {row["name"]: row["gap"] for row in compared.to_dict()["rates"]}
    assert rows[searched.scheme] == searched.gap
    assert all(gap == 0 for name, gap in rows.items() if name != searched.scheme)
    (table,) = compared.tables()
    assert f"(gap {searched.gap:.0e})" in table.markdown()


def test_a_comparison_prints_at_80_columns_with_the_bound_by_inclusion() -> None:
    rng = np.random.default_rng(0)
    target, draft = rng.normal(size=(2, 6, 4, 30))
    compared = mo.compare_draft_schemes(target, draft, 4, best_temperature=True, inclusion=True)
    lines = str(compared).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 3 + len(compared.rates)
    q, p = mo.softmax(draft.reshape(-1, 30)), mo.softmax(target.reshape(-1, 30))
    bounds = [
        mo.inclusion_bound(mo.TransportProblem(*pair))
        for pair in zip(p, (mo.WithoutReplacement(row, 4) for row in q), strict=True)
    ]
    assert compared.inclusion.mean == pytest.approx(np.mean(bounds))
    assert f"{np.mean(bounds):.4f}" in lines[-1]
    (drawn,) = [row for row in compared.rates if row.scheme == "without_replacement"]
    assert drawn.acceptance.mean <= compared.inclusion.mean
    assert mo.compare_draft_schemes(target, draft, 2).inclusion is None
