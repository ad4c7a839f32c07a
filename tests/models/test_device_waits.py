"""How often a step of decoding on a device waits for it, counted on the CPU as if it were one."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from support.device_waits import Waits
from support.model_families import model_of, text_of
from torch.overrides import TorchFunctionMode

from mdsd_opt.decoding import (
    DEVICE_RULES,
    DynamicTree,
    TreeModel,
    custom_generate,
    generate,
    generate_steps,
    step_laws,
)
from mdsd_opt.trees import device_laws as transfers
from mdsd_opt.trees import initial_rates

#: What asks for numbers of tensors, in Python.
ASKING = {"cpu", "tolist", "numpy", "__array__", "__contains__"}


class Asked(TorchFunctionMode):
    """Counts what asks for the numbers of a tensor."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in ASKING or (name == "to" and args[1:2] == ("cpu",)):
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def waits(steps):
    """Of the second step, as the first one checks the models."""
    next(steps)
    with Waits() as waits, Asked() as asked:
        next(steps)
    return waits.found + asked.found


@pytest.fixture
def as_a_device(monkeypatch):
    """The CPU is treated as an accelerator."""
    for module in (transfers, step_laws):
        monkeypatch.setattr(module, "is_host", lambda device: False)


def steps_of(**options):
    target, draft = model_of("llama", 0), model_of("llama", 1)
    return generate_steps(
        TreeModel(target), TreeModel(draft), text_of(8), max_new_tokens=60, rng=3,
        **{"tree": "3x3", "on_device": True} | options,
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("rule", DEVICE_RULES)
def test_a_step_waits_twice(as_a_device, scheme, rule):
    """For the sums of the whole tree, and for the token behind the drafts, each then an array."""
    filters = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01}
    assert waits(steps_of(scheme=scheme, rule=rule, **filters)) == {"cpu": 2, "numpy": 2}


@pytest.mark.parametrize("tree", ["dynamic8", "dynamic24", "planned8", "sparse9", "chain4"])
def test_so_it_does_whatever_the_tree(as_a_device, tree):
    assert waits(steps_of(tree=tree)) == {"cpu": 2, "numpy": 2}


def test_that_is_the_default_where_all_of_it_can_be_done(as_a_device):
    assert waits(steps_of(on_device=None)) == {"cpu": 2, "numpy": 2}
    on_host = (
        {"on_device": False},
        {"on_device": None, "rule": "traversal"},
        {"on_device": None, "scheme": "top_k"},
        {"on_device": None, "relax": {"kl": 0.01}},
    )
    for options in on_host:
        assert waits(steps_of(**options)) != {"cpu": 2, "numpy": 2}


def test_models_on_the_host_are_decided_for_there():
    texts = [
        generate(
            TreeModel(model_of("llama", 0)), TreeModel(model_of("llama", 1)), text_of(8),
            max_new_tokens=12, rng=3, tree="3x2", **options,
        ).tokens
        for options in ({}, {"on_device": False})
    ]  # fmt: skip
    assert texts[0] == texts[1]


def test_rates_that_ask_for_draft_laws_wait_for_each(as_a_device):
    """They are given probabilities, as on the host."""
    asked = []

    def rates(law):
        asked.append(law)
        return initial_rates(2)

    tree = DynamicTree(6, 2, rates=rates)
    found = waits(steps_of(tree=tree))
    assert all(isinstance(law, np.ndarray) for law in asked)
    np.testing.assert_allclose([law.sum() for law in asked], 1.0)
    drawn_from = [law for law in asked if law.size > 3]  # the others only value places
    assert found["cpu"] == 2 + len(drawn_from) // 2


def test_stopping_criteria_of_generate_wait_once_for_each_token(as_a_device):
    model = model_of("llama", 0).model
    found, counted, asked = [], Waits(), Asked()

    def step(tokens, metrics):
        found.append((len(tokens), counted.found + asked.found))
        counted.found.clear()
        asked.found.clear()

    with counted, asked:
        model.generate(
            torch.tensor([text_of(8)]), do_sample=True, max_new_tokens=20, eos_token_id=None,
            custom_generate=custom_generate, draft_model=model, tree="3x3", on_device=True,
            repetition_penalty=1.2, on_step=step,
        )  # fmt: skip
    assert len(found) > 2
    for (before, _), (_, waited) in pairwise(found[1:]):
        assert waited == {"cpu": 2, "numpy": 2, "_local_scalar_dense": before}


def test_more_waits_are_counted(as_a_device, monkeypatch):
    integer = torch.Tensor.__int__
    steps = steps_of()
    next(steps)
    with Waits() as counted, Asked() as asked:
        x = torch.ones(3)
        integer(x[0])
        x.tolist()
        x[x > 0]
        x.nonzero()
        torch.repeat_interleave(torch.tensor([1, 2]))
        bool(x[0] > 0)
        x.unique()
    assert counted.found["_local_scalar_dense"] == 2
    assert {"index", "nonzero", "repeat_interleave"} <= set(counted.found)
    assert asked.found["tolist"] == 1
    monkeypatch.undo()  # a host draws node by node
    assert waits(steps_of())["cpu"] > 5


@pytest.mark.parametrize(
    ("scheme", "rule"),
    [("with_replacement", "traversal_hull"), ("without_replacement", "level_sequential"),
     ("with_replacement", "optimal")],
)  # fmt: skip
def test_promised_tokens_are_those_that_a_host_sees(as_a_device, scheme, rule):
    """A cold text is the target's own, and with p = q all drafts but the coarsest are accepted."""
    target, draft = model_of("llama", 0), model_of("llama", 1)
    ids = text_of(12)
    options = {"tree": "planned8", "scheme": scheme, "rule": rule, "rng": 0, "on_device": True}
    found = generate(
        TreeModel(target), TreeModel(draft), ids, temperature=0.0, max_new_tokens=16, **options
    )
    text = list(ids)
    with torch.inference_mode():
        for _ in range(16):
            text.append(int(target.model(torch.tensor([text])).logits[0, -1].argmax()))
    assert list(found.tokens) == text[len(ids) :]
    found = generate(TreeModel(target), TreeModel(target), ids, max_new_tokens=24, **options)
    assert found.metrics.first_token_acceptance_rate > 0.99


@pytest.mark.parametrize("tree", ["3x2", "dynamic8"])
def test_promised_trees_are_drawn_trees(as_a_device, monkeypatch, tree):
    """Same random numbers, same draws: without replacement none coincide, and the text is one."""
    texts = []
    for _ in range(2):
        steps = steps_of(scheme="without_replacement", tree=tree)
        texts.append([tokens for tokens, _ in islice(steps, 6)])
        monkeypatch.undo()
    assert texts[0] == texts[1]
    assert np.concatenate(texts[0]).size > 6
