"""The largest logit of a row, which all weights are relative to."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from mdsd_opt.prefix_search import weigh_kernels as kernels


@numba.njit
def _largest(row: Any, lanes: Any) -> float:
    return kernels.largest_logit(row, lanes)


def largest(row: NDArray[Any]) -> float:
    """With room for no more numbers than the row has, none of them of use."""
    return float(_largest(row, np.full(row.size, np.inf)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 511, 512, 513, 1000])
def test_the_largest_logit_is_found_at_every_place(size: int, dtype: Any) -> None:
    row = -np.random.default_rng(size).random(size).astype(dtype) - 1
    for place in range(size):
        here = row.copy()
        here[place] = -0.5
        assert largest(here) == -0.5


@pytest.mark.parametrize("size", [1, 256, 700])
def test_a_row_of_forbidden_tokens_has_no_largest_logit(size: int) -> None:
    assert largest(np.full(size, -np.inf)) == -np.inf
    row = np.full(size, -np.inf)
    row[-1] = -3e38
    assert largest(row) == -3e38
    row[size // 2] = np.inf
    assert largest(row) == np.inf


@numba.njit
def _total(row: Any, exponents: Any, weights: Any) -> float:
    return kernels.weigh_row(row, 1.0, exponents, weights)


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 700])
def test_a_nan_at_any_place_makes_the_sum_of_the_weights_a_nan(size: int) -> None:
    """Whatever the largest logit of such a row is: that sum is what tells a bad row."""
    row = np.random.default_rng(size).random(size)
    assert np.isfinite(_total(row, *np.empty((2, size))))
    for place in range(size):
        here = row.copy()
        here[place] = np.nan
        assert np.isnan(_total(here, *np.empty((2, size))))
