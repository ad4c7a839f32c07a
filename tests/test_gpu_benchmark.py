"""The rivals of the device benchmark compute the same rates; here with NumPy in CuPy's place."""

from __future__ import annotations

import gpu_rates
import numpy as np
import pytest

import mdsd_opt as mo


@pytest.mark.parametrize("rival", ["by_argsort", "by_packed_sort"])
def test_rivals_compute_the_optimum(rival: str) -> None:
    rng = np.random.default_rng(0)
    draft = 2.5 * rng.standard_normal((5, 3000), dtype=np.float32)
    target = draft + rng.standard_normal(draft.shape, dtype=np.float32)
    found = getattr(gpu_rates, rival)(np, target, draft, 3)
    np.testing.assert_allclose(found, mo.acceptance_rates(target, draft, 3), atol=2e-6)
