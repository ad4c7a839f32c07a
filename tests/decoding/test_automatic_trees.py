"""Trees that are chosen while decoding: what they cost beside plain decoding and the best tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import mdsd_opt as mo
from mdsd_opt.decoding import (
    AutoTree,
    generate,
    generate_batch,
    generate_steps,
    initial_rates,
    k_ary,
    parse_topology,
)
from mdsd_opt.decoding.growth import AutoGrowth, Growth, PooledRates, RunningCosts, growth_of
from mdsd_opt.errors import InvalidInput

Cost = Callable[[int, int], float]

COSTS: dict[str, Cost] = {
    "rows are nearly free": lambda drafts, levels: 1.0 + 0.005 * drafts + 0.1 * levels,
    "rows are dear": lambda drafts, levels: 1.0 + 0.25 * drafts + 0.1 * levels,
    "the draft is dear": lambda drafts, levels: 1.0 + 0.02 * drafts + 0.5 * levels,
}
TABLE = 3.0 * np.random.default_rng(1).normal(size=(50, 40))


def after(table: Any) -> Any:
    return lambda ids: table[7 * sum(ids[-2:]) % 50]


def draft_of(noise: float | None) -> Any:
    """The target with noise on its logits; without a number what has nothing to do with it."""
    other = np.random.default_rng(2).normal(size=TABLE.shape)
    return after(3.0 * other if noise is None else TABLE + noise * other)


class Watched:
    """Drafts, levels and tokens of the steps of a growth, after the first 50 tokens."""

    def __init__(self, growth: Growth) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self._observe, self._all = growth.observe, 0
        growth.observe = self.observe  # type: ignore[method-assign]

    def observe(self, root: Any, accepted: Any, seconds: Any = (0.0, 0.0)) -> None:
        self._all += 1 + len(accepted)
        if self._all > 50:
            nodes = root.walk()
            levels = {node.depth for node in nodes if node.drafts is not None}
            self.steps.append((len(nodes) - 1, len(levels), 1 + len(accepted)))
        self._observe(root, accepted, seconds)


def steps_of(
    tree: Any, noise: float | None, temperature: float, scheme: str
) -> list[tuple[int, int, int]]:
    growth = growth_of(tree)
    watched = Watched(growth)
    steps = generate_steps(
        after(TABLE), draft_of(noise), [0], tree=growth, scheme=scheme, rule="level_sequential",
        max_new_tokens=600, temperature=temperature, rng=0,
    )  # fmt: skip
    for _ in steps:
        pass
    return watched.steps


@cache
def steps_of_fixed(
    num_drafts: int, depth: int, noise: float | None, temperature: float, scheme: str
) -> list[tuple[int, int, int]]:
    """They are the same whatever a step costs."""
    return steps_of(k_ary(num_drafts, depth), noise, temperature, scheme)


def speed(
    tree: AutoTree | tuple[int, int], noise: float | None, cost: Cost, temperature: float,
    scheme: str = "with_replacement",
) -> float:  # fmt: skip
    """Tokens for the cost of one plain step; a fixed tree is told by its drafts and depth."""
    if isinstance(tree, AutoTree):
        steps = steps_of(tree, noise, temperature, scheme)
    else:
        steps = steps_of_fixed(*tree, noise, temperature, scheme)
    spent = sum(cost(drafts, levels) for drafts, levels, _ in steps)
    return cost(0, 0) * sum(tokens for _, _, tokens in steps) / spent


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0, None])
@pytest.mark.parametrize("name", COSTS)
def test_it_is_not_slower_than_plain_decoding_and_near_the_best_tree(name, noise, temperature):
    cost = COSTS[name]
    found = speed(AutoTree(16, 6, cost), noise, cost, temperature)
    assert found > 0.97
    fixed = [speed(tree, noise, cost, temperature) for tree in ((1, 2), (3, 1), (2, 2))]
    assert found > 0.93 * max(fixed)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_without_replacement_a_draft_that_is_certain_is_followed_in_a_chain(temperature):
    """One draft is all that it has at a node, however many are asked for."""
    cost = COSTS["rows are dear"]
    found = speed(AutoTree(16, 6, cost), 0.3, cost, temperature, "without_replacement")
    fixed = [
        speed(tree, 0.3, cost, temperature, "without_replacement")
        for tree in ((1, 2), (1, 4), (2, 2))
    ]
    assert found > 0.93 * max(fixed)


def test_a_draft_that_is_the_target_is_followed_far_and_a_wide_plan_needs_cheap_rows():
    free, dear = COSTS["rows are nearly free"], COSTS["rows are dear"]
    assert speed(AutoTree(16, 6, free), 0.0, free, 1.0) > 3.5
    assert speed(AutoTree(2, 6, free), 0.0, free, 1.0) < 3.0
    assert speed(AutoTree(16, 6, dear), 0.0, dear, 1.0) < 2.5


@pytest.mark.parametrize("wrong", [False, True])
def test_texts_keep_their_law(wrong):
    """Which tree is drawn depends on what was passed before; the next token must not show it."""
    laws = np.random.default_rng(4).dirichlet(np.ones(3), 3)
    table = np.log(laws)
    drafted = np.log(np.random.default_rng(5).dirichlet(np.ones(3), 3))
    cost = COSTS["rows are dear"]
    counts = np.zeros((3, 3))
    for found in generate_batch(
        lambda ids: table[ids[-1]], lambda ids: drafted[ids[-1]], [[0]] * 6,
        tree=AutoTree(6, 3, cost), max_new_tokens=900, rng=3,
    ):  # fmt: skip
        text = [0, *found.tokens]
        np.add.at(counts, (text[:-1], text[1:]), 1)
    expected = counts.sum(1, keepdims=True) * (laws[::-1] if wrong else laws)
    p_value = chi2.sf(((counts - expected) ** 2 / expected).sum(), 6)
    assert p_value < 1e-9 if wrong else p_value > 1e-3


def test_what_is_learnt_in_a_text_serves_the_next():
    growth = growth_of(AutoTree(6, 3, COSTS["rows are dear"]))
    assert growth_of(growth) is growth
    for _ in range(2):
        *_, (_, metrics) = generate_steps(
            after(TABLE), draft_of(None), [0], tree=growth, max_new_tokens=60, rng=0
        )
    assert metrics.num_drafted < 20  # of 60 steps a few
    with pytest.raises(InvalidInput, match="AutoTree"):
        growth_of(7)


def test_by_the_clock():
    """Whatever it says: as many tokens as asked for, some of them by a draft that is the target."""
    found = generate(after(TABLE), after(TABLE), [0], tree="auto4", max_new_tokens=300, rng=0)
    assert len(found.tokens) == 300
    assert found.metrics.num_accepted > 0
    assert parse_topology("auto4") == AutoTree(4)
    with pytest.raises(InvalidInput, match="at least 1"):
        AutoTree(0)


def test_pooled_rates_are_those_of_the_chance_that_was_seen():
    rates = PooledRates(3)
    np.testing.assert_allclose(rates.table, initial_rates(3, 0.5), atol=1e-6)
    rates.add(initial_rates(3, 0.2), 10_000.0)
    np.testing.assert_allclose(rates.table, initial_rates(3, 0.2), atol=2e-3)
    rates = PooledRates(3)
    rates._visits[1] = rates._nodes[1] = 1000.0  # seen with one draft alone
    rates._passes[1, 0] = 300.0
    np.testing.assert_allclose(rates.table[3], initial_rates(3, 0.3)[3], atol=1e-2)


def test_costs_lie_on_lines_through_what_was_timed():
    costs = RunningCosts()
    for seconds in (1.0, 1.0, 9.0):  # one of them slow
        costs.add(0, 0, (0.5, seconds))
    assert costs(0, 0) == costs(5, 0) == 1.0
    costs.add(4, 2, (0.2, 1.4))
    assert costs(2, 1) == pytest.approx(1.2 + 0.1)
    assert costs(8, 3) == pytest.approx(1.8 + 0.3)


def test_a_growth_begins_with_a_tree_and_plain_steps():
    growth = AutoGrowth(AutoTree(4, 2, COSTS["rows are dear"]))
    model = lambda texts: np.full((len(texts), 5), 0.2)  # noqa: E731
    drawn = []
    for _ in range(7):
        root = growth.grow(model, mo.WithReplacement, np.random.default_rng(0))
        drawn.append(root.drafts is not None)
        growth.observe(root, (), (0.0, 0.0))
    assert drawn == [True] * 4 + [False] * 3  # the first reads the prompt, and is not timed
