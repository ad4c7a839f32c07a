"""The kernel decides as the reference does for the same coins, and fits a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.random_trees import random_batch, random_draws, without_replacement

from mdsd_opt.errors import InvalidInput
from mdsd_opt.serving import kernel_budget, reference
from mdsd_opt.serving.arguments import TreeArguments

triton_walk = pytest.importorskip("mdsd_opt.serving.triton_walk", reason="needs triton")


def decide(served: Any, module: ModuleType, **options: float) -> list[list[int]]:
    return served.call(
        lambda *args, **kw: module.walk(TreeArguments(*args, **kw).checked()), **options
    )


@pytest.mark.parametrize("seed", range(12))
def test_it_decides_as_the_reference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, 4)
    if seed % 2:
        monkeypatch.setattr(triton_walk, "BLOCK", 8)
    if seed % 3 == 0:
        batch = batch.shared()
    options = {} if seed % 4 else {"threshold_single": 0.4, "threshold_acc": 0.7}
    assert decide(batch, triton_walk, **options) == decide(batch, reference, **options)


@pytest.mark.parametrize("seed", range(8))
def test_it_tries_as_the_reference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    batch = without_replacement(random_draws(rng, num_drafts=1 + seed % 4), rng)
    if seed % 2:
        monkeypatch.setattr(triton_walk, "BLOCK", 8)
        batch = batch.shared()
    found = [decide(batch, module, num_drawn=3) for module in (triton_walk, reference)]
    assert found[0] == found[1]


def test_it_decides_on_large_vocabularies() -> None:
    rng = np.random.default_rng(0)
    size = 128_256
    batch = random_batch(rng, 3, vocab_size=size, num_nodes=4)
    p = rng.dirichlet(np.full(size, 0.01), size=(3, 4))
    q = np.where(batch.q > 0.0, p[:, ::-1] + 1e-9, 0.0)
    q /= np.maximum(q.sum(2, keepdims=True), 1e-300)
    batch = replace(batch, p=p, q=q, depth=4, last_coins=np.array([0.1, 0.9, 0.999]))
    assert decide(batch, triton_walk) == decide(batch, reference)


def test_coins_at_their_ends_never_give_a_token_that_has_no_probability() -> None:
    batch = random_batch(np.random.default_rng(3), 8, num_nodes=6, vocab_size=20)
    ends = np.float32([0.0, np.nextafter(np.float32(1), np.float32(0))])
    for end in ends:
        at = replace(batch, coins=np.full_like(batch.coins, end), last_coins=np.full(8, end))
        texts = decide(at, triton_walk)
        assert texts == decide(at, reference)
        for b, text in enumerate(texts):
            node = 0
            for token in text[:-1]:
                assert batch.p[b, node, token] > 0.0
                below = np.flatnonzero(parents(batch, b) == node)
                node = next(i for i in below if batch.tokens[b, i] == token)
            assert batch.p[b, node, text[-1]] > 0.0


def test_what_rounding_has_lost_is_no_token_without_probability() -> None:
    batch = random_batch(np.random.default_rng(0), 1, num_nodes=2, vocab_size=4)
    p = np.zeros_like(batch.p)
    p[:, :, 2] = 0.999  # less than the coin, and all of it a certain child's
    batch = replace(batch, p=p, q=np.zeros_like(p), tokens=np.array([[0, 2]]), depth=2)
    batch = replace(batch, coins=np.full((1, 2), 0.9995), last_coins=np.array([0.5]))
    assert decide(batch, reference) == decide(batch, triton_walk) == [[2]]


def parents(batch: Any, request: int) -> Any:
    from support.served_trees import children

    found = np.full(batch.tokens.shape[1], -1)
    for node in range(found.size):
        found[children(batch, request, node)] = node
    return found


def test_interpreted_kernels_have_no_budget() -> None:
    with pytest.raises(InvalidInput, match="unset TRITON_INTERPRET"):
        kernel_budget()


def test_kernels_fit_into_registers() -> None:
    code = "import json, dataclasses as d; from mdsd_opt.serving import kernel_budget\n"
    code += "print(json.dumps([d.asdict(use) for use in kernel_budget()]))"
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    uses = json.loads(done.stdout)
    assert {use["architecture"] for use in uses} == {*("sm_80", "sm_90", "sm_100", "gfx942")}
    assert {"walk", "walk of draws", "plan of draws"} <= {use["kernel"] for use in uses}
    for use in uses:
        assert use["registers"] <= 128, use
        assert use["stack"] == use["spills"] == 0, use
