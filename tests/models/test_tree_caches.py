"""What is read of a tree is read once: keys and values of drafts stay, and become the text's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from support.model_families import SIZE, model_of, text_of

from mdsd_opt.decoding import TreeModel, generate
from mdsd_opt.decoding.passes import StaticTreePass, TreePass
from mdsd_opt.decoding.tree_pass import PathByPath


@pytest.fixture(params=[TreePass, StaticTreePass])
def way(request):
    """With room for all that is read here."""
    return partial(request.param, room=40)


@pytest.fixture
def reader(way):
    """A way to read trees in one pass, and the tokens of each pass."""
    model = model_of("llama", 0).model
    return counted(way(model), model)


def counted(reader, model):
    lengths = []
    forward = model.forward

    def counting(ids, *args, **kwargs):
        lengths.append(ids.shape[1])
        return forward(ids, *args, **kwargs)

    def ask(ids, paths):
        model.forward = counting
        with torch.inference_mode():
            found = reader.logits(ids, paths)
            model.forward = forward
            plain = [model(torch.tensor([[*ids, *path]])).logits[0, -1] for path in paths]
        torch.testing.assert_close(found, torch.stack(plain), rtol=1e-4, atol=1e-5)
        taken = sum(lengths)
        lengths.clear()
        return taken

    return ask


def test_a_tree_that_grows_level_by_level_is_read_once(reader):
    ids = text_of(9)
    assert reader(ids, [()]) == 9
    assert reader(ids, [(3,), (5,), (7,)]) == 3
    assert reader(ids, [(5, 1), (5, 2), (3, 4)]) == 3
    assert reader(ids, [(), (5, 1), (7,)]) == 0
    assert reader(ids, [(5, 2, 2), (6, 6, 6)]) == 4


def test_accepted_drafts_become_the_texts(reader):
    ids = text_of(9)
    reader(ids, [(), (3,), (5,), (5, 1), (5, 2), (5, 2, 8), (3, 4)])
    ids += [5, 2, 8, 6]  # the last of them drawn by the rule
    assert reader(ids, [()]) == 1
    assert reader(ids, [(1,), (2,), (2, 1)]) == 3
    ids += [2, 1]  # nothing new
    assert reader(ids, [()]) == 0
    assert reader(ids, [(4,), (9,), (9, 9)]) == 3
    assert reader([*ids, 9, 7, 9], [(1,)]) == 3


def test_another_text_is_read_from_where_it_differs(reader):
    ids = text_of(9)
    reader(ids, [(), (3,), (3, 5)])
    assert reader([*ids[:6], (ids[6] + 1) % SIZE], [(3,)]) == 2
    assert reader(ids[:4], [()]) == 1
    assert reader(ids[:4], [(3,), (3, 5)]) == 2


def test_an_interrupted_pass_leaves_no_half_a_cache(way):
    ids = text_of(9)
    model = model_of("llama", 0).model
    tree = way(model)
    tree.logits(ids, [(3,)])
    forward = model.forward

    def interrupted(*args, **kwargs):
        forward(*args, **kwargs)
        raise KeyboardInterrupt

    model.forward = interrupted
    with pytest.raises(KeyboardInterrupt):
        tree.logits(ids, [(3, 5)])
    model.forward = forward
    assert counted(tree, model)(ids, [(3, 5)]) == 11


def test_a_cache_that_shows_no_keys_is_read_again(way):
    model = model_of("llama", 0).model
    tree = way(model)
    tree.move = lambda path: False
    ask = counted(tree, model)
    ids = text_of(9)
    assert ask(ids, [(), (3,), (5,), (5, 2)]) == 12
    assert ask([*ids, 5, 2, 1], [()]) == 3


def test_a_static_cache_that_is_outgrown_is_read_again():
    model = model_of("llama", 0).model
    tree = StaticTreePass(model, room=12)
    ask = counted(tree, model)
    ids = text_of(9)
    assert ask(ids, [(), (3,), (5,), (5, 2)]) == 12
    assert ask(ids, [(3,), (5, 2), (5, 4)]) == 9 + 4  # room for 26 from now on
    assert ask([*ids, 5, 4, 1], [()]) == 1
    assert ask([*ids, 5, 4, 1], [(2,), (2, 2)]) == 2
    layer = tree.cache.layers[0]
    assert layer.keys.shape[-2] == 26
    assert int(tree.cache.get_seq_length()) == 14


def test_a_static_cache_stays_where_it_is():
    """No tensor is made anew from step to step."""
    tree = StaticTreePass(model_of("llama", 0).model, room=60)
    ids, places = text_of(9), set()
    with torch.inference_mode():
        for token in range(8):
            tree.logits(ids, [(), (3,), (5,), (5, 2)])
            places.add(tree.cache.layers[1].values.data_ptr())
            ids = [*ids, 5, 2, token]
    assert len(places) == 1


def test_where_a_static_cache_cannot_be_another_is_taken():
    loaded, ids = model_of("mistral with a window", 0), text_of(9)
    model = TreeModel(loaded, static_length=30)
    with pytest.warns(PathByPath, match="with a static cache: they are scored as a tree in one"):
        found = model.tree_logits(ids, [(), (3,), (5,)])
    np.testing.assert_array_equal(found, TreeModel(loaded).tree_logits(ids, [(), (3,), (5,)]))


@pytest.mark.parametrize("length", [None, 60])
@pytest.mark.parametrize("tree", ["2x3", "chain4"])
def test_a_generation_reads_each_token_once(tree, length):
    """Target and draft are one model, at temperature 0: every step accepts a whole path."""
    target, draft = model_of("llama", 0), model_of("llama", 0)
    for loaded in (target, draft):  # the check at the start
        TreeModel(loaded, static_length=length).tree_logits(text_of(5), [()])
    lengths = {"target": [], "draft": []}
    for name, loaded in (("target", target), ("draft", draft)):

        def counting(ids, *args, name=name, forward=loaded.model.forward, **kwargs):
            lengths[name].append(ids.shape[1])
            return forward(ids, *args, **kwargs)

        loaded.model.forward = counting
    depth = {"2x3": 3, "chain4": 4}[tree]
    ids = text_of(20)
    output = generate(
        TreeModel(target, static_length=length), TreeModel(draft, static_length=length), ids,
        tree=tree, temperature=0.0, max_new_tokens=3 * (depth + 1), rng=0, rule="level_sequential",
    )  # fmt: skip
    assert output.metrics.num_steps == 3
    assert lengths["target"] == [20 + depth, 1 + depth, 1 + depth]
    inner = [1] * (depth - 1)
    # the last accepted draft was a leaf, which no draft was drawn after
    assert lengths["draft"] == [20, *inner, 2, *inner, 2, *inner]


def test_laws_are_as_without_what_is_kept(way):
    """Each call of one reader gives what a new one gives."""
    model = model_of("gpt2", 0).model
    rng = np.random.default_rng(0)
    kept, text = way(model), text_of(12)
    with torch.inference_mode():
        for _ in range(20):
            paths = [tuple(rng.integers(0, 4, rng.integers(0, 4)).tolist()) for _ in range(6)]
            fresh = TreePass(model).logits(text, paths)
            torch.testing.assert_close(kept.logits(text, paths), fresh, rtol=1e-4, atol=1e-5)
            text = [*text, *max(paths, key=len), int(rng.integers(0, 4))][-20:]
