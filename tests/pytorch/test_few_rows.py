"""Linear layers with packed weights, against PyTorch's own."""

from __future__ import annotations

import pytest
import torch

from mdsd_opt.decoding.few_rows import PackedLinear, pack_linear_layers
from mdsd_opt.errors import InvalidInput


def model_of(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(3)
    shared = torch.nn.Linear(24, 24, bias=False)
    return torch.nn.Sequential(
        torch.nn.Linear(7, 24), shared, torch.nn.GELU(), torch.nn.Sequential(shared),
        torch.nn.LayerNorm(24), torch.nn.Linear(24, 5),
    ).to(dtype)  # fmt: skip


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("shape", [(1, 7), (2, 7), (3, 11, 7), (0, 7)])
def test_outputs_are_the_same_up_to_rounding(dtype, within, shape):
    model, rows = model_of(dtype), torch.randn(shape).to(dtype)
    weight = model[5].weight.detach()
    with torch.inference_mode():
        plain = model(rows)
        try:
            assert pack_linear_layers(model) == 3
        except InvalidInput as error:
            if dtype == torch.bfloat16 and "needs the cpu support" in str(error):
                pytest.skip("this CPU has no instructions for bfloat16")
            raise
        found = model(rows)
    assert found.shape == plain.shape
    assert found.dtype == dtype
    torch.testing.assert_close(found, plain, rtol=within, atol=within)
    assert model[1] is model[3][0]
    assert isinstance(model[5], PackedLinear)
    assert torch.equal(model[5].weight, weight)


def test_what_cannot_be_packed_is_named():
    with pytest.raises(InvalidInput, match="float16 on cpu: leave packing out"):
        pack_linear_layers(model_of(torch.float16))
    with pytest.raises(InvalidInput, match="on meta"):
        pack_linear_layers(torch.nn.Sequential(torch.nn.Linear(2, 2, device="meta")))


def test_a_pytorch_that_packs_otherwise_is_found_out(monkeypatch):
    monkeypatch.setattr(PackedLinear, "forward", lambda self, rows: rows @ torch.ones(7, 24))
    with pytest.raises(InvalidInput, match="give other numbers"):
        pack_linear_layers(model_of(torch.float32))

    def missing(self, rows):
        raise AttributeError("no such operation")

    monkeypatch.setattr(PackedLinear, "forward", missing)
    with pytest.raises(InvalidInput, match="does not pack weights here"):
        pack_linear_layers(model_of(torch.float32))
