"""Models measured and advised, without weights: rows of noise that take known time."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from support import fake_models

from mdsd_opt.corpora.model_advice import ROWS, advise_models
from mdsd_opt.errors import InvalidInput


class Slow:
    """A model whose pass takes so many milliseconds, and so many more for each row."""

    def __init__(self, rows, base, each=0.0):
        self.rows, self.base, self.each = rows, base, each

    def tree_logits(self, ids, continuations):
        time.sleep(1e-3 * (self.base + self.each * len(continuations)))
        return np.stack([self.rows[(sum(ids) + sum(tokens)) % 5] for tokens in continuations])


def pair(noise=0.7, **times):
    rng = np.random.default_rng(0)
    rows = 2.0 * rng.standard_normal((5, 40))
    draft = rows + noise * rng.standard_normal(rows.shape)
    return Slow(rows, times.get("target", 6.0), times.get("each", 0.0)), Slow(
        draft, times.get("draft", 0.5)
    )


PROMPTS = [[1, 2, 3], [4, 5], [6]]


def test_costs_are_measured_and_the_forecast_stands_beside_what_came_of_it():
    found = advise_models(*pair(), PROMPTS, num_tokens=12, max_drafts=6)
    costs = found.advice.costs
    assert [*costs.rows_ms] == [*ROWS]
    assert all(6.0 <= took < 12.0 for took in costs.rows_ms.values())
    assert 0.5 <= costs.draft_ms < 3.0
    assert found.advice.worth_it
    speed, tokens, target, draft, decision = found.terms
    assert speed.forecast == found.advice.tokens_per_second
    assert tokens.forecast == found.advice.tokens_per_step
    assert 1.0 <= tokens.observed <= 1.0 + found.advice.tree.depth
    whole = target.observed + draft.observed + decision.observed
    assert speed.observed == pytest.approx(1e3 * tokens.observed / whole)
    assert found.num_steps >= 3
    assert "Tried out: " in found.sentence
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_a_target_that_pays_for_rows_is_measured_as_one():
    found = advise_models(*pair(each=6.0, target=0.0), PROMPTS, num_tokens=6, max_drafts=4)
    rows_ms = found.advice.costs.rows_ms
    assert rows_ms[16] > 10 * rows_ms[1]
    assert not found.advice.worth_it


def test_a_term_that_is_off_is_named():
    """The draft takes longer once the advice is given."""
    target, draft = pair(noise=0.2)

    def slower(line):
        if line.startswith("decoding with"):
            draft.base = 20.0

    found = advise_models(target, draft, PROMPTS, num_tokens=12, max_drafts=4, tell=slower)
    assert "mostly the draft's ms: " in found.sentence


def test_nothing_to_measure_is_refused():
    with pytest.raises(InvalidInput, match="0 prompts"):
        advise_models(*pair(), [])
    with pytest.raises(InvalidInput, match="num_tokens 0"):
        advise_models(*pair(), PROMPTS, num_tokens=0)


def test_the_command_line_measures_models(run_cli, monkeypatch):
    fake_models.install(monkeypatch)
    asked = ("advise", "--target", "big", "--draft", "small", "--prompt", "a bc", "--prompt", "d")
    done = run_cli(*asked, "--tokens", "6", "--max-drafts", "3", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["source"] == ["big", "small"]
    assert [term["name"] for term in document["tried_out"]][:2] == [
        "tokens a second",
        "tokens a step",
    ]
    shown = run_cli(*asked, "--tokens", "6", "--max-drafts", "3")
    assert "Tried out: " in shown.stdout
    for wrong in (("--batch", "8"), ("--rows-ms", "1:20"), ("--target-ms", "3")):
        refused = run_cli(*asked, *wrong)
        assert refused.returncode == 2
        assert "--target and --draft go together" in refused.stderr
    alone = run_cli("advise", "--target", "big")
    assert alone.returncode == 2
