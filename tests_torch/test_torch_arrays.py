"""PyTorch tensors as input."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import mdsd_opt as mo
from mdsd_opt.base.arrays import library_of, like, to_numpy


def test_bfloat16_shares_its_bits():
    tensor = torch.tensor([1.0, -2.5, 3.0], dtype=torch.bfloat16)
    array = to_numpy(tensor)
    assert array.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(array.astype(float), [1.0, -2.5, 3.0])
    assert library_of(like(tensor, np.ones(2))) == "torch"


def test_rates_of_tensors_are_tensors():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(2, 3, 50, generator=generator).to(torch.bfloat16)
    draft = torch.randn(2, 3, 50, generator=generator)
    rates = mo.acceptance_rates(target, draft, num_drafts=2)
    assert isinstance(rates, torch.Tensor)
    expected = mo.acceptance_rates(target.float().numpy(), draft.numpy(), num_drafts=2)
    np.testing.assert_allclose(rates.numpy(), expected, atol=1e-6)


def test_a_tensor_that_needs_gradients_is_read():
    logits = torch.zeros(4, requires_grad=True)
    np.testing.assert_allclose(mo.softmax(logits), np.full(4, 0.25))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_probabilities_are_taken_as_such_and_not_for_logits(dtype):
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p, q = torch.softmax(logits, -1).to(dtype)
    expected = mo.acceptance_rates(p.double().log(), q.double().log(), 2)
    torch.testing.assert_close(
        mo.acceptance_rates(p, q, 2, kind="probs"), expected, atol=1e-6, rtol=0
    )
    with pytest.raises(mo.errors.InvalidInput, match="'probs'"):
        mo.acceptance_rates(p, q, 2)
