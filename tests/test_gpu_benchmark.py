"""The rivals of the device benchmark compute the same rates; here with NumPy in CuPy's place."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo


@pytest.fixture(scope="module")
def benchmark() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "gpu_rates.py"
    spec = importlib.util.spec_from_file_location("gpu_rates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rival", ["by_argsort", "by_packed_sort"])
def test_rivals_compute_the_optimum(benchmark: Any, rival: str) -> None:
    rng = np.random.default_rng(0)
    draft = 2.5 * rng.standard_normal((5, 3000), dtype=np.float32)
    target = draft + rng.standard_normal(draft.shape, dtype=np.float32)
    found = getattr(benchmark, rival)(np, target, draft, 3)
    np.testing.assert_allclose(found, mo.acceptance_rates(target, draft, 3), atol=2e-6)
