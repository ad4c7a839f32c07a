"""Texts of PyTorch sessions: toy modules and their caches, generators that are seeded inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.reused_states import verifier
from support.torch_sessions import CORRECT, WRONG, chain, new_dynamic_cache

import mdsd_opt as mo
from mdsd_opt.auditing.laws import Toy
from mdsd_opt.auditing.texts.driven_law import driven_text
from mdsd_opt.auditing.texts.session import Session, Tables
from mdsd_opt.auditing.texts.torch_toys import TorchToy
from mdsd_opt.evidence import Options

TABLES = Tables(3, 4, 5)


def toy(heard: list[Any] | None = None) -> tuple[Toy, TorchToy]:
    of_numpy = Toy(TABLES.target, 3, (heard if heard is not None else []).append)
    return of_numpy, TorchToy(of_numpy)


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
@pytest.mark.parametrize("new_cache", [lambda: None, tuple, new_dynamic_cache])
def test_a_cache_gives_the_logits_of_the_whole_text(new_cache: Any, name: str) -> None:
    if new_cache is new_dynamic_cache:
        pytest.importorskip("transformers")
    of_numpy, module = toy()
    whole = module(torch.tensor([[0, 2, 1, 1]])).logits
    np.testing.assert_allclose(whole[0].numpy(), of_numpy([2, 1, 1]), rtol=1e-6)
    out = module(torch.tensor([[0, 2]]), **{name: new_cache()})
    more = module(torch.tensor([[1, 1]]), **{name: out[name]})
    assert torch.equal(torch.cat([out.logits, more.logits], dim=1), whole)
    cut = more[name]
    if isinstance(cut, tuple):
        cut = tuple((k[:, :, :2], v[:, :, :2]) for k, v in cut)
    else:
        assert cut.get_seq_length() == 4
        cut.crop(-2)
    assert torch.equal(module(torch.tensor([[1, 1]]), **{name: cut})[0], more.logits)
    out = module(torch.tensor([[0, 2]]), **{name: new_cache()})
    module(torch.tensor([[2]]), **{name: out[name]})  # a token that is refused
    stale = module(torch.tensor([[1, 1]]), **{name: out[name]})["logits"]
    in_place = not isinstance(out[name], tuple)
    assert torch.equal(stale, more.logits) is not in_place


def test_what_a_mask_hides_is_no_part_of_the_text() -> None:
    heard: list[Any] = []
    of_numpy, module = toy(heard)
    out = module(torch.tensor([[0, 2, 1, 0]]), attention_mask=torch.tensor([[1, 1, 0, 1]]))
    np.testing.assert_allclose(out.logits[0, 3].numpy(), of_numpy.row((2, 0)), rtol=1e-6)
    heard.clear()
    tree = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]).bool()
    rows = module(torch.tensor([[0, 2, 1, 0]]), attention_mask=tree[None, None]).logits[0]
    expected = [of_numpy.row(text) for text in ((), (2,), (1,), (1, 0))]
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-6)
    assert heard == [(), (2,), (1,), (1, 0)]
    added = torch.where(tree, 0.0, float("-inf"))
    again = module(torch.tensor([[0, 2, 1, 0]]), attention_mask=added[None, None]).logits[0]
    assert torch.equal(again, rows)


@pytest.mark.parametrize("name", CORRECT)
def test_what_is_right_is_not_accused(name: str) -> None:
    if "cache" in name:
        pytest.importorskip("transformers")
    report = mo.audit_text(
        CORRECT[name], 1, library="torch", method="sampling", num_texts=150, seconds=300
    )
    assert report.verdict_class == "no deviation", report.verdict
    assert not report.lossless  # 150 texts show little


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    if "cache" in name:
        pytest.importorskip("transformers")
    report = mo.audit_text(
        WRONG[name], 1, library="torch", method="sampling", num_texts=500, seconds=300
    )
    assert report.verdict_class == "lossy", report.verdict
    assert bool(report.causes) is (name == "a seed in every call")


@pytest.mark.parametrize("new_cache", [lambda: None, tuple])
def test_the_law_of_what_is_right_is_the_target_s(new_cache: Any) -> None:
    generate = chain(new_cache, gamma=1, tokens=2)
    options = Options(num_trials=1, driven_checks=20)
    found = driven_text(Session(generate, Tables(2, 2, 6), "torch"), options, True, 1e9, 0)
    assert not found.log.count
    assert found.distance < 1e-6


def verify_of(generator: Any) -> Any:
    kind = torch.float64
    return verifier(lambda _: torch.rand(2, generator=generator(), dtype=kind).tolist())


@pytest.mark.parametrize("method", ["sampling", "driven"])
def test_a_seed_in_every_call_is_found_and_named(method: str) -> None:
    """Served as if it were fresh, it would pass."""
    problem = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))
    seeded = verify_of(lambda: torch.Generator().manual_seed(5))
    report = mo.audit(seeded, problem, 0, 2_000, method=method)
    assert not report.clean
    assert "torch.Generator of seed 5 begins anew in every call" in report.verdict
    own = torch.Generator().manual_seed(5)
    moving = mo.audit(verify_of(lambda: own), problem, 0, 2_000, method=method)
    assert moving.clean, moving.verdict
    assert "begins anew" not in moving.verdict
