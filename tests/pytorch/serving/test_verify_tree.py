"""Decisions about whole trees in tensors: those of target-only sampling, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.device_waits import Waits
from support.random_trees import random_batch, random_draws
from support.served_trees import Served
from support.target_only import target_only

from mdsd_opt.errors import InvalidInput, MissingExtra
from mdsd_opt.serving import reference, verification, verify_tree, verify_tree_of_draws


@pytest.mark.parametrize("seed", range(40))
def test_without_a_drawn_child_it_is_target_only_sampling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, certain=True)
    options = {}
    if seed % 2:
        options = {
            "threshold_single": rng.choice([0.3, 0.9]),
            "threshold_acc": rng.choice([0, 0.7]),
        }
    expected = [target_only(batch, b, *options.values()) for b in range(8)]
    assert batch.call(verify_tree, **options) == expected


@pytest.mark.parametrize("seed", range(40))
def test_rows_may_be_shared(seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed))
    assert batch.call(verify_tree) == batch.shared().call(verify_tree)


def test_a_root_alone_draws_from_p() -> None:
    batch = random_batch(np.random.default_rng(0), num_nodes=1, vocab_size=7)
    assert batch.call(verify_tree) == [target_only(batch, b) for b in range(8)]


def small() -> Served:
    return random_batch(np.random.default_rng(1), num_nodes=3, vocab_size=5)


def test_nothing_that_is_read_is_written() -> None:
    seen: list[Any] = []

    def watched(*tensors: Any, **options: Any) -> None:
        before = [tensor.clone() for tensor in tensors[3:]]
        verify_tree(*tensors, **options)
        seen.extend(map(torch.equal, before, tensors[3:]))

    small().call(watched)
    assert len(seen) == 8
    assert all(seen)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tokens": np.zeros((8, 0), np.int64)}, r"candidates have shape \[8, 0\]"),
        ({"tokens": np.zeros((8, 3), np.int32)}, "candidates is int32"),
        ({"first_child": np.zeros((8, 2), np.int64)}, "retrive_next_token is int64"),
        ({"q": np.zeros((8, 3, 4))}, r"draft_probs is float32 \[8, 3, 4\]"),
        ({"p": np.zeros((8, 3))}, "target_probs is"),
        ({"coins": np.zeros((8, 2))}, "uniform_samples is"),
        ({"rows": np.zeros((8, 3), np.int64)}, r"draft_probs is float32 \[8, 3, 5\]"),
    ],
)
def test_wrong_shapes_are_told(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        replace(small(), **change).call(verify_tree)


@pytest.mark.parametrize("batch", [random_batch, random_draws])
@pytest.mark.parametrize("shared", [False, True])
def test_nothing_waits_for_a_device(batch: Any, shared: bool) -> None:
    drafted = batch(np.random.default_rng(4), 4)
    operation = verify_tree if drafted.levels is None else verify_tree_of_draws

    def watched(*tensors: Any, **options: Any) -> None:
        with Waits() as waits:
            operation(*tensors, **options)
        assert not waits.found

    (drafted.shared() if shared else drafted).call(watched)


def test_kernels_are_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    device = torch.device("cuda")
    assert verification._on(torch.device("cpu"), reference, "triton_walk") is reference
    assert verification._on(device, reference, "triton_walk").walk_trees
    monkeypatch.delitem(sys.modules, "mdsd_opt.serving.triton_walk")
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingExtra, match="needs triton"):
        verification._on(device, reference, "triton_walk")


def test_some_child_may_be_drawn() -> None:
    with pytest.raises(InvalidInput, match="num_drawn is 0"):
        small().call(verify_tree, num_drawn=0)


def test_thresholds_lie_between_0_and_1() -> None:
    with pytest.raises(InvalidInput, match="threshold_acc is 2"):
        small().call(verify_tree, threshold_acc=2)
