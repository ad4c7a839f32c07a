"""The compiled selection marginal on bins, against water filling in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd_opt.prefix_search import BinGroups
from mdsd_opt.problem import fill
from mdsd_opt.solvers.frontier.curve import falling_blocks
from mdsd_opt.verifiers import bin_marginal


def random_groups(rng, size, num_drafts, width, never=0.0):
    """Groups of random masses, with bounds of p/q about as far apart as `width` times the ratio."""
    q = rng.dirichlet(np.full(size, 0.5)) + 1e-6
    q /= q.sum()
    ratios = np.sort(np.exp(rng.normal(0.0, 1.0, size)))
    ratios *= (1.0 - never) / (ratios @ q)
    p = ratios * q
    between = np.sqrt(ratios[1:] * ratios[:-1])  # bounds that do not overlap
    lowest = np.maximum(ratios * (1.0 - width), np.append(0.0, between))
    highest = np.minimum(ratios * (1.0 + width), np.append(between, np.inf))
    contained = np.append(0.0, np.cumsum(q)) ** num_drafts
    contained[-1] = 1.0
    above = np.append(np.cumsum(q[::-1])[::-1], 0.0)
    return BinGroups(p, q, lowest, highest, contained, above, np.arange(size))


def expected_marginal(groups, demand):
    p, q, contained = demand * groups.p, groups.q, groups.contained
    reached = np.append(0.0, np.cumsum(p))
    split = int(np.argmin(reached - contained))
    low, high, inside = slice(split), slice(split, None), contained[split]
    x = np.concatenate([(demand * groups.highest * q)[low], (demand * groups.lowest * q)[high]])
    for side, mass, is_far in ((low, inside, np.greater), (high, 1.0 - inside, np.less)):
        if is_far(x[side].sum(), mass):
            share = (mass - p[side].sum()) / (x[side].sum() - p[side].sum())
            x[side] = p[side] + np.clip(share, 0.0, 1.0) * (x[side] - p[side])
    sums = np.append(0.0, np.cumsum(fill(x, q, split, inside, 1.0 - inside)[0]))
    x = np.diff(np.maximum(sums, contained))
    for side in (low, high):
        blocks = falling_blocks(x[side], q[side])
        ratios = np.repeat(blocks.widths / blocks.gains, np.diff(blocks.ends, prepend=0))
        x[side] = ratios * q[side]
    return x, split, 1.0 + (reached - contained)[split]


@pytest.mark.parametrize("width", [0.0, 0.02, 0.7])
@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize(("demand", "never"), [(1.0, 0.0), (1.0, 0.3), (0.4, 0.1)])
def test_it_is_what_water_filling_gives(num_drafts, width, demand, never):
    rng = np.random.default_rng(num_drafts)
    for size in (1, 2, 3, 7, 40) * 8:
        groups = random_groups(rng, size, num_drafts, width, never)
        found = bin_marginal(groups, demand)
        x, split, most = expected_marginal(groups, demand)
        assert found.split == split
        assert found.most == pytest.approx(most, abs=1e-14)
        np.testing.assert_allclose(found.x, x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
def test_the_marginal_can_be_selected(num_drafts):
    """It sums to one, rises relative to q on both sides of the cut, and stays above Q."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 60) * 5:
        groups = random_groups(rng, size, num_drafts, 0.3, 0.1)
        found = bin_marginal(groups, float(rng.uniform(0.2, 1.0)))
        assert found.x.sum() == pytest.approx(1.0, abs=1e-13)
        assert (np.append(0.0, np.cumsum(found.x)) >= groups.contained - 1e-13).all()
        for side in (slice(found.split), slice(found.split, None)):
            ratios = found.ratio[side]
            assert (np.diff(ratios) >= -1e-13 * ratios[1:]).all()


def test_a_bound_without_end_leaves_the_mean():
    """The last bin reaches to infinity: inside the cut it keeps its own."""
    groups = BinGroups(
        np.array([0.2, 0.5]), np.array([0.9, 0.1]), np.array([0.0, 4.0]), np.array([1.0, np.inf]),
        np.array([0.0, 0.99, 1.0]), np.array([1.0, 0.1, 0.0]), np.arange(2),
    )  # fmt: skip
    found = bin_marginal(groups)
    assert found.split == 1
    assert np.isfinite(found.x).all()
    assert found.x.sum() == pytest.approx(1.0)
    whole = bin_marginal(groups, 0.01)  # nothing is best cut: all groups lie inside
    assert np.isfinite(whole.x).all()
