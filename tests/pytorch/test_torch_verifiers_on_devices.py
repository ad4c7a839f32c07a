"""examples/torch_verifiers.py compiles, waits for nothing, and takes little memory."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch_verifiers
from support.device_waits import Waits
from torch.utils._python_dispatch import TorchDispatchMode

SCHEMES = {"with_replacement": True, "without_replacement": False}


class Memory(TorchDispatchMode):
    """Bytes of all storages that came out of operations, at most at one time."""

    def __init__(self, *inputs):
        super().__init__()
        self.live = self.peak = 0
        self.storages = {x.untyped_storage()._cdata for x in inputs}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        for x in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata not in self.storages:
                storage = x.untyped_storage()
                self.storages.add(storage._cdata)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        return found

    def _gone(self, storage, size):
        self.storages.discard(storage)
        self.live -= size


def given(num_rows, vocab_size, num_drafts, replacement):
    generator = torch.Generator().manual_seed(0)
    logits = 2.5 * torch.randn(num_rows, vocab_size, generator=generator)
    p = logits.softmax(1)
    q = (logits + torch.randn(num_rows, vocab_size, generator=generator)).softmax(1)
    drafts = torch.multinomial(q, num_drafts, replacement, generator=generator)
    return p, q, drafts, torch.rand(num_rows, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ["rrs", "optimal"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("vocab_size", [1, 9000])
def test_rules_are_one_graph(name, scheme, vocab_size):
    verify = getattr(torch_verifiers, name)
    torch._dynamo.reset()
    compiled = torch.compile(verify, fullgraph=True, backend="eager", dynamic=False)
    arrays = given(4, vocab_size, min(3, vocab_size), SCHEMES[scheme])
    found = compiled(*arrays, replacement=SCHEMES[scheme])
    for one, other in zip(found, verify(*arrays, replacement=SCHEMES[scheme]), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["rrs", "optimal"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("num_drafts", [1, 4])
def test_rules_wait_for_nothing(name, scheme, num_drafts):
    arrays = given(8, 5000, num_drafts, SCHEMES[scheme])
    with Waits() as waits:
        getattr(torch_verifiers, name)(*arrays, replacement=SCHEMES[scheme])
    assert not waits.found


def test_waits_are_counted():
    x = torch.ones(3)
    with Waits() as waits:
        x[x > 0.0]
        x.nonzero()
        bool((x > 0.0).any())
        torch.equal(x, x.clone())
    assert set(waits.found) == {"index", "nonzero", "is_nonzero", "equal"} or set(waits.found) == {
        "index", "nonzero", "_local_scalar_dense", "equal",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["rrs", "optimal"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("num_drafts", [4, 8])
def test_rules_take_at_most_four_arrays_beside_the_inputs(name, scheme, num_drafts):
    num_rows, vocab_size = 4, 131_072
    arrays = given(num_rows, vocab_size, num_drafts, SCHEMES[scheme])
    with Memory(*arrays) as memory:
        getattr(torch_verifiers, name)(*arrays, replacement=SCHEMES[scheme])
    assert memory.peak <= 4 * num_rows * vocab_size * 4


def test_memory_is_counted():
    x = torch.ones(1000)
    with Memory(x) as memory:
        y = x + 1.0
        z = y.view(10, 100)
        del y
        assert memory.live == 4000
        z.double()
        del z
        assert memory.live == 0
    assert memory.peak == 12_000
