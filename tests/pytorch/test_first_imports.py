"""Modules that import PyTorch and Triton as they are run: each can be imported first, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.first_imports import first_imports

ROOT = Path(__file__).parents[2]


def test_all_can_be_imported_first() -> None:
    pytest.importorskip("triton")
    ready = ["numpy", "numba", "scipy.special", "typer", "ml_dtypes", "torch", "triton"]
    outcomes = first_imports("mdsd_opt", ROOT, ready=ready)
    assert outcomes["mdsd_opt.serving.triton_walk"] == ("", "", "")
    assert {what: told for what, told in outcomes.items() if told[0]} == {}
