"""What PyTorch does on the rows of the benchmark of devices."""

from __future__ import annotations

import gpu_rates
import numpy as np
import torch

import mdsd_opt as mo


def test_the_rival_computes_the_optimum() -> None:
    rng = np.random.default_rng(0)
    draft = 2.5 * rng.standard_normal((5, 3000), dtype=np.float32)
    target = draft + rng.standard_normal(draft.shape, dtype=np.float32)
    found = gpu_rates.by_sort(torch, torch.tensor(target), torch.tensor(draft), 3).numpy()
    np.testing.assert_allclose(found, mo.acceptance_rates(target, draft, 3), atol=2e-6)
