"""Rates and decisions as operators of PyTorch: they give what the functions give, and trace."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from support.random_trees import random_batch

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.errors import InvalidInput
from mdsd_opt.serving import register_operators, verify_tree

register_operators()
OPERATORS = torch.ops.mdsd_opt

TARGET, DRAFT = torch.randn(2, 2, 3, 20, generator=torch.Generator().manual_seed(0))
DRAFTS = DRAFT.topk(2).indices
UNIFORMS = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(1))


def tree_arguments() -> tuple[Any, ...]:
    found: list[Any] = []
    batch = random_batch(np.random.default_rng(2), num_nodes=4, vocab_size=6)
    real = batch.outputs

    def keep(*tensors: Any, **options: Any) -> None:
        found.extend(tensors)
        verify_tree(*copy.deepcopy(tensors[:3]), *tensors[3:])
        verify_tree(*tensors, **options)

    batch.call(keep)
    return (*real(), *found[3:])


class Step(torch.nn.Module):
    """A step of an engine: rates and decisions between other operations."""

    def forward(self, target: Any, draft: Any, drafts: Any, uniforms: Any) -> Any:
        rates = OPERATORS.acceptance_rates(target * 2, draft * 2, [1, 2], top_k=9)
        tokens, places = OPERATORS.verify_batch(target, draft, drafts, uniforms, temperature=0.7)
        return rates.mean(-1), tokens + 1, places


def expected_step() -> tuple[Any, ...]:
    rates = mo.acceptance_rates(TARGET * 2, DRAFT * 2, (1, 2), top_k=9)
    verdict = verify_batch(TARGET, DRAFT, DRAFTS, uniforms=UNIFORMS, temperature=0.7)
    return rates.mean(-1), verdict.tokens + 1, verdict.draft_index


def test_they_give_what_the_functions_give() -> None:
    for found, expected in zip(Step()(TARGET, DRAFT, DRAFTS, UNIFORMS), expected_step(),
                               strict=True):  # fmt: skip
        assert torch.equal(found, expected)
    tokens, _ = OPERATORS.verify_batch(TARGET, DRAFT, DRAFTS, seed=5, step=2)
    assert torch.equal(tokens, verify_batch(TARGET, DRAFT, DRAFTS, rng=5, step=2).tokens)
    given = tree_arguments()
    outputs = copy.deepcopy(given[:3])
    verify_tree(*outputs, *given[3:])
    OPERATORS.verify_tree(*given)
    assert all(map(torch.equal, outputs, given[:3]))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_traces_through(backend: str) -> None:
    step = torch.compile(Step(), backend=backend, fullgraph=True)
    for found, expected in zip(step(TARGET, DRAFT, DRAFTS, UNIFORMS), expected_step(), strict=True):
        assert torch.equal(found, expected)
    given = tree_arguments()
    outputs = copy.deepcopy(given[:3])

    @torch.compile(backend=backend, fullgraph=True)
    def decide(*tensors: Any) -> Any:
        OPERATORS.verify_tree(*tensors)
        return tensors[2] + 1

    assert torch.equal(decide(*outputs, *given[3:]), outputs[2] + 1)
    verify_tree(*given)
    assert all(map(torch.equal, outputs, given[:3]))


def test_export_traces_through_for_any_number_of_rows() -> None:
    rows = torch.export.Dim("rows", min=2)
    axes = [{0: rows}] * 4
    exported = torch.export.export(
        Step(), (TARGET, DRAFT, DRAFTS, UNIFORMS), dynamic_shapes=tuple(axes)
    )
    twice = [torch.cat([x, x]) for x in (TARGET, DRAFT, DRAFTS, UNIFORMS)]
    for found, expected in zip(exported.module()(*twice), expected_step(), strict=True):
        assert torch.equal(found, torch.cat([expected, expected]))


@pytest.mark.parametrize("name", ["acceptance_rates", "verify_batch", "verify_tree"])
def test_pytorch_finds_nothing_wrong(name: str) -> None:
    given = {
        "acceptance_rates": (TARGET, DRAFT[0], [1, 3]),
        "verify_batch": (TARGET, DRAFT, DRAFTS, UNIFORMS),
    }.get(name) or tree_arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.library.opcheck(getattr(OPERATORS, name).default, given)
    assert set(found.values()) == {"SUCCESS"}


def test_they_are_registered_once_and_refuse_what_the_functions_refuse() -> None:
    register_operators()
    with pytest.raises(InvalidInput, match="temperature"):
        OPERATORS.acceptance_rates(TARGET, DRAFT, [1], temperature=-1.0)
