"""Rows that few tokens hold nearly all of: rates of several K at once, and decisions.

Without replacement all K share a table, whose units are those of the largest K: q weighs what is
left after so many tokens, and of the likeliest up to 2^200 times as much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sorted_rates
from numpy.typing import NDArray
from support.kernel_cases import DTYPES, decide, drawn, pair_of
from support.logit_rows import confident_rows
from support.ptx.runtime import Device
from support.row_plans import PlanningRuntime, RowPlan

import mdsd_opt as mo
from mdsd_opt.gpu import rates

SCHEMES = ("with_replacement", "without_replacement")

#: Numbers of drafts of one call.
COUNTS = ((1, 31), (1, 2, 31), (1, 8, 24, 31), (2, 30), (1, 2, 3, 4, 5, 6, 7, 8), (3, 32), (4, 16))
SIZES = (2, 3, 5, 8, 17, 32, 33, 40, 41, 48, 57, 64, 64, 40, 150)

#: What is promised of a rate on a device, and the most that a call may leave open.
TOLERANCE, MOST_OPEN = 2e-6, 2e-6


@pytest.fixture(scope="module")
def runtime(kernel_device: Device) -> PlanningRuntime:
    return PlanningRuntime(kernel_device)


def exact_rates(
    target: NDArray[Any], draft: NDArray[Any], counts: tuple[int, ...], scheme: str
) -> NDArray[np.float64]:
    """Token by token in order of p/q."""
    rows = [[sorted_rates.probabilities(x) for x in row] for row in zip(target, draft, strict=True)]
    return np.array([[sorted_rates.RATES[scheme](*row, k) for k in counts] for row in rows])


def check_rates(runtime: PlanningRuntime, scheme: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        size = int(rng.choice(SIZES))
        counts = COUNTS[rng.integers(len(COUNTS))]
        target, draft = confident_rows(rng, 8, size, [*DTYPES.values()][seed % 3])
        found = rates.BY_NAME[scheme](runtime, pair_of(target, draft), counts)
        exact = exact_rates(target, draft, counts, scheme)
        off = np.abs(found.rates - exact)
        told = seed, size, counts, off.max(), found.gaps.max()
        assert not found.is_bad.any()
        assert (off <= TOLERANCE).all(), told
        assert (off <= found.gaps).all(), told
        assert (found.gaps <= MOST_OPEN).all(), told


@pytest.mark.parametrize("scheme", SCHEMES)
class TestRates:
    def test_of_several_numbers_of_drafts(self, runtime: PlanningRuntime, scheme: str) -> None:
        check_rates(runtime, scheme, range(6))

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("part", range(20))
    def test_of_thousands_of_rows(self, runtime: PlanningRuntime, scheme: str, part: int) -> None:
        """5,120 rows in all parts and both schemes, each with two to eight numbers of drafts."""
        check_rates(runtime, scheme, range(100 + part * 16, 116 + part * 16))


def test_tokens_that_single_precision_puts_in_no_order(runtime: PlanningRuntime) -> None:
    """A token weighs so much that its place is zero, before one of a smaller ratio."""
    draft = np.zeros((1, 40), np.float32)
    draft[0, 10:] = 1.0
    draft[0, :2] = 82.0, 80.0
    target = draft.copy()
    target[0, :2] = 82.0, 78.0
    found = rates.BY_NAME["without_replacement"](runtime, pair_of(target, draft), (1, 31))
    p, q = (mo.softmax(x[0].astype(np.float64)) for x in (target, draft))
    assert found.rates[0, 0] == pytest.approx(np.minimum(p, q).sum(), abs=TOLERANCE)
    assert found.gaps[0, 0] <= MOST_OPEN


@pytest.mark.parametrize(("most", "there"), [(31, 1), (31, 2), (8, 3)])
def test_decisions_with_fewer_drafts_than_others_have(
    runtime: PlanningRuntime, most: int, there: int
) -> None:
    """The table is that of the largest number; rate <= optimum <= rate + gap."""
    rng = np.random.default_rng(most + there)
    for dtype in DTYPES.values():
        target, draft = confident_rows(rng, 4, 40, dtype)
        drafts = drawn(rng, draft, most, "without_replacement")
        drafts[:, there:] = -1
        pair = pair_of(target, draft)
        found = decide(runtime, pair, drafts, "without_replacement", with_rates=True)
        best = exact_rates(target, draft, (there,), "without_replacement")[:, 0]
        assert (found.rates <= best + 1e-6).all()
        assert (found.rates + found.gaps >= best - 1e-6).all()


@pytest.mark.parametrize("there", [1, 2])
def test_law_of_decisions_with_fewer_drafts_than_others_have(
    runtime: PlanningRuntime, there: int
) -> None:
    """By enumeration of all drafts, given the kernels' plan."""
    rng = np.random.default_rng(there)
    target, draft = confident_rows(rng, 8, 6, np.float32)
    drafts = drawn(rng, draft, 5, "without_replacement")
    drafts[:, there:] = -1
    decide(runtime, pair_of(target, draft), drafts, "without_replacement")
    for row, plan in enumerate(runtime.plans):
        sides = target[row], draft[row]
        p, q = (mo.softmax(x.astype(np.float64)) for x in sides)
        law = RowPlan(plan, p, q, 2.5, sides).output_law(there)
        np.testing.assert_allclose(law, p, rtol=0, atol=1e-7)
