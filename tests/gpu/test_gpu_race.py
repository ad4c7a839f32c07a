"""The kernel of drafts without replacement on the host, against the float64 rates of the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from support.kernel_cases import flat_race_rows, flat_rows, near_rows, pair_of
from support.logit_rows import rows_of_every_character
from support.ptx.runtime import ALL_TYPES, Device, PtxRuntime

import mdsd_opt as mo
from mdsd_opt.gpu import FilterSettings, rates, with_filters

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}

pytestmark = pytest.mark.exhaustive

#: The promise is 2e-6.
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def runtime(kernel_device: Device) -> PtxRuntime:
    return PtxRuntime(kernel_device)


def check(
    runtime: PtxRuntime,
    target: NDArray[Any],
    draft: NDArray[Any],
    counts: tuple[int, ...],
    settings: FilterSettings | None = None,
    **options: Any,
) -> None:
    """Compare with the CPU, in float64, on the same rounded logits."""
    temperatures = options.get("temperature", 1.0), options.get("draft_temperature", 1.0)
    pair = pair_of(target, draft, *(t if t > 0 else 1.0 for t in temperatures))
    if settings is not None:
        pair = with_filters(runtime, pair, settings)
    found = rates.BY_NAME["without_replacement"](runtime, pair, counts)
    expected = mo.acceptance_rates(
        target.astype(np.float64),
        draft.astype(np.float64),
        counts,
        drafts="without_replacement",
        **options,
    )
    assert not found.is_bad.any()
    np.testing.assert_allclose(found.rates, expected, rtol=0, atol=TOLERANCE)
    assert (np.abs(found.rates - expected) <= found.gaps).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 7, 100, 701, 20_000])
def test_rows_of_every_character(runtime: PtxRuntime, size: int, dtype: str) -> None:
    for rows in rows_of_every_character(size).values():
        target, draft = (np.clip(x, -6e4, 6e4).astype(DTYPES[dtype])[None] for x in rows)
        # Of 16 bits only the reading differs.
        for temperature in (0.3, 1.0, 5.0) if dtype == "float32" else (1.0,):
            options = {"temperature": temperature, "draft_temperature": 0.9}
            check(runtime, target, draft, (1, 2, 3, 8, 16, 32), **options)


@pytest.mark.parametrize("types", ALL_TYPES)
def test_target_and_draft_of_different_types(runtime: PtxRuntime, types: tuple[str, str]) -> None:
    target, draft = near_rows(2, 3001)
    check(runtime, target.astype(DTYPES[types[0]]), draft.astype(DTYPES[types[1]]), (1, 4))


@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-5, 1e-6])
def test_ratios_that_crowd_around_the_threshold(runtime: PtxRuntime, spread: float) -> None:
    rng = np.random.default_rng(0)
    draft = rng.normal(size=(1, 20_000)).astype(np.float32)
    target = (draft + rng.normal(size=draft.shape) * spread).astype(np.float32)
    check(runtime, target, draft, (1, 2, 5))


@pytest.mark.parametrize("size", [60, 500, 5000])
def test_rows_where_any_prefix_may_be_the_best(runtime: PtxRuntime, size: int) -> None:
    """P(H) = Q(H) for every prefix: bins are open by the dozen, and more than a pass divides."""
    check(runtime, *flat_race_rows(size), (3,))
    check(runtime, *flat_rows(size), (2, 3, 4))


@pytest.mark.parametrize("distance", [5.0, 12.0, 20.0, 26.0, 60.0, 600.0])
def test_one_hot_above_a_uniform_tail(runtime: PtxRuntime, distance: float) -> None:
    """All but the first draft come from the tail, however little it weighs."""
    target = np.zeros((1, 30_000), np.float32)
    target[0, 77] = distance
    draft = np.zeros_like(target)
    draft[0, 78] = distance - 1
    check(runtime, target, draft, (1, 2, 8))


def test_drafts_that_fall_off_by_orders_of_magnitude(runtime: PtxRuntime) -> None:
    draft = np.arange(200, dtype=np.float32)[None] * -15
    noise = np.random.default_rng(0).normal(size=draft.shape)
    for target in (noise, noise + draft / 15):
        check(runtime, target.astype(np.float32), draft, (1, 2, 3, 8, 16, 32))


@pytest.mark.parametrize("size", [255, 256, 257, 1000])
def test_tokens_on_either_side_of_the_limit_of_light_ones(runtime: PtxRuntime, size: int) -> None:
    draft = np.zeros((1, size + 6), np.float32)
    draft[0, :6] = [30.0, 25.0, 20.0, 10.0, 8.0, 7.0]
    target = np.random.default_rng(0).normal(size=draft.shape).astype(np.float32) * 3
    check(runtime, target, draft, (2, 3, 7, 8, 32))


def test_as_many_drafts_as_tokens(runtime: PtxRuntime) -> None:
    target, draft = near_rows(3, 9)
    draft[1, 4:] = -np.inf
    draft[2, 1:] = -np.inf
    check(runtime, target, draft, (1, 3, 4, 5, 8, 9, 10, 32))


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"top_k": 5},
        {"top_k": 10_000},
        {"top_p": 0.3},
        {"top_p": 0.95},
        {"min_p": 0.05},
        {"top_k": 30, "top_p": 0.8, "min_p": 0.02},
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_filtered_rows(runtime: PtxRuntime, options: dict[str, Any], dtype: str) -> None:
    """Often fewer tokens are left than drafts."""
    settings = FilterSettings(**options)
    for size in (1, 7, 700):
        for name, rows in rows_of_every_character(size).items():
            if name == "uniform draft" and "top_p" in options:
                continue  # all tie but for rounding
            target, draft = (np.clip(x, -6e4, 6e4).astype(DTYPES[dtype])[None] for x in rows)
            temperatures = {"temperature": 0.7, "draft_temperature": 1.3}
            check(runtime, target, draft, (1, 3, 8), settings, **temperatures, **options)


@pytest.mark.parametrize("sides", [(True, False), (False, True), (True, True)])
def test_temperature_of_zero(runtime: PtxRuntime, sides: tuple[bool, bool]) -> None:
    target, draft = (np.round(x) for x in near_rows(4, 500))  # ties: the lowest token counts
    draft[1, 300:] = draft.max()
    target[2] = draft[2]
    temperatures = {
        "temperature": 0.0 if sides[0] else 1.0,
        "draft_temperature": 0.0 if sides[1] else 1.0,
    }
    check(runtime, target, draft, (1, 3), FilterSettings(*sides), **temperatures)


def test_logits_far_from_zero(runtime: PtxRuntime) -> None:
    target, draft = near_rows(2, 500)
    for shift in (1e4, -1e6, 3e7, 1e30):
        moved = [(np.round(x * 4) * 4 + shift).astype(np.float32) for x in (target, draft)]
        check(runtime, moved[0], draft, (1, 3))
        check(runtime, target, moved[1], (1, 3))


def test_largest_vocabulary(runtime: PtxRuntime) -> None:
    check(runtime, *near_rows(1, 262_143), (1, 3, 8))


def test_rows_that_are_no_distribution(runtime: PtxRuntime) -> None:
    target, draft = near_rows(5, 300)
    target[1, 299] = np.nan
    draft[2, 0] = np.inf
    draft[4] = -np.inf
    found = rates.BY_NAME["without_replacement"](runtime, pair_of(target, draft), (2, 4))
    assert found.is_bad.tolist() == [0, 1, 1, 0, 1]
    good = found.is_bad == 0
    expected = mo.acceptance_rates(
        target[good].astype(np.float64), draft[good].astype(np.float64), (2, 4),
        drafts="without_replacement",
    )  # fmt: skip
    np.testing.assert_allclose(found.rates[good], expected, rtol=0, atol=TOLERANCE)
