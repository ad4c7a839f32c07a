"""What a prefix that ends inside a group can reach, against every prefix of its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import contained_at, kink


@kernel
def _lowest(
    lowest: float, highest: float, p_before: float, p_inside: float, q_before: float,
    q_inside: float, exponent: int, before: float, after: float,
) -> float:  # fmt: skip
    p_mass, q_mass, share = kink(lowest, highest, 0.0, p_before, p_inside, q_before, q_inside)
    return p_mass - contained_at(exponent, q_mass, share, before, after)


@pytest.mark.parametrize("is_power", [True, False])
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 8])
def test_no_prefix_is_below_ends_and_kink(num_drafts: int, is_power: bool) -> None:
    """Q = q^K is concave with its sign turned, and q-convex: either bound holds for it."""
    rng = np.random.default_rng(num_drafts)
    for size in [1, 2, 3, 10] * 25:
        q = rng.dirichlet(np.ones(size + 2))
        ratios = np.sort(
            rng.choice([0.0, 0.5, 1.0, 3.0], size) + rng.integers(2) * rng.random(size)
        )
        q_sums = q[0] + np.append(0.0, q[1:-1].cumsum())
        p_sums = 0.1 + np.append(0.0, (ratios * q[1:-1]).cumsum())
        contained = q_sums**num_drafts
        differences = p_sums - contained
        for highest in (ratios[-1], np.inf):
            if highest == ratios[0]:  # ties: the ends decide
                kinked = np.inf
            else:
                kinked = _lowest(
                    ratios[0], highest, p_sums[0], p_sums[-1] - p_sums[0], q_sums[0],
                    q_sums[-1] - q_sums[0], num_drafts if is_power else 0, contained[0],
                    contained[-1],
                )  # fmt: skip
            assert differences.min() >= min(differences[0], differences[-1], kinked) - 1e-15


def test_the_kink_of_two_tokens_is_the_prefix_between_them() -> None:
    """p = 1/8, 1/2 and q = 1/2, 1/4: the bound is attained."""
    between = _lowest(0.25, 2.0, 0.0, 0.625, 0.25, 0.75, 2, 0.0, 0.0)
    assert between == 0.125 - 0.75**2
    assert _lowest(0.25, 2.0, 0.0, 0.625, 0.25, 0.75, 0, 0.25, 1.0) == 0.125 - 0.75
