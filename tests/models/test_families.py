"""Trees of drafts in every family of models: tiny random ones, in float32."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from support.model_families import FAMILIES, SIZE, model_of, text_of

from mdsd_opt.decoding import ContextEnds, TreeModel, generate
from mdsd_opt.decoding.loading import without_layers
from mdsd_opt.decoding.passes import READERS
from mdsd_opt.decoding.tree_pass import PathByPath, reader_class
from mdsd_opt.errors import InvalidInput

#: How a text shorter than the window is read, where not in one pass.
BY_PATHS = {"bloom", "mpt", "falcon with alibi", "mamba", "mamba2"}


def greedy(loaded, ids, count):
    """The model's own text, without a cache."""
    text = list(ids)
    for _ in range(count):
        with torch.inference_mode():
            logits = loaded.model(torch.tensor([text]), use_cache=False).logits[0, -1]
        text.append(int(logits.argmax()))
    return text[len(ids) :]


@pytest.mark.filterwarnings("ignore::mdsd_opt.decoding.tree_pass.PathByPath")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_greedy_text_is_the_models_own(family):
    target, draft = model_of(family, 0), model_of(family, 1)
    ids = text_of(20)
    output = generate(
        TreeModel(target), TreeModel(draft), ids, tree="2x2", temperature=0.0, max_new_tokens=20,
        rng=0, rule="level_sequential",
    )  # fmt: skip
    assert list(output.tokens) == greedy(target, ids, 20)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("tree", ["2x2", "planned8"])
def test_decisions_on_the_device_give_the_models_own_text(tree, scheme):
    target, draft = model_of("llama", 0), model_of("llama", 1)
    ids = text_of(20)
    output = generate(
        TreeModel(target), TreeModel(draft), ids, tree=tree, temperature=0.0, max_new_tokens=20,
        rng=0, scheme=scheme, on_device=True,
    )  # fmt: skip
    assert list(output.tokens) == greedy(target, ids, 20)
    output = generate(
        TreeModel(target), TreeModel(target), ids, tree=tree, max_new_tokens=20, top_k=30,
        rng=0, scheme=scheme, on_device=True,
    )  # fmt: skip
    assert output.metrics.first_token_acceptance_rate > 0.99  # p = q


def test_a_model_whose_batches_differ_is_refused():
    loaded = model_of("llama", 0)
    forward = loaded.model.forward

    def blurred(*args, **kwargs):
        output = forward(*args, **kwargs)
        if output.logits.shape[0] * output.logits.shape[1] > 14:  # more than a plain pass
            output.logits += 0.1 * torch.randn_like(output.logits)
        return output

    loaded.model.forward = blurred
    with pytest.raises(InvalidInput, match="cannot score drafts"):
        TreeModel(loaded).tree_logits(text_of(5), [(), (3,)])


def test_positions_that_are_ignored_do_not_pass_in_coarse_numbers():
    """Masks of ALiBi count every key, a draft's siblings too: bfloat16 is no cover for that."""
    for family in ("bloom", "falcon with alibi"):
        model = model_of(family, 0).model.to(torch.bfloat16)
        with pytest.warns(PathByPath, match="path by path"):
            assert reader_class(model, family, 5) is not READERS[0]
    for family in ("llama", "gpt2", "mixtral"):
        model = model_of(family, 0).model.to(torch.bfloat16)
        assert reader_class(model, family, 5) is READERS[0]


def test_vocabularies_are_padded_to_the_targets():
    target, draft = model_of("llama", 0), model_of("llama", 1, vocab_size=SIZE + 7)
    rows = TreeModel(draft, SIZE).tree_logits(text_of(5), [(), (3,)])
    wide = TreeModel(draft).tree_logits(text_of(5), [(), (3,)])
    np.testing.assert_array_equal(rows, wide[:, :SIZE])
    rows = TreeModel(target, SIZE + 7).tree_logits(text_of(5), [()])
    assert np.isneginf(rows[:, SIZE:]).all()
    assert np.isfinite(rows[:, :SIZE]).all()
    for one, other in ((target, draft), (draft, target)):
        output = generate(
            TreeModel(one), TreeModel(other, one.vocab_size), text_of(5), tree="2x2",
            max_new_tokens=12, rng=0,
        )  # fmt: skip
        assert len(output.tokens) == 12


@pytest.mark.parametrize("tree", ["2x4", "planned8", "dynamic8"])
def test_a_text_ends_with_the_context(tree):
    target, draft = (
        model_of("gpt2", seed, n_positions=length) for seed, length in ((0, 40), (1, 32))
    )
    with pytest.warns(ContextEnds, match="32 tokens"):
        output = generate(
            TreeModel(target), TreeModel(draft), text_of(5), tree=tree, temperature=0.0,
            max_new_tokens=60, rng=0,
        )  # fmt: skip
    # the last step's extra token may stand behind what the models read
    assert len(output.tokens) in (27, 28)
    assert list(output.tokens) == greedy(target, text_of(5), len(output.tokens))
    with pytest.raises(InvalidInput, match="shorten"):
        generate(TreeModel(target), TreeModel(draft), text_of(32), max_new_tokens=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_cannot_be_read_in_one_pass_is_said_once(family):
    loaded = model_of(family, 0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            TreeModel(loaded).tree_logits(text_of(5), [(), (3,)])
    assert len([w for w in said if w.category is PathByPath]) == (family in BY_PATHS)


@pytest.mark.filterwarnings("ignore::mdsd_opt.decoding.tree_pass.PathByPath")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_may_be_skipped(family):
    loaded, ids = model_of(family, 0), text_of(9)
    with torch.inference_mode():
        before = loaded.model(torch.tensor([ids]), use_cache=False).logits
        draft = without_layers(loaded, [0])
        by_hand = copy.deepcopy(loaded.model)
        count = loaded.model.config.num_hidden_layers
        place, layers = next(
            (name, part)
            for name, part in by_hand.named_modules()
            if isinstance(part, torch.nn.ModuleList) and len(part) == count
        )
        by_hand.set_submodule(place, torch.nn.ModuleList(list(layers)[1:]))
        by_hand.config.num_hidden_layers = count - 1
        if len(getattr(by_hand.config, "layer_types", None) or ()) == count:
            by_hand.config.layer_types = by_hand.config.layer_types[1:]
        expected = by_hand(torch.tensor([ids]), use_cache=False).logits
        found = draft.model(torch.tensor([ids]), use_cache=False).logits
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)
        assert not torch.equal(found, before)
        after = loaded.model(torch.tensor([ids]), use_cache=False).logits
        torch.testing.assert_close(after, before, rtol=0.0, atol=0.0)
    rows = TreeModel(draft).tree_logits(ids, [(), (3,)])
    np.testing.assert_allclose(rows[0], expected[0, -1], rtol=1e-3, atol=1e-4)
