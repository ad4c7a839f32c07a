"""The CUDA kernels on the host, against the float64 rates of the CPU."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.kernel_cases import (
    CASES,
    DTYPES,
    LOG2_E,
    RATES,
    decide,
    flat_race_rows,
    flat_rows,
    near_rows,
    pair_of,
)
from support.logit_rows import rows_of_every_character
from support.ptx.runtime import ALL_TYPES, SCHEDULES, Device, PtxRuntime

import mdsd_opt as mo
from mdsd_opt.gpu import FilterSettings, rates, with_filters
from mdsd_opt.gpu.pair import scale_arguments
from mdsd_opt.gpu.sources import KERNELS, RACE_TABLES, RATIO_TABLES, Kernel

WITH, WITHOUT = "with_replacement", "without_replacement"
#: The promise is 2e-6; what the kernels leave open by intention is a quarter of it.
TOLERANCE = 1e-6
FILTERS = ("top_k", "top_p", "min_p")


def later(*values: Any) -> Any:
    """Values that a first look leaves out."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


#: Of the types that kernels read, one of 16 bits would do.
FIRST_DTYPES = ["float32", "bfloat16", later("float16")]
#: The race takes long.
every_rate = pytest.mark.parametrize(
    "name", [later(name) if name == WITHOUT else name for name in RATES]
)
both_schemes = pytest.mark.parametrize("name", [WITH, later(WITHOUT)])
FIXED = ("greedy", "top_k")


class WatchedRuntime(PtxRuntime):
    """Remembers what it launched."""

    launched: set[tuple[Kernel, tuple[str, str]]]

    def launch(self, kernel: Kernel, types: tuple[str, str], *others: Any) -> None:
        self.launched.add((kernel, types))
        super().launch(kernel, types, *others)


@pytest.fixture(scope="session")
def runtime(kernel_device: Device) -> WatchedRuntime:
    runtime = WatchedRuntime(kernel_device)
    runtime.launched = set()
    return runtime


def as_type(rows: Any, dtype: str) -> list[NDArray[Any]]:
    """Pairs of rows as batches of one."""
    return [np.clip(x, -6e4, 6e4).astype(DTYPES[dtype])[None] for x in rows]


def check(
    runtime: PtxRuntime,
    name: str,
    target: NDArray[Any],
    draft: NDArray[Any],
    counts: tuple[int, ...],
    **options: Any,
) -> None:
    """Rates are those of the same rounded logits in float64, as nearly as is told."""
    temperatures = [options.get(x, 1.0) for x in ("temperature", "draft_temperature")]
    pair = pair_of(target, draft, *(t or 1.0 for t in temperatures))
    filters = {x: options[x] for x in FILTERS if x in options}
    if filters or not all(temperatures):
        is_one_hot = (t == 0 for t in temperatures)
        pair = with_filters(runtime, pair, FilterSettings(*is_one_hot, **filters))
    found = rates.BY_NAME[name](runtime, pair, counts)
    sides = (x.astype(np.float64) for x in (target, draft))
    expected = mo.acceptance_rates(*sides, counts, **RATES[name], **options)
    assert not found.is_bad.any()
    values = found.rates.reshape(expected.shape)
    np.testing.assert_allclose(values, expected, rtol=0, atol=TOLERANCE)
    if found.gaps is not None:
        assert (np.abs(values - expected) <= found.gaps.reshape(expected.shape)).all()


class TestRows:
    @every_rate
    @pytest.mark.parametrize("dtype", FIRST_DTYPES)
    @pytest.mark.parametrize("size", [1, 2, 7, 100, 701, 20_000])
    def test_of_every_character(
        self, runtime: PtxRuntime, size: int, dtype: str, name: str
    ) -> None:
        for rows in rows_of_every_character(size).values():
            # Of 16 bits only the reading differs.
            for t in (0.3, 1.0, 5.0) if name == WITH or dtype == "float32" else (1.0,):
                options = {"temperature": t, "draft_temperature": 0.9}
                check(runtime, name, *as_type(rows, dtype), (1, 2, 3, 8, 16), **options)

    @both_schemes
    @pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-5, 1e-6])
    def test_ratios_that_crowd_around_the_threshold(
        self, runtime: PtxRuntime, spread: float, name: str
    ) -> None:
        rng = np.random.default_rng(0)
        draft = rng.normal(size=(1, 20_000)).astype(np.float32)
        target = (draft + rng.normal(size=draft.shape) * spread).astype(np.float32)
        check(runtime, name, target, draft, (1, 2, 5))

    @pytest.mark.parametrize(("name", "sizes"), [(WITH, [50_000]), later(WITHOUT, [60, 500, 5000])])
    def test_of_which_any_prefix_may_be_the_best(
        self, runtime: PtxRuntime, name: str, sizes: list[int]
    ) -> None:
        """P(H) = Q(H): bins are open by the dozen, and more than one pass can divide."""
        for size in sizes:
            check(runtime, name, *flat_rows(size), (2, 3, 4))
            if name == WITHOUT:
                check(runtime, name, *flat_race_rows(size), (3,))

    @both_schemes
    def test_of_the_largest_vocabulary(self, runtime: PtxRuntime, name: str) -> None:
        check(runtime, name, *near_rows(1, 262_143), (1, 3, 8))

    @pytest.mark.parametrize(("name", "size"), [(WITH, 100_000), later(WITHOUT, 30_000)])
    @pytest.mark.parametrize("distance", [5.0, 12.0, 20.0, 26.0, 60.0, 600.0])
    def test_one_hot_above_a_uniform_tail(
        self, runtime: PtxRuntime, distance: float, name: str, size: int
    ) -> None:
        """The tail's weights are a few units of the row's largest, and there are many of them."""
        target, draft = np.zeros((2, 1, size), np.float32)
        target[0, 77], draft[0, 78] = distance, distance - 1
        check(runtime, name, target, draft, (1, 2, 8))

    @both_schemes
    def test_logits_far_from_zero(self, runtime: PtxRuntime, name: str) -> None:
        target, draft = near_rows(2, 500)
        for shift in (70.0, -90.0, 1e4, 1e5, -1e6, 3e7, 1e30):
            moved = [(np.round(x * 4) * 4 + shift).astype(np.float32) for x in (target, draft)]
            check(runtime, name, moved[0], draft, (1, 3))
            check(runtime, name, target, moved[1], (1, 3))

    @every_rate
    def test_that_are_no_distribution(self, runtime: PtxRuntime, name: str) -> None:
        target, draft = near_rows(7, 300)
        target[1, 299] = np.nan
        draft[2, 0] = np.inf
        draft[4] = target[5] = -np.inf
        target[6, 0] = draft[6, 200] = np.nan
        found = rates.BY_NAME[name](runtime, pair_of(target, draft), (4, 2))
        assert found.is_bad.tolist() == [0, 1, 1, 0, 1, 1, 1]
        good = [0, 3]
        expected = mo.acceptance_rates(
            *(x[good].astype(np.float64) for x in (target, draft)), (4, 2), **RATES[name]
        )
        np.testing.assert_allclose(found.rates[good], expected, rtol=0, atol=TOLERANCE)

    @every_rate
    def test_that_are_not_aligned(self, runtime: PtxRuntime, name: str) -> None:
        check(runtime, name, *(x[:, 1:] for x in near_rows(2, 1003)), (4, 2))


class TestFixedDrafts:
    @pytest.mark.parametrize("name", FIXED)
    @pytest.mark.parametrize("size", [300, 3000])
    def test_ties_go_to_the_lowest_token(self, runtime: PtxRuntime, size: int, name: str) -> None:
        """Even where there are more of them than are listed."""
        draft = np.zeros((1, size), np.float32)
        draft[0, ::2] = -0.0
        check(runtime, name, np.linspace(0, 3, size, dtype=np.float32)[None], draft, (1, 5, 40))

    def test_likeliest_tokens_in_the_hands_of_one_thread(self, runtime: PtxRuntime) -> None:
        draft = np.zeros((1, 10_000), np.float32)
        draft[0, ::64] = np.linspace(1, 4, 157)  # all in the first lane's groups
        counts = (1, 20, rates.most_fixed_drafts(10_000, runtime.threads_per_row))
        check(runtime, "top_k", near_rows(1, 10_000)[0], draft, counts)

    def test_limits(self) -> None:
        assert rates.most_fixed_drafts(262_144, 8 * 512) == 64
        assert rates.most_fixed_drafts(131_072, 512) == 8192 // 260
        assert rates.most_fixed_drafts(1, 512) == 64


@pytest.mark.exhaustive
class TestRace:
    def test_drafts_that_fall_off_by_orders_of_magnitude(self, runtime: PtxRuntime) -> None:
        draft = np.arange(200, dtype=np.float32)[None] * -15
        noise = np.random.default_rng(0).normal(size=draft.shape)
        for target in (noise, noise + draft / 15):
            check(runtime, WITHOUT, target.astype(np.float32), draft, (1, 2, 3, 8, 16, 32))

    @pytest.mark.parametrize("size", [255, 256, 257, 1000])
    def test_tokens_on_either_side_of_the_limit_of_light_ones(
        self, runtime: PtxRuntime, size: int
    ) -> None:
        draft = np.zeros((1, size + 6), np.float32)
        draft[0, :6] = [30.0, 25.0, 20.0, 10.0, 8.0, 7.0]
        target = np.random.default_rng(0).normal(size=draft.shape).astype(np.float32) * 3
        check(runtime, WITHOUT, target, draft, (2, 3, 7, 8, 32))

    def test_as_many_drafts_as_tokens(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(3, 9)
        draft[1, 4:] = draft[2, 1:] = -np.inf
        check(runtime, WITHOUT, target, draft, (1, 3, 4, 5, 8, 9, 10, 32))


class TestFilters:
    @both_schemes
    @pytest.mark.parametrize(
        "options",
        [
            {"top_k": 1},
            {"top_k": 5},
            {"top_k": 10_000},
            {"top_p": 0.3},
            {"top_p": 0.95},
            {"min_p": 0.05},
            {"min_p": 1.0},
            {"top_k": 30, "top_p": 0.8, "min_p": 0.02},
        ],
    )
    @pytest.mark.parametrize("dtype", FIRST_DTYPES)
    def test_rates_of_filtered_rows(
        self, runtime: PtxRuntime, options: dict[str, Any], dtype: str, name: str
    ) -> None:
        """Often fewer tokens are left than drafts."""
        temperatures = {"temperature": 0.7, "draft_temperature": 1.3}
        for size in (1, 7, 700):
            for character, rows in rows_of_every_character(size).items():
                if character == "uniform draft" and "top_p" in options:
                    continue  # all tie but for rounding; see below
                pair = as_type(rows, dtype)
                check(runtime, name, *pair, (1, 3, 8), **temperatures, **options)

    @pytest.mark.parametrize("name", [WITH, "greedy", "rrs", later(WITHOUT)])
    @pytest.mark.parametrize("sides", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
    def test_temperature_of_zero(
        self, runtime: PtxRuntime, sides: tuple[float, float], name: str
    ) -> None:
        target, draft = (np.round(x) for x in near_rows(4, 500))  # ties: the lowest token counts
        target[1, 400:] = target.max()
        draft[1, 300:] = draft.max()
        target[2] = draft[2]
        temperatures = dict(zip(("temperature", "draft_temperature"), sides, strict=True))
        check(runtime, name, target, draft, (1, 3), **temperatures)

    @every_rate
    def test_several_at_once(self, runtime: PtxRuntime, name: str) -> None:
        check(runtime, name, *near_rows(3, 800), (2, 5, 9), top_k=6, top_p=0.9)

    @pytest.mark.parametrize("name", [WITH, WITHOUT])
    @pytest.mark.parametrize("options", [{"top_k": 400}, {"target_one_hot": True}])
    def test_what_filtered_rows_cost(
        self, kernel_device: Device, name: str, options: dict[str, Any]
    ) -> None:
        """They are read by packs as all others are, with little more to do for a token."""
        ran = []
        for is_filtered in (False, True):
            runtime = PtxRuntime(kernel_device)
            pair = pair_of(*near_rows(1, 20_000))
            if is_filtered:
                pair = with_filters(runtime, pair, FilterSettings(**options))
            rates.BY_NAME[name](runtime, pair, (2,))
            tables = {WITH: RATIO_TABLES, WITHOUT: RACE_TABLES}[name]
            ran.append(runtime.counts[tables.name]["instructions"])
        assert ran[0] < ran[1] < 1.5 * ran[0]

    @pytest.mark.parametrize("columns", [slice(0, None), slice(3, None)])
    @pytest.mark.parametrize("ties", [8, 1500])
    def test_ties_are_kept(self, runtime: PtxRuntime, ties: int, columns: slice) -> None:
        """Even where there are more of them than are listed, and wherever rows begin."""
        draft = np.zeros((1, 8 * ties), np.float32)[:, columns]
        target = np.repeat(np.arange(8, dtype=np.float32), ties)[None, columns]
        for options in ({"top_k": 3}, {"top_p": 0.4}, {"top_p": 1e-9}, {"top_k": 12}):
            check(runtime, WITH, target, draft, (2,), **options)


class TestLayout:
    def test_strides_shapes_and_broadcasting(self, runtime: PtxRuntime) -> None:
        wide_target, wide_draft = near_rows(24, 130)
        blocks = wide_target.reshape(2, 3, 4, 130), wide_draft.reshape(2, 3, 4, 130)
        for pair in (
            (wide_target[:, :101], wide_draft[:, :101]),  # padded rows
            (wide_target[::-2, 3:104], wide_draft[::2, 1:102]),  # backwards, not aligned
            (blocks[0], blocks[1]),
            (blocks[0].transpose(2, 0, 1, 3), blocks[1].transpose(2, 0, 1, 3)),
            (blocks[0][:, ::2], blocks[1][:, ::2]),
            (blocks[0][:, :, ::3], blocks[1][:, :, ::3]),
            (blocks[0], wide_draft[:4]),
            (blocks[0][:, :1], blocks[1][:1, :, :2].repeat(2, axis=2)),
            (wide_target[0], wide_draft[0]),
            (wide_target[0], wide_draft),
            (blocks[0][:0], blocks[1][:0]),
        ):
            check(runtime, WITH, *pair, (2,))

    def test_vocabularies_of_different_size(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(1, 10)
        with pytest.raises(mo.errors.InvalidInput, match=r"10 tokens and draft_logits has 9.*pad"):
            rates.BY_NAME[WITH](runtime, pair_of(target, draft[:, :9]), (2,))


class TestReproducibility:
    @pytest.mark.parametrize("name", CASES)
    def test_schedules_do_not_matter(self, kernel_device: Device, name: str) -> None:
        case = CASES[name]
        expected = case(PtxRuntime(kernel_device))
        for schedule in SCHEDULES[1:]:
            assert case(PtxRuntime(kernel_device, schedule, seed=2)) == expected, schedule

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("name", CASES)
    @pytest.mark.parametrize("device", [(8, 512, 90), (1, 512, 80)], ids=["clusters", "blocks"])
    def test_devices_do_not_matter(
        self, kernel_device: Device, device: tuple[int, int, int], name: str
    ) -> None:
        """As they are launched on a device, with clusters of eight blocks and without."""
        expected = CASES[name](PtxRuntime(kernel_device))
        assert CASES[name](PtxRuntime(Device(kernel_device.folder, *device))) == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("types", ALL_TYPES, ids="-".join)
def test_all_kernels_with_every_pair_of_types(
    runtime: WatchedRuntime, types: tuple[str, str]
) -> None:
    def typed(*pair: Any) -> list[NDArray[Any]]:
        return [x.astype(DTYPES[dtype]) for x, dtype in zip(pair, types, strict=True)]

    runtime.launched = set()
    target, draft = typed(*near_rows(3, 3001))
    for name, filters in product(RATES, ({}, {"top_k": 50})):
        check(runtime, name, target, draft, (1, 4), **filters)
    # Rows that a first look leaves open.
    check(runtime, WITH, *typed(*flat_rows(3001)), (3, 5))
    check(runtime, WITHOUT, *typed(draft, draft), (3, 5))
    drafts = np.ascontiguousarray(np.argsort(-draft.astype(np.float64), axis=1)[:, :4])
    for scheme in (WITH, WITHOUT):
        decided = decide(runtime, pair_of(target, draft), drafts, scheme, with_rates=True)
        sides = (x.astype(np.float64) for x in (target, draft))
        best = mo.acceptance_rates(*sides, 4, drafts=scheme)
        assert (decided.rates <= best + TOLERANCE).all()
        assert (decided.rates + decided.gaps >= best - TOLERANCE).all()
        assert (decided.gaps < 1e-3).all()
        assert ((decided.tokens >= 0) & (decided.tokens < 3001)).all()
    read = {(kernel, types) for kernel in KERNELS if kernel.reads_logits}
    missing = read - runtime.launched  # but for what the rounding of such rows settles
    assert all(kernel.name.startswith("zoomed") for kernel, _ in missing), missing
    assert len(missing) < 2


def test_scales_keep_what_single_precision_drops() -> None:
    high, low = scale_arguments(LOG2_E)
    assert float(high) + float(low) == pytest.approx(math.log2(math.e), rel=1e-14)
