"""PyTorch tensors as input."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch

import mdsd_opt as mo
from mdsd_opt.base.arrays import library_of, like, to_numpy
from mdsd_opt.base.files.logits import load_logits


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


GENERATOR = torch.Generator().manual_seed(1)
LOGITS = tuple(torch.randn(2, 6, 20, generator=GENERATOR) for _ in range(2))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_8_bit_floats_are_read_as_they_are(name):
    small = [side.to(getattr(torch, name)) for side in LOGITS]
    expected = mo.acceptance_rates(*(side.float() for side in small), 2)
    torch.testing.assert_close(mo.acceptance_rates(*small, 2), expected, atol=0, rtol=0)
    np.testing.assert_array_equal(to_numpy(small[0]), small[0].float().numpy())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.to_sparse(), r"of layout torch.sparse_coo.*to_dense"),
        (lambda x: x.reshape(12, 20).to_sparse_csr(), "of layout torch.sparse_csr.*to_dense"),
        (lambda x: x.to("meta"), "on the device meta"),
        (lambda x: x.to(torch.complex64), r"complex64: give real"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "dequantize"),
        (lambda x: torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged), "nested"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # such tensors are in beta, or on their way out
def test_tensors_without_numbers_to_read(change, words):
    with pytest.raises(mo.errors.InvalidInput, match=f"target_logits is a tensor .*{words}"):
        mo.acceptance_rates(change(LOGITS[0]), LOGITS[1], 2)
    for door in (
        mo.softmax, mo.TransportProblem.from_logits, partial(mo.relaxed_rates, kl=0.1), mo.advise,
        mo.compare_draft_schemes, lambda x, *_: mo.WithReplacement(x, 2),
    ):  # fmt: skip
        with pytest.raises(mo.errors.InvalidInput, match=words):
            door(change(LOGITS[0]), *([] if door is mo.softmax else [LOGITS[1], 2]))


def test_inside_vmap():
    with pytest.raises(mo.errors.InvalidInput, match=r"inside torch\.func"):
        torch.func.vmap(lambda p, q: mo.acceptance_rates(p, q, 1))(*LOGITS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("batch", [1, 2])
def test_steps_as_models_generate_them(batch, dtype):
    """`output_logits`: a tuple of tensors [B, V], one for each step, are B texts."""
    texts = [side[:batch].to(dtype) for side in LOGITS]
    steps = [tuple(side[:, step] for step in range(6)) for side in texts]
    expected = mo.acceptance_rates(*texts, 2)
    for given in (steps, [list(side) for side in steps]):
        torch.testing.assert_close(mo.acceptance_rates(*given, 2), expected, atol=1e-6, rtol=0)
    told = ("no intervals, which take several texts", "95% intervals over 2 texts")[batch - 1]
    assert told in mo.advise(*steps).notes


def test_a_list_of_rows_is_a_text():
    rows = [list(side[0].bfloat16()) for side in LOGITS]
    expected = mo.acceptance_rates(*(side[0].bfloat16() for side in LOGITS), 2)
    torch.testing.assert_close(mo.acceptance_rates(*rows, 2), expected, atol=1e-6, rtol=0)
    with pytest.raises(mo.errors.InvalidInput, match="target_logits is not an array of numbers"):
        mo.acceptance_rates([rows[0][0], rows[0][1][:5]], rows[1], 2)


def test_steps_in_a_file(tmp_path):
    path = tmp_path / "steps.pt"
    steps = {
        name: tuple(side[:, step] for step in range(6))
        for name, side in zip(("target", "draft"), LOGITS, strict=True)
    }
    torch.save(steps, path)
    np.testing.assert_array_equal(load_logits(path).target, LOGITS[0].numpy())


def test_bits_of_tensors_are_no_logits():
    for dtype, bits in ((torch.bfloat16, torch.uint16), (torch.float8_e4m3fn, torch.uint8)):
        with pytest.raises(mo.errors.InvalidInput, match=r"target_logits .* the bits of floats"):
            mo.acceptance_rates(*(side.to(dtype).view(bits) for side in LOGITS), 2)


def test_every_row_of_tensors_is_looked_at():
    p, q = (torch.softmax(side, -1) for side in LOGITS)
    p[1, 5, 0] += 0.01
    with pytest.raises(mo.errors.InvalidDistribution, match=r"row 1, 5.* to 1\.01"):
        mo.acceptance_rates(p, q, 2, kind="probs")
    with pytest.raises(mo.errors.InvalidDistribution, match=r"row 1, 5"):
        mo.acceptance_rates(p.log(), q.log(), 2, kind="logprobs")


def test_files_of_tensors_in_both_forms(tmp_path):
    target_logits, draft_logits = np.random.default_rng(4).normal(size=(2, 2, 3, 7)).astype("f4")
    target = torch.from_numpy(target_logits).to(torch.bfloat16)
    draft = torch.from_numpy(draft_logits)
    path = tmp_path / "both.pt"
    sequence = torch.arange(6).reshape(2, 3)
    torch.save({"target": target, "draft": draft, "sequence": sequence}, path)
    sample = load_logits(path)
    assert sample.target.dtype.name == "bfloat16"
    np.testing.assert_array_equal(sample.draft, draft_logits)
    assert sample.texts is not None
    assert sample.texts.tolist() == [*range(6)]
    pair = [tmp_path / "target.pt", tmp_path / "draft.pt"]
    for side, file in zip((target, draft), pair, strict=True):
        torch.save(side, file)
    np.testing.assert_array_equal(load_logits(pair).target, sample.target)


def test_broken_files_of_tensors(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"target": torch.zeros(4, 300), "draft": torch.zeros(4, 300)}, path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(mo.errors.UnreadableFile, match="truncated"):
        load_logits(path)
    torch.save({"target": print, "draft": 3}, path)  # a pickle that names a function
    with pytest.raises(mo.errors.UnreadableFile, match=r"no file of tensors alone .*load failed$"):
        load_logits(path)
    torch.save({"target": 3}, path)
    with pytest.raises(mo.errors.UnreadableFile, match="int where a tensor should be"):
        load_logits(path)
    torch.save(torch.zeros(2, 3), path)
    with pytest.raises(mo.errors.UnreadableFile, match="holds a Tensor"):
        load_logits(path)
    with pytest.raises(mo.errors.UnreadableFile, match="does not exist"):
        load_logits(tmp_path / "none.pt")


def rows():
    """Logits of both sides, and a mask."""
    rng = np.random.default_rng(0)
    mask = rng.random((4, 9)) < 0.5
    mask[:, 0] = True
    return *rng.standard_normal((2, 4, 9)), mask


def test_masks_of_tensors():
    p, q, mask = rows()
    expected = mo.acceptance_rates(p, q, 2, mask=mask)
    tensors = [torch.from_numpy(side) for side in (p, q)]
    for given_mask in (mask, torch.from_numpy(mask)):
        found = mo.acceptance_rates(*tensors, 2, mask=given_mask)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found.numpy(), expected)
    assert torch.isfinite(tensors[0]).all()  # what was given is left as it is


def test_a_lift_of_tensors():
    p, q, mask = rows()
    weights = np.random.default_rng(1).random(9)
    expected = mo.acceptance_rates(p, q, 2, lift=weights, mask=mask)
    tensors = [torch.from_numpy(side) for side in (p, q)]
    found = mo.acceptance_rates(*tensors, 2, lift=torch.from_numpy(weights), mask=mask)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), expected)
