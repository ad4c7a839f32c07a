"""mdsd-opt relax: tables, JSON and the picture."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.solvers.frontier import rules


def test_table_and_picture_mean_the_same_by_best(run_cli, logits, tmp_path):
    shown = run_cli("relax", logits, "--plot", tmp_path / "frontier.svg").stdout
    assert "6 of 6 positions" in shown
    picture = (tmp_path / "frontier.svg").read_text()
    rows = json.loads(run_cli("relax", logits, "--json").stdout)["rules"]
    for row in rows:
        accepted, best = f"{row['acceptance_rate']:.4f}", f"{row['best_acceptance_rate']:.4f}"
        assert f"{row['name']}: {accepted}, best {best}" in picture
        (line,) = [line for line in shown.splitlines() if row["name"] in line and "│" in line]
        assert best in line


def test_numbers_are_those_of_the_functions(run_cli, logits):
    done = run_cli("relax", logits, "-k", "1,3", "--scheme", "without_replacement", "--json")
    document = json.loads(done.stdout)
    assert document["positions"] == [0, 1, 2, 3, 4, 5]
    sample = np.load(logits)
    for k in (1, 3):
        line = [point for point in document["frontier"] if point["num_drafts"] == k]
        rates = mo.acceptance_rates(
            sample["target"], sample["draft"], num_drafts=k, drafts="without_replacement"
        )
        assert line[0]["slope"] == line[0]["kl"] == 0
        assert line[0]["acceptance_rate"] == pytest.approx(rates.mean(), abs=1e-12)
        for point in line:
            price = point["acceptance_rate"] - line[0]["acceptance_rate"]
            assert point["tv"] == pytest.approx(price, abs=1e-12)
    for rule in document["rules"]:
        found = [
            rules.NAMED_RULES[rule["name"]].outcome(mo.softmax(p), mo.softmax(q))
            for p, q in zip(sample["target"], sample["draft"], strict=True)
        ]
        assert rule["kl"] == pytest.approx(np.mean([x.distances.kl for x in found]))
        assert rule["acceptance_rate"] <= rule["best_acceptance_rate"] + 1e-12
        assert rule["least_kl"] <= rule["kl"] + 1e-12


def test_positions_are_spread_evenly(run_cli, logits):
    done = run_cli("relax", logits, "-k", "1", "--positions", "2", "--json")
    assert json.loads(done.stdout)["positions"] == [0, 5]


def test_infinite_distances_are_told(run_cli, logits):
    """Filters on each side: the draft's tokens are not all the target's."""
    arguments = ("relax", logits, "-k", "1", "--top-k", "3")
    assert "infinite" in run_cli(*arguments).stdout
    document = json.loads(run_cli(*arguments, "--json").stdout)
    assert None in [rule["kl"] for rule in document["rules"]]
