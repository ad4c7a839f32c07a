"""The way to a device and back by CuPy, on one that runs nothing until somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.kernel_cases import flat_rows, near_rows, request_of
from support.waiting_cupy import Tensor, WaitingCupy, ndarray

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.batch.device import VerificationRequest, rates_in_chunks, verify_in_chunks
from mdsd_opt.gpu import Randomness, interop
from mdsd_opt.gpu import runtime as gpu_runtime

TARGET, DRAFT = near_rows(6, 300)
COUNTS = (1, 3)
EXPECTED = mo.acceptance_rates(TARGET, DRAFT, COUNTS)
REQUEST = request_of(num_drafts=COUNTS)
TWO_ROWS = 2 * 2 * 4 * 300  # bytes of a chunk


def in_chunks() -> NDArray[np.float64]:
    runtime = gpu_runtime.runtime_of_device(0)
    return np.asarray(rates_in_chunks(runtime, TARGET, DRAFT, REQUEST, TWO_ROWS))


def is_right(found: Any) -> bool:
    values = found.get() if isinstance(found, ndarray) else np.asarray(found)
    return bool(np.abs(values - EXPECTED).max() < 1e-6)


class TestRates:
    def test_of_arrays_on_the_host(self, cupy: WaitingCupy) -> None:
        assert is_right(mo.acceptance_rates(TARGET, DRAFT, COUNTS, device="gpu"))
        assert is_right(in_chunks())

    def test_of_many_axes(self, cupy: WaitingCupy) -> None:
        runtime = gpu_runtime.runtime_of_device(0)
        shaped = TARGET.reshape(2, 3, 300), DRAFT.reshape(2, 3, 300)
        found = rates_in_chunks(runtime, np.broadcast_to(shaped[0], (2, 2, 3, 300)), shaped[1],
                                REQUEST, TWO_ROWS)  # fmt: skip
        assert is_right(found[0].reshape(6, 2))
        assert is_right(found[1].reshape(6, 2))

    def test_of_rows_that_are_padded_in_place(self, cupy: WaitingCupy) -> None:
        wide = np.pad(TARGET, ((0, 0), (3, 2)), constant_values=np.nan)
        found = mo.acceptance_rates(cupy.asarray(wide)[:, 3:-2], cupy.asarray(DRAFT), COUNTS)
        assert isinstance(found, ndarray)
        assert is_right(found)

    def test_of_arrays_of_which_one_comes_from_the_host(self, cupy: WaitingCupy) -> None:
        assert is_right(mo.acceptance_rates(cupy.asarray(TARGET), DRAFT, COUNTS))

    @pytest.mark.parametrize("options", [{"drafts": "without_replacement"}, {"top_k": 40}])
    def test_of_other_kernels(self, cupy: WaitingCupy, options: dict[str, Any]) -> None:
        found = mo.acceptance_rates(TARGET, DRAFT, COUNTS, device="gpu", **options)
        expected = mo.acceptance_rates(TARGET, DRAFT, COUNTS, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)

    def test_bad_rows_are_named(self, cupy: WaitingCupy) -> None:
        bad = TARGET.copy()
        bad[4, 7] = np.nan
        for target in (bad, cupy.asarray(bad)):
            with pytest.raises(
                mo.errors.InvalidDistribution, match="target_logits row 4 has a NaN"
            ):
                mo.acceptance_rates(target, DRAFT, COUNTS, device="gpu")

    def test_open_rows_alone_are_read_once_more(self, cupy: WaitingCupy) -> None:
        mo.acceptance_rates(TARGET, DRAFT, COUNTS, device="gpu")
        assert cupy.launched == ["ratio_tables", "best_prefix"]
        pair = flat_rows(3001)
        found = mo.acceptance_rates(*pair, 3, device="gpu")
        np.testing.assert_allclose(found, mo.acceptance_rates(*pair, 3), rtol=0, atol=1e-6)
        assert cupy.launched[4:] == ["zoomed_ratio_tables", "best_zoomed_prefix"]


class TestTorch:
    def test_works_on_its_own_stream(self, torch: Any) -> None:
        found = mo.acceptance_rates(torch.tensor(TARGET), torch.tensor(DRAFT), COUNTS)
        assert isinstance(found, Tensor)
        assert is_right(found.numpy())

    def test_waits_for_the_draft_of_another_library(self, torch: Any, cupy: WaitingCupy) -> None:
        for pair in (
            (torch.tensor(TARGET), cupy.asarray(DRAFT)),
            (cupy.asarray(TARGET), torch.tensor(DRAFT)),
        ):
            found = mo.acceptance_rates(*pair, COUNTS)
            assert is_right(found.numpy() if isinstance(found, Tensor) else found)


class TestDecisions:
    def test_are_the_same_in_chunks_and_in_place(self, cupy: WaitingCupy) -> None:
        drafts = np.argsort(-DRAFT, axis=1)[:, :3].copy()
        request = VerificationRequest(request_of(), Randomness(7), True)
        runtime = gpu_runtime.runtime_of_device(0)
        sent = verify_in_chunks(runtime, TARGET, DRAFT, drafts, None, request, TWO_ROWS)
        held = verify_batch(*map(cupy.asarray, (TARGET, DRAFT)), cupy.asarray(drafts), rng=7,
                            with_rates=True)  # fmt: skip
        assert not isinstance(sent, str)
        for name in ("tokens", "draft_index", "acceptance_rate", "gap"):
            np.testing.assert_array_equal(getattr(held, name).get(), getattr(sent, name))


class TestDevices:
    def test_arrays_on_two_of_them_are_refused(self, start: Callable[..., WaitingCupy]) -> None:
        cupy = start(num_devices=2)
        target = cupy.asarray(TARGET)
        with cupy.cuda.Device(1):
            draft, drafts = cupy.asarray(DRAFT), cupy.asarray(np.zeros((6, 2), np.int64))
            assert is_right(mo.acceptance_rates(cupy.asarray(TARGET), draft, COUNTS))
        with pytest.raises(mo.errors.InvalidInput, match=r"target_.* 0, draft_.* on device 1"):
            mo.acceptance_rates(target, draft, COUNTS)
        with pytest.raises(mo.errors.InvalidInput, match="drafts is on device 1"):
            verify_batch(target, DRAFT, drafts)

    @pytest.mark.parametrize(
        ("capability", "clusters", "blocks"), [(90, 0, 1), (120, 3, 8), (89, 0, 1)]
    )
    def test_clusters_only_where_they_can_run(
        self, start: Callable[..., WaitingCupy], capability: int, clusters: int, blocks: int
    ) -> None:
        start(active_clusters=clusters, capability=capability)
        assert is_right(mo.acceptance_rates(TARGET, DRAFT, COUNTS, device="gpu"))
        assert gpu_runtime.runtime_of_device(0).blocks_per_row == blocks

    def test_a_driver_of_an_older_cuda_is_told(self, cupy: WaitingCupy) -> None:
        def fails() -> int:
            raise RuntimeError("cudaErrorInsufficientDriver")

        cupy.cuda.runtime.getDeviceCount = fails
        cupy.cuda.runtime.driverGetVersion = lambda: 12_080
        cupy.cuda.runtime.runtimeGetVersion = lambda: 13_020
        with pytest.raises(gpu_runtime.NoDevice, match=r"CUDA 12, .*uninstall cupy-cuda13x.*12x"):
            mo.acceptance_rates(TARGET, DRAFT, device="gpu")


class TestMemory:
    def test_calls_add_neither_streams_nor_memory(self, cupy: WaitingCupy) -> None:
        in_chunks()
        before = cupy.num_streams, cupy.live_bytes
        for _ in range(3):
            assert is_right(in_chunks())
        assert (cupy.num_streams, cupy.live_bytes) == before
        assert before[0] == 2

    def test_rows_are_not_brought_to_the_host(self, cupy: WaitingCupy) -> None:
        rows = [cupy.asarray(np.tile(x, (1, 50))) for x in (TARGET, DRAFT)]
        before = cupy.bytes_to_host
        mo.acceptance_rates(*rows, COUNTS)
        assert cupy.bytes_to_host - before < 1000


class TestMissingWaits:
    """The fake tells: one wait is left out, and numbers are wrong."""

    def test_a_lane_that_is_filled_before_its_work_is_done(
        self, cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lane = gpu_runtime.runtime_of_device(0).lane()
        monkeypatch.setattr(gpu_runtime.CupyRuntime, "lane", lambda self: lane)
        assert not is_right(in_chunks())

    def test_work_on_another_stream_than_the_lanes(
        self, cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gpu_runtime.CupyLane, "current", lambda self: nullcontext())
        assert not is_right(in_chunks())

    def test_results_that_are_read_at_once(
        self, cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            gpu_runtime.CupyRuntime, "download", lambda self, buffer: buffer.values.copy()
        )
        monkeypatch.setattr(interop, "check_rows", lambda *arguments: None)
        assert not is_right(in_chunks())

    def test_a_draft_of_another_library_that_is_not_waited_for(
        self, torch: Any, cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = interop.read_dlpack
        monkeypatch.setattr(interop, "read_dlpack", lambda array, stream: read(array, -1))
        monkeypatch.setattr(interop, "check_rows", lambda *arguments: None)
        target, draft = cupy.asarray(TARGET), torch.tensor(DRAFT)
        assert not is_right(mo.acceptance_rates(target, draft, COUNTS, kind="logits"))

    def test_work_for_torch_on_the_default_stream(
        self, torch: Any, cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(interop, "on_stream_of", lambda side: nullcontext(1))
        monkeypatch.setattr(interop, "check_rows", lambda *arguments: None)
        pair = torch.tensor(TARGET), torch.tensor(DRAFT)
        found = mo.acceptance_rates(*pair, COUNTS, kind="logits")
        assert not is_right(found.numpy())
