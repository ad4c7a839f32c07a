"""What the package answered when its goldens were recorded, it answers still."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from support import goldens
from support.golden_cases import KINDS

RECORDED = {kind: found for kind in KINDS if (found := goldens.load(kind))}


@cache
def cases(kind: str) -> dict[str, Any]:
    return dict(KINDS[kind]())


@pytest.mark.parametrize("kind", RECORDED)
def test_no_case_is_recorded_that_is_none(kind: str) -> None:
    assert RECORDED[kind].keys() <= cases(kind).keys()


@pytest.mark.exhaustive  # they are for before and after a change that is to change nothing
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in RECORDED for name in sorted(RECORDED[kind])]
)
def test_the_facts_are_as_recorded(kind: str, name: str) -> None:
    if "torch" in name:
        torch.set_num_threads(1)
    assert goldens.differences(goldens.found(cases(kind)[name]), RECORDED[kind][name]) == []


def test_differences_are_found() -> None:
    old = {"said": "lossy", "rate": [0.5, 1, None], "more": {"few": True}}
    assert goldens.differences({**old, "rate": [0.5 + 1e-14, 1, None]}, old) == []
    for change in ({"said": "lossless"}, {"rate": [0.5 + 1e-11, 1, None]}, {"rate": [0.5, 1]}):
        assert len(goldens.differences({**old, **change}, old)) == 1
    assert goldens.differences({"said": "lossy"}, old)
