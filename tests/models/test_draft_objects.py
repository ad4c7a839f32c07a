"""Drafts that read hidden states of real models: what they are told, and that the text stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.model_families import SIZE, model_of

from mdsd_opt.decoding import PromptLookup, ReadDraft, TreeModel, custom_generate, generate
from mdsd_opt.errors import InvalidInput

LAYERS = (0, 1, 2)
PROMPT = [5, 9, 3, 5, 9]


class Head:
    """A random linear head over the last state it was told, on every third token."""

    features = LAYERS
    token_ids = np.arange(0, SIZE, 3)

    def __init__(self) -> None:
        self.told: list[int] = []
        self.states = torch.empty(0)
        weights = torch.randn(
            len(self.token_ids), 32 * len(LAYERS), generator=torch.Generator().manual_seed(0)
        )
        self.head = weights

    def begin(self) -> None:
        self.told, self.states = [], torch.empty(0, self.head.shape[1])

    def read(self, tokens: Any, features: Any) -> None:
        self.told += tokens
        self.states = torch.cat([self.states, features.float().cpu()])

    def tree_logits(self, ids: Any, continuations: Any) -> Any:
        assert self.told == list(ids[:-1])
        logits = self.head @ self.states[-1]
        return torch.stack([logits.roll(sum(tokens)) for tokens in continuations])


@pytest.mark.parametrize("tree", ["2x2", "chain3", "3x1"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("static", [None, 30])
def test_the_draft_is_told_what_a_plain_pass_makes_of_the_text(
    family: str, tree: str, static: int | None
) -> None:
    """Accepted drafts' states are those of the text, wherever they stood in a tree."""
    loaded = model_of(family, 0)
    if static and family == "gemma2":
        pytest.skip("its layers have windows, which static caches of trees do not take")
    head = Head()
    found = generate(
        TreeModel(loaded, static_length=static), head, PROMPT, tree=tree, max_new_tokens=24,
        scheme="without_replacement", temperature=1.5, rng=3,
    )  # fmt: skip
    assert found.metrics.num_accepted > 0
    text = [*PROMPT, *found.tokens]
    assert head.told == text[: len(head.told)]
    assert len(head.told) > len(PROMPT) + 10
    with torch.inference_mode():
        states = loaded.model(torch.tensor([text]), output_hidden_states=True).hidden_states
    plain = torch.cat([states[layer][0] for layer in LAYERS], -1).float()
    assert torch.allclose(head.states, plain[: len(head.told)], atol=2e-4)


def test_the_next_prompt_is_told_from_its_beginning_although_the_model_knows_it() -> None:
    target, head = TreeModel(model_of("llama", 0)), Head()
    generate(target, head, PROMPT, tree="2x1", max_new_tokens=5, rng=0)
    first = head.states[: len(PROMPT)]
    generate(target, head, [*PROMPT, 8], tree="2x1", max_new_tokens=5, rng=0)
    assert head.told[: len(PROMPT) + 1] == [*PROMPT, 8]
    assert torch.allclose(head.states[: len(PROMPT)], first, atol=1e-5)


@pytest.mark.parametrize("draft", [Head(), PromptLookup(SIZE)])
@pytest.mark.parametrize("on_device", [False, True])
def test_generate_takes_them_and_greedy_text_stays(draft: Any, on_device: bool) -> None:
    model = model_of("llama", 0).model
    options: dict[str, Any] = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    plain = model.generate(torch.tensor([PROMPT]), **options)
    text = model.generate(
        torch.tensor([PROMPT]), custom_generate=custom_generate, draft_model=draft, tree="2x2",
        on_device=on_device, **options,
    )  # fmt: skip
    assert text.tolist() == plain.tolist()


def test_decisions_on_the_device_take_a_head() -> None:
    class OnDevice(Head):
        def tree_tensor(self, ids: Any, continuations: Any) -> Any:
            return self.tree_logits(ids, continuations)

    target, head = TreeModel(model_of("llama", 0)), OnDevice()
    found = generate(
        target, head, PROMPT, tree="2x2", max_new_tokens=60, on_device=True, temperature=1.5, rng=1
    )
    assert head.told == [*PROMPT, *found.tokens][: len(head.told)]
    assert found.metrics.num_accepted > 0


@pytest.mark.parametrize("layers", [(3,), (-1,), ("last",)])
def test_layers_that_are_not_there_are_named(layers: Any) -> None:
    class Odd(Head):
        features = layers

    with pytest.raises(InvalidInput, match="from 0, the embedding, to 2"):
        generate(TreeModel(model_of("llama", 0)), Odd(), PROMPT, max_new_tokens=2, rng=0)


def test_models_that_are_read_path_by_path_say_that_they_keep_no_states() -> None:
    with (
        pytest.warns(UserWarning, match="path by path"),
        pytest.raises(InvalidInput, match="hidden states are kept only"),
    ):
        generate(TreeModel(model_of("mamba", 0)), Head(), PROMPT, max_new_tokens=2, rng=0)


def test_what_is_captured_of_a_draft_is_what_it_says_while_decoding() -> None:
    """After every token of a text; the tokens that it does not have are impossible."""
    loaded, asked = model_of("llama", 0), {}

    class Watched(Head):
        def tree_logits(self, ids: Any, continuations: Any) -> Any:
            found = super().tree_logits(ids, continuations)
            asked[len(ids)] = found[continuations.index(())].numpy()
            return found

    output = generate(TreeModel(loaded), Watched(), PROMPT, tree="2x1", max_new_tokens=20, rng=0)
    text, said = [*PROMPT, *output.tokens], dict(asked)
    rows = list(range(len(text) - 1))
    found = ReadDraft(loaded, Head(), "heads:make").logits(text[:-1], rows)
    assert found.shape == (len(rows), SIZE)
    assert np.isneginf(np.delete(found, Head.token_ids, 1)).all()
    assert len(said) > 5
    for length, logits in said.items():
        np.testing.assert_allclose(found[length - 1, Head.token_ids], logits, atol=5e-4)
    assert (found[0, Head.token_ids] == 0.0).all()  # nothing has been read yet


def test_a_draft_that_reads_nothing_is_captured_and_one_that_does_not_fit_is_named() -> None:
    loaded = model_of("llama", 0)
    found = ReadDraft(loaded, PromptLookup(SIZE), "lookup").logits(PROMPT, [3, 4])
    assert found.argmax(1).tolist() == [9, 3]
    with pytest.raises(InvalidInput, match="must fit"):
        ReadDraft(loaded, PromptLookup(SIZE + 1), "lookup").logits(PROMPT, [3])
