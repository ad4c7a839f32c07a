"""Models measured and advised, without weights: rows of noise that take known time."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from support import fake_models

from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning import advise_models
from mdsd_opt.planning.model_advice import ROWS


class Clock:
    """Time that passes in passes of models alone."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


class Slow:
    """A model whose pass takes so many milliseconds, and so many more for each row."""

    def __init__(self, clock, rows, base, each=0.0):
        self.clock, self.rows, self.base, self.each = clock, rows, base, each

    def tree_logits(self, ids, continuations):
        self.clock.now += 1e-3 * (self.base + self.each * len(continuations))
        return np.stack([self.rows[(sum(ids) + sum(tokens)) % 5] for tokens in continuations])


def pair(clock, noise=0.7, base=20.0, each=0.0):
    rng = np.random.default_rng(0)
    rows = 2.0 * rng.standard_normal((5, 40))
    draft = rows + noise * rng.standard_normal(rows.shape)
    return Slow(clock, rows, base, each), Slow(clock, draft, 2.0)


PROMPTS = [[1, 2, 3], [4, 5], [6]]


def test_costs_are_measured_and_the_forecast_stands_beside_what_came_of_it(clock):
    found = advise_models(*pair(clock, each=0.5), PROMPTS, num_tokens=12, max_drafts=6)
    costs, tree = found.advice.costs, found.advice.tree
    assert [*costs.rows_ms] == [*ROWS]
    assert [*costs.rows_ms.values()] == pytest.approx([20.0 + 0.5 * n for n in ROWS])
    assert costs.draft_ms == pytest.approx(2.0)
    assert costs.verify_ms == 0.0
    assert found.advice.worth_it
    speed, tokens, target, draft, decision = found.terms
    assert speed.forecast == found.advice.tokens_per_second
    assert tokens.forecast == found.advice.tokens_per_step
    assert 1.0 <= tokens.observed <= 1.0 + tree.depth
    assert draft.forecast == pytest.approx(2.0 * tree.depth)
    assert draft.observed == pytest.approx(draft.forecast)
    assert target.forecast == pytest.approx(20.0 + 0.5 * (1 + tree.num_nodes))
    assert 20.0 < target.observed <= target.forecast + 1e-9  # coinciding drafts are one row
    assert decision.observed == 0.0
    whole = target.observed + draft.observed
    assert speed.observed == pytest.approx(1e3 * tokens.observed / whole)
    assert found.num_steps >= 3
    assert (
        f"({speed.observed / speed.forecast - 1:+.0%}, {found.num_steps} steps)" in found.sentence
    )
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_a_target_that_pays_for_rows_is_measured_as_one(clock):
    found = advise_models(*pair(clock, base=0.0, each=6.0), PROMPTS, num_tokens=6, max_drafts=4)
    assert found.advice.costs.rows_ms == pytest.approx({n: 6.0 * n for n in ROWS})
    assert not found.advice.worth_it


def test_a_term_that_is_off_is_named(clock):
    """The draft takes longer once the advice is given."""
    target, draft = pair(clock, noise=0.2)

    def slower(line):
        if line.startswith("decoding with"):
            draft.base = 20.0

    found = advise_models(target, draft, PROMPTS, num_tokens=12, max_drafts=4, tell=slower)
    depth = found.advice.tree.depth
    assert f"mostly the draft's ms: {20 * depth:.2f} where {2 * depth:.2f}" in found.sentence


def test_nothing_to_measure_is_refused(clock):
    with pytest.raises(InvalidInput, match="0 prompts"):
        advise_models(*pair(clock), [])
    with pytest.raises(InvalidInput, match="num_tokens 0"):
        advise_models(*pair(clock), PROMPTS, num_tokens=0)


def test_the_command_line_measures_models(run_cli, monkeypatch):
    fake_models.install(monkeypatch)
    asked = ("advise", "--target", "big", "--draft", "small", "--prompt", "a bc", "--prompt", "d")
    document = run_cli.document(*asked, "--tokens", "6", "--max-drafts", "3")
    assert document["source"] == ["big", "small"]
    assert [term["name"] for term in document["tried_out"]][:2] == [
        "tokens a second",
        "tokens a step",
    ]
    shown = run_cli(*asked, "--tokens", "6", "--max-drafts", "3")
    assert "Tried out: " in shown.stdout
