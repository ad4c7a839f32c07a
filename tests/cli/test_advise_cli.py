"""mdsd-opt advise: the decision on logits, as text, JSON, picture and page."""

from __future__ import annotations

import json

import numpy as np
import pytest


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((4, 5, 30))
    path = tmp_path_factory.mktemp("advise") / "own.npz"
    np.savez(path, target=target, draft=target + 0.7 * rng.standard_normal(target.shape))
    return path


def test_the_decision_comes_last(run_cli, logits):
    done = run_cli("advise", logits, "--max-drafts", "6")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Worth it if rows are free: ")
    dear = run_cli("advise", logits, "--max-drafts", "6", "--draft-ms", "30")
    assert dear.returncode == 0
    assert dear.stdout.splitlines()[-1].startswith("Not worth it: ")


def test_batches_have_a_crossover(run_cli, logits, tmp_path):
    asked = ("advise", logits, "--max-drafts", "6", "--rows-ms", "1:20,64:22,256:90")
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    done = run_cli(*asked, "--batch", "8", "--report", page, "--plot", picture, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["costs"]["batch_size"] == 8
    sizes = [point["batch_size"] for point in document["batches"]]
    assert document["crossover"] in sizes
    assert "plain decoding is faster" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = run_cli(*asked, "--batch", "256").stdout.splitlines()
    assert text[-2].startswith("Not worth it: ")
    assert text[-1] == f"from a batch of {document['crossover']} on, plain decoding is faster"


def test_a_picture_needs_no_costs_by_rows(run_cli, logits, tmp_path):
    done = run_cli("advise", logits, "--max-drafts", "3", "--plot", tmp_path / "bars.svg")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bars.svg").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--rows-ms", "1-20"), "--rows-ms is '1-20': give rows and milliseconds"),
        (("--max-drafts", "0"), "max_drafts is 0"),
        (("--draft-ms", "-1"), "draft_ms is -1"),
        (("--schemes", "nothing"), "unknown draft scheme"),
        (("--batch", "0"), "batch_size is 0"),
    ],
)
def test_bad_input_is_one_line(run_cli, logits, wrong, told):
    done = run_cli("advise", logits, *wrong)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
