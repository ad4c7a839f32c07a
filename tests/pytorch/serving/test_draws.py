"""Independent draws: blocks of the hull, the law of the selected draft, what bins lose."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from support.random_trees import random_draws, random_law
from support.served_trees import Served

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.errors import InvalidInput
from mdsd_opt.serving import reference, selection, verify_tree, verify_tree_of_draws
from mdsd_opt.serving.arguments import TreeArguments


def plan_of(p: Any, q: Any, num_drafts: int) -> tuple[Any, Any, Any]:
    """Bins of the tokens of one row, and the groups of bins with their marginal."""
    laws = [torch.tensor(np.float32(x))[None] for x in (p, q)]
    bins = selection.bins_of(*laws)
    sums = selection.bin_sums(*laws, bins)[0].numpy()
    return bins[0].numpy(), *selection.plan_of(sums, num_drafts)


def ratios_of(groups: Any, marginal: Any) -> Any:
    """Ratios of the selected draft's law to q, by bins."""
    return np.append(marginal.ratio, 0.0)[groups.place]


def random_pair(seed: int) -> tuple[Any, Any, int]:
    """Laws that have tokens in common, and K; of a single draft any block would do."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    q = random_law(rng, size)
    p = random_law(rng, size)
    return (p + q) / 2 if rng.random() < 0.7 else q, q, int(rng.integers(2, 6))


@pytest.mark.parametrize("seed", range(30))
def test_marginals_are_laws_of_a_selected_draft(seed: int) -> None:
    p, q, num_drafts = random_pair(seed)
    bins, groups, marginal = plan_of(p, q, num_drafts)
    assert marginal.ratio @ groups.q == pytest.approx(1.0, abs=1e-12)
    assert (np.cumsum(marginal.x) >= groups.contained[1:] - 1e-12).all()
    assert (np.diff(marginal.ratio) >= -1e-9).all()
    optimum = mo.solve(mo.TransportProblem(p, mo.WithReplacement(q, num_drafts))).acceptance_rate
    accepted = np.minimum(p, ratios_of(groups, marginal)[bins] * q).sum()
    assert optimum - 2e-3 < accepted < optimum + 1e-6


@pytest.fixture
def few_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time it takes."""
    monkeypatch.setattr(selection, "NUM_BINS", 16)


@pytest.mark.usefixtures("few_bins")
@pytest.mark.parametrize(("size", "num_drafts"), [(2, 4), (4, 2), (5, 3)])
def test_the_selected_draft_has_that_law(size: int, num_drafts: int) -> None:
    rng = np.random.default_rng(size)
    p, q = rng.dirichlet(np.ones(size), size=2)
    bins, *plan_of_root = plan_of(p, q, num_drafts)
    tuples = np.array(list(product(range(size), repeat=num_drafts)))
    levels = (np.arange(100) + 0.5) / 100
    batch = one_level(p, q, np.repeat(tuples, levels.size, 0), np.tile(levels, len(tuples)))
    plan = selected(batch)
    drawn = np.take_along_axis(batch.tokens, plan.chosen[:, None], 1)[:, 0]
    weights = np.repeat(q[tuples].prod(1) / levels.size, levels.size)
    law = np.bincount(drawn, weights, size)
    # Of each boundary between blocks the levels know the place up to .005.
    np.testing.assert_allclose(law, ratios_of(*plan_of_root)[bins] * q, atol=0.004)


def one_level(p: Any, q: Any, tuples: Any, levels: Any) -> Served:
    """Trees of K draws below a root."""
    bs, num_drafts = tuples.shape
    nodes = num_drafts + 1
    tokens = np.column_stack([np.zeros(bs, np.int64), tuples])
    first, following = np.full((2, bs, nodes), -1)
    first[:, 0] = 1
    following[:, 1:-1] = np.arange(2, nodes)
    laws = [np.broadcast_to(x, (bs, nodes, p.size)) for x in (p, q)]
    coins = np.zeros((bs, nodes))
    columns = np.broadcast_to(levels[:, None], (bs, nodes))
    return Served(tokens, first, following, *laws, coins, coins[:, 0], 2, None, columns)


class Planned(Exception):
    """Carries a plan out of a call."""


def selected(batch: Served) -> Any:
    """Who is selected at the root."""

    def plan(*tensors: Any, uniform_samples_for_selection: Any) -> None:
        raise Planned(
            selection.select(TreeArguments(*tensors).checked(), uniform_samples_for_selection)
        )

    with pytest.raises(Planned) as found:
        batch.call(plan)
    whole = found.value.args[0]
    roots = slice(None, None, batch.tokens.shape[1])
    return selection.Selection(whole.ratios[roots].numpy(), whole.chosen[roots].numpy())


@pytest.mark.usefixtures("few_bins")
def test_tokens_follow_the_target() -> None:
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(5), size=2)
    number = 50_000
    batch = one_level(p, q, rng.choice(5, size=(number, 3), p=q), rng.random(number))
    batch = replace(batch, coins=rng.random((number, 4)), last_coins=rng.random(number))
    texts = batch.call(verify_tree_of_draws)
    counts = np.bincount([text[0] for text in texts], minlength=5)
    expected = number * p
    assert ((counts - expected) ** 2 / expected).sum() < 33.4  # 1e-6 of all lossless rules
    rate = mo.solve(mo.TransportProblem(p, mo.WithReplacement(q, 3))).acceptance_rate
    accepted = np.mean([len(text) == 2 for text in texts])
    assert rate - 0.02 < accepted < rate + 0.01


@pytest.mark.parametrize("num_drafts", [2, 8])
def test_bins_lose_little_on_real_logits(num_drafts: int) -> None:
    with np.load(sample_logits_path()) as sample:
        target, draft = (sample[name][::4] for name in ("target", "draft"))
    best = mo.acceptance_rates(target, draft, num_drafts)
    lost = []
    for optimum, *logits in zip(best, target, draft, strict=True):
        p, q = (mo.softmax(row.astype(np.float64)) for row in logits)
        bins, *plan = plan_of(p, q, num_drafts)
        lost.append(optimum - np.minimum(p, ratios_of(*plan)[bins] * q).sum())
    assert min(lost) > -1e-6
    assert max(lost) < 4.5e-4


@pytest.mark.parametrize("seed", range(10))
def test_rows_may_be_shared(seed: int) -> None:
    batch = random_draws(np.random.default_rng(seed))
    assert batch.call(verify_tree_of_draws) == batch.shared().call(verify_tree_of_draws)


def test_rows_of_zeros_are_certain_children() -> None:
    batch = random_draws(np.random.default_rng(2), vocab_size=9, num_drafts=3)
    batch = replace(batch, q=np.zeros_like(batch.q))
    certain = replace(batch, levels=None)
    assert batch.call(verify_tree_of_draws) == certain.call(verify_tree)


def test_levels_are_as_many_as_nodes() -> None:
    batch = random_draws(np.random.default_rng(2))
    with pytest.raises(InvalidInput, match="uniform_samples_for_selection is float32"):
        replace(batch, levels=batch.levels[:, 1:]).call(verify_tree_of_draws)


@pytest.mark.parametrize("seed", range(4))
def test_the_kernels_decide_as_the_reference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = pytest.importorskip("mdsd_opt.serving.triton_walk", reason="needs triton")
    plan = pytest.importorskip("mdsd_opt.serving.triton_selection", reason="needs triton")
    batch = random_draws(np.random.default_rng(seed), 2)
    if seed % 2:
        monkeypatch.setattr(walk, "BLOCK", 8)
        monkeypatch.setattr(plan, "BLOCK", 8)
        batch = batch.shared()

    plans = []

    def by(select: Any, walk: Any) -> list[list[int]]:
        def decide(*tensors: Any, uniform_samples_for_selection: Any, **options: Any) -> None:
            call = TreeArguments(*tensors, **options).checked()
            plans.append(select.select(call, uniform_samples_for_selection))
            walk.walk(call, plans[-1])

        return batch.call(decide)

    assert by(plan, walk) == by(selection, reference)
    drawn = plans[1].chosen >= 0
    assert torch.equal(plans[0].chosen, plans[1].chosen)
    used = plans[1].ratios[drawn] > 0.0  # bins that hold tokens
    assert torch.allclose(plans[0].ratios[drawn][used], plans[1].ratios[drawn][used], rtol=1e-6)


@pytest.mark.parametrize("of_draft", [0.1, np.nan])
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_padding_nodes_are_never_read(seed: int, of_draft: float) -> None:
    tree = random_draws(np.random.default_rng(seed))
    bs, _, vocab_size = tree.p.shape
    nothing = np.full((bs, 2), -1)
    laws = np.full((bs, 2, vocab_size), np.nan)
    padded = replace(tree, **{
        name: np.concatenate([getattr(tree, name), more], axis=1)
        for name, more in {
            "tokens": nothing + 1, "first_child": nothing, "next_sibling": nothing, "p": laws,
            "q": np.full_like(laws, of_draft), "coins": nothing * 0.0, "levels": nothing * 0.0,
        }.items()
    })  # fmt: skip
    assert padded.call(verify_tree_of_draws) == tree.call(verify_tree_of_draws)
