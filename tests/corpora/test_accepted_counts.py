"""Counts of accepted tokens: the rate behind them, and how sure it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import engine_logs as logs

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput


def counts(rate: float, depth: int, num_steps: int, seed: int) -> np.ndarray:
    """Leading runs of accepted places."""
    accepted = np.random.default_rng(seed).random((num_steps, depth)) < rate
    return np.cumprod(accepted, axis=1).sum(axis=1)


def test_what_is_drafted_beyond_the_first_rejection_does_not_count() -> None:
    found = mo.accepted_rates([3, 0, 5, 1, 5, 2], 1, depth=5)[0]
    assert (found.num_steps, found.num_tries) == (6, 4 + 1 + 5 + 2 + 5 + 3)
    assert found.acceptance.mean == 16 / 20


@pytest.mark.parametrize("depth", [1, 4])
def test_intervals_hold_the_rate_as_often_as_they_say(depth: int) -> None:
    """At 95%, 200 intervals miss more than 20 times with a chance below 0.002."""
    missed = 0
    for seed in range(200):
        interval = mo.accepted_rates(counts(0.8, depth, 60, seed), 2, depth)[0].acceptance
        missed += not interval.low <= 0.8 <= interval.high
    assert missed <= 20


def test_texts_that_differ_widen_the_interval() -> None:
    accepted = np.repeat([1, 0, 1, 0, 1, 0], 50)
    alone = mo.accepted_rates(accepted, 2)[0].acceptance
    by_text = mo.accepted_rates(accepted, 2, sequence=np.arange(300) // 50)[0].acceptance
    assert by_text.num_groups == 6
    assert by_text.half_width > 3 * alone.half_width


def test_no_interval_of_width_zero() -> None:
    interval = mo.accepted_rates(np.ones(20, int), 3)[0].acceptance
    assert interval.mean == interval.high == 1.0
    assert interval.low == pytest.approx(0.025 ** (1 / 20))


def test_each_k_has_its_rate() -> None:
    found = mo.accepted_rates([1, 0, 1, 1], [4, 2, 2, 4])
    assert [(x.num_drafts, x.acceptance.mean) for x in found] == [(2, 0.5), (4, 1.0)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.zeros((0,), int), 2), "one number for each step"),
        (([0.5], 2), "integers"),
        (([2], 2), "depth 1"),
        (([-1], 2), "at least 0"),
        (([1], 0), "at least 1"),
        (([1, 0], [1, 2, 3]), "num_drafts has shape"),
        (([1, 0], 2, 1, [0]), "sequence"),
    ],
)
def test_bad_counts(arguments: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        mo.accepted_rates(*arguments)


def logits(folder: Path) -> Path:
    path = folder / "mine.npz"
    rng = np.random.default_rng(0)
    np.savez(path, target=rng.normal(size=(4, 5, 9)), draft=rng.normal(size=(4, 5, 9)))
    return path


def test_files(run_cli: Any, tmp_path: Path) -> None:
    accepted = counts(0.7, 3, 40, 1)
    lines = tmp_path / "x.jsonl"
    lines.write_text("\n".join(
        json.dumps({"accepted": int(a), "num_drafts": 2, "depth": 3, "sequence": n // 4, "x": 1})
        for n, a in enumerate(accepted)
    ))  # fmt: skip
    np.savez(tmp_path / "x.npz", accepted=accepted, num_drafts=2, depth=3,
             sequence=np.arange(40) // 4)  # fmt: skip
    expected = mo.accepted_rates(accepted, 2, 3, np.arange(40) // 4)[0]
    for name in ("x.jsonl", "x.npz"):
        shown = run_cli.shown("rates", "--accepted", tmp_path / name, "--json")
        assert json.loads(shown)["accepted"] == [expected.to_dict()]
        assert json.loads(shown)["optimal"] == []
    np.save(tmp_path / "x.npy", accepted > 0)
    shown = run_cli.shown("rates", "--accepted", tmp_path / "x.npy", "-k", "2", "--csv")
    assert f"2,{(accepted > 0).mean()}," in shown


def test_beside_the_optimum(run_cli: Any, tmp_path: Path) -> None:
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"accepted": 1, "num_drafts": 3}\n\n{"accepted": 0, "num_drafts": 3}\n')
    source = logits(tmp_path)
    done = run_cli("rates", "--accepted", lines, source, "--json", "--schemes", "greedy")
    (row,) = json.loads(done.stdout)["optimal"]
    with np.load(source) as arrays:
        expected = mo.acceptance_rates(arrays["target"], arrays["draft"], 3, "greedy").mean()
    assert row["mean"] == pytest.approx(expected)
    shown = run_cli.shown("rates", "--accepted", lines, source)
    assert "0.5000 [0.0" in shown
    assert "optimum" in shown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "line 1"),
        ('{"num_drafts": 2}', "no 'accepted'"),
        ('{"accepted": 1.5, "num_drafts": 2}', "integers"),
        ('{"accepted": 1, "num_drafts": 2}\n{"accepted": 1}', "line 2"),
        ('{"accepted": 1}', "--num-drafts"),
        ('{"accepted": 3, "num_drafts": 2}', "depth"),
    ],
)
def test_broken_files(content: str, said: str, run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    assert said in run_cli.refusal("rates", "--accepted", path)


def test_rates_of_a_log_are_those_of_its_steps(run_cli: Any, tmp_path: Path) -> None:
    """Whatever engine counted by position; intervals of lines are said to be at least so wide."""
    run = logs.a_run()
    steps = np.concatenate(run.requests)
    texts = np.repeat(np.arange(24), [len(x) for x in run.requests])
    (right,) = mo.accepted_rates(steps, 1, run.depth, texts)
    for text, by_request in ((logs.vllm_answers(run), True), (logs.vllm_log(run), False)):
        path = tmp_path / "run.log"
        path.write_text(text)
        (row,) = json.loads(run_cli("rates", "--accepted", path, "--json").stdout)["accepted"]
        assert row["mean"] == pytest.approx(right.acceptance.mean, rel=2e-3)
        assert row["num_tries"] == pytest.approx(right.num_tries, abs=2)
        if by_request:
            assert row["low"] == pytest.approx(right.acceptance.low)
        table = run_cli("rates", "--accepted", path).stdout
        assert ("95% intervals over texts" if by_request else "at least so wide") in table
    path.write_text(logs.sglang_log(run))
    done = run_cli("rates", "--accepted", path)
    assert (done.returncode, "does not tell at how many places" in done.stderr) == (2, True)
