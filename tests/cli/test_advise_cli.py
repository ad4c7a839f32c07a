"""mdsd-opt advise: the decision on logits, as text, JSON, picture and page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import engine_logs as logs

import mdsd_opt as mo
from mdsd_opt.planning.costs import MeasuredCosts, Pass


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((4, 5, 30))
    path = tmp_path_factory.mktemp("advise") / "own.npz"
    np.savez(path, target=target, draft=target + 0.7 * rng.standard_normal(target.shape))
    return path


def test_the_decision_comes_first(run_cli, logits):
    shown = run_cli.shown("advise", logits, "--max-drafts", "6")
    lines = shown.splitlines()
    assert lines[0].startswith("Worth it if rows are free: ")
    assert sum("│" in line for line in lines) == 5
    (more,) = [line for line in lines if "more: --all" in line]
    all_of_them = run_cli("advise", logits, "--max-drafts", "6", "--all").stdout
    assert sum("│" in line for line in all_of_them.splitlines()) == 5 + int(more.split()[0])
    shown = run_cli.shown("advise", logits, "--max-drafts", "6", "--draft-ms", "30")
    assert shown.splitlines()[0].startswith("Not worth it: ")


def test_batches_have_a_crossover(run_cli, logits, tmp_path):
    asked = ("advise", logits, "--max-drafts", "6", "--rows-ms", "1:20,64:22,256:90")
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    document = run_cli.document(*asked, "--batch", "8", "--out", page, "--plot", picture)
    assert document["costs"]["batch_size"] == 8
    sizes = [point["batch_size"] for point in document["batches"]]
    assert document["crossover"] in sizes
    assert "plain decoding is faster" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = run_cli(*asked, "--batch", "256").stdout.splitlines()
    assert text[0].startswith("Not worth it: ")
    assert text[1] == f"From a batch of {document['crossover']} on, plain decoding is faster."


# --- by counts of an engine ---


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "vllm.log"
    path.write_text(logs.vllm_log(logs.a_run()))
    return path


COSTS = ("--target-ms", "20", "--draft-ms", "2", "--rows-ms", "1:20,17:24")


def test_a_log_gives_advice_in_one_command(run_cli, log, tmp_path):
    picture, page = tmp_path / "chains.png", tmp_path / "page.html"
    asked = ("advise", log, *COSTS, "--speedup", "2")
    shown = run_cli.shown(*asked, "--plot", picture, "--out", page)
    lines = shown.splitlines()
    assert any("--speculative-config '{" in line for line in lines)
    assert any(line.startswith("Worth it: chain") for line in lines)
    assert any(line.startswith("A speed-up of 2 takes an acceptance of 0.") for line in lines)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Worth it: chain" in page.read_text()
    document = json.loads(run_cli(*asked, "--json").stdout)
    assert document["counts"]["depth"] == 3
    assert document["best"]["depth"] == document["depth"]
    assert json.loads(document["flags"]["vLLM"].split("'")[1]) == {
        "num_speculative_tokens": document["depth"]
    }


def test_command_and_python_say_the_same(run_cli, log):
    told = json.loads(run_cli("advise", log, *COSTS, "--json").stdout)
    found = mo.advise_from_counts(log, target_ms=20.0, draft_ms=2.0, rows_ms={1: 20.0, 17: 24.0})
    assert told == {"source": str(log), **json.loads(json.dumps(found.to_dict()))}


def test_the_older_word_for_a_log_is_the_log(run_cli, log):
    told = run_cli("advise", "log", log, "--json").stdout
    for words in (("--accepted", log), (f"--accepted={log}",), ("--depth", "3", "--accepted", log)):
        assert run_cli("advise", *words, "--json").stdout == told


@pytest.mark.parametrize(
    ("numbers", "steps", "accepted"),
    [
        (("1093/1717", "--depth", "5"), 1717 / 5, 1093),
        (("720,500,340/1000",), 1000, 1560),
        ((".72, .5,.34",), 1, 1.56),
        (("2.56", "--depth", "3"), 1, 1.56),
    ],
)
def test_numbers_in_place_of_a_file(run_cli, numbers, steps, accepted):
    document = run_cli.document("advise", *numbers)
    assert document["counts"]["steps"] == pytest.approx(steps)
    assert document["counts"]["accepted"] == pytest.approx(accepted)
    assert document["worth_it"] is None
    assert document["sentence"].startswith("Nothing is known of costs: ")


def test_costs_of_a_file(run_cli, log, tmp_path):
    path = tmp_path / "costs.json"
    target = tuple(Pass(b, r, 64, 20 + 0.1 * b * r) for b in (1, 32) for r in (1, 4))
    MeasuredCosts(target, (Pass(1, 1, 64, 2.0), Pass(32, 1, 64, 3.0)), {}).save(path)
    asked = ("advise", log, "--costs", path, "--batch", "32", "--json")
    document = json.loads(run_cli(*asked).stdout)
    assert document["costs"]["draft_ms"] == {"1": 2.0, "32": 3.0}
    assert document["worth_it"] is True
