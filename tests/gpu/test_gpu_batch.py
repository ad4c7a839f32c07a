"""Batches on their way to the kernels and back; the kernels run on the host here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from support.kernel_cases import near_rows, request_of
from support.ptx.runtime import Device, PtxRuntime

import mdsd_opt as mo
from mdsd_opt.base.arrays import Opened
from mdsd_opt.batch import device as device_batch
from mdsd_opt.batch import verify_batch
from mdsd_opt.batch.device import VerificationRequest, rates_in_chunks, verify_in_chunks
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.gpu import DeviceLogits, Randomness, interop
from mdsd_opt.gpu import runtime as gpu_runtime
from mdsd_opt.gpu.runtime import contiguous_strides


@pytest.fixture(scope="module")
def runtime(kernel_device: Device) -> PtxRuntime:
    return PtxRuntime(kernel_device)


def check(
    runtime: PtxRuntime, target: Any, draft: Any, chunk_bytes: int = 1 << 20, **options: Any
) -> None:
    """In chunks of this size they are the rates of the CPU."""
    scheme, counts = options.pop("drafts", "with_replacement"), options.pop("num_drafts", (3,))
    request = request_of(scheme, num_drafts=counts, **options)
    found = rates_in_chunks(runtime, target, draft, request, chunk_bytes)
    sides = (x.astype(np.float64) for x in (target, draft))
    expected = mo.acceptance_rates(*sides, counts, scheme, **options)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


class TestChunks:
    @pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (0,), (2, 0)])
    @pytest.mark.parametrize("chunk_bytes", [1, 3000, 1 << 20])
    def test_any_size_gives_the_rates_of_the_cpu(
        self, runtime: PtxRuntime, shape: tuple[int, ...], chunk_bytes: int
    ) -> None:
        rows = int(np.prod(shape))
        target, draft = (x.reshape(*shape, 151) for x in near_rows(rows, 151))
        check(runtime, target, draft, chunk_bytes, num_drafts=(1, 4))

    def test_broadcasting_strides_and_single_rows(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(6, 200)
        half = target.astype(ml_dtypes.bfloat16)
        for pair in (
            (target[0], draft[0]),
            (half[0], draft),
            (half.reshape(2, 3, 200)[:, ::2], draft[:2]),
            (target[::-1, 3:150], draft[:, :147]),
        ):
            check(runtime, *pair, 2000)

    def test_many_numbers_of_drafts_take_several_launches(self, runtime: PtxRuntime) -> None:
        check(runtime, *near_rows(2, 300), num_drafts=tuple(range(1, 20)))

    @pytest.mark.parametrize("drafts", ["with_replacement", "without_replacement"])
    def test_filters(self, runtime: PtxRuntime, drafts: str) -> None:
        check(runtime, *near_rows(5, 90), 1500, drafts=drafts, top_k=20, min_p=0.01)

    def test_bad_rows_are_named_as_on_the_cpu(self, runtime: PtxRuntime) -> None:
        target, draft = (x.reshape(2, 3, 100) for x in near_rows(6, 100))
        draft[1, 0, 7] = np.nan
        for pair in ((target, draft), (target[0, 0], draft)):
            with pytest.raises(mo.errors.InvalidDistribution, match="row 1, 0 has a NaN") as cpu:
                mo.acceptance_rates(*pair)
            with pytest.raises(mo.errors.InvalidDistribution) as gpu:
                rates_in_chunks(runtime, *pair, request_of())
            assert str(gpu.value) == str(cpu.value)


class TestObstacles:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"verifier": "gumbel"}, "no kernel of verifier 'gumbel'"),
            ({"draft_temperature": 1e-7}, "temperature"),
            ({"num_drafts": (2, 65)}, "num_drafts is 65.*at most 64"),
            (
                {"scheme": "without_replacement", "num_drafts": (33,)},
                "num_drafts is 33.*at most 32",
            ),
            (
                {"scheme": "without_replacement", "verifier": "rrs"},
                "no kernel of verifier 'rrs' with drafts 'without_replacement'",
            ),
        ],
    )
    def test_of_the_request(self, changes: dict[str, Any], reason: str) -> None:
        obstacle = request_of(**changes).obstacle(512, (2, 10), (2, 10))
        assert re.search(reason, obstacle)

    @pytest.mark.parametrize(
        ("target", "draft", "reason"),
        [
            ((2, 10), (2, 9), "differ in size"),
            ((2, 10), (3, 10), "do not fit"),
            ((), (3, 10), "last axis"),
            ((2, 0), (2, 0), "last axis"),
            ((1 << 23,), (1 << 23,), "larger than"),
        ],
    )
    def test_of_the_shapes(
        self, target: tuple[int, ...], draft: tuple[int, ...], reason: str
    ) -> None:
        assert reason in request_of().obstacle(512, target, draft)

    def test_none(self) -> None:
        assert request_of().obstacle(512, (4, 100), (100,)) == ""

    def test_numbers_the_kernels_do_not_read(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(1, 20)
        found = rates_in_chunks(runtime, target.astype(np.float64), draft, request_of())
        assert "float32, float16 and bfloat16" in found


class TestWithoutDevice:
    @pytest.fixture(autouse=True)
    def _asked_anew(self) -> Iterator[None]:
        gpu_runtime.why_unavailable.cache_clear()
        yield
        gpu_runtime.why_unavailable.cache_clear()

    def pretend(self, monkeypatch: pytest.MonkeyPatch, cupy: Any) -> None:
        monkeypatch.setitem(sys.modules, "cupy", cupy)

    @staticmethod
    def runtime(count: Any, capability: str = "90", memory: int = 232_448) -> SimpleNamespace:
        def devices() -> int:
            if isinstance(count, Exception):
                raise count
            return count

        attributes = {"MaxSharedMemoryPerBlockOptin": memory}
        device = SimpleNamespace(compute_capability=capability, id=0, attributes=attributes)
        return SimpleNamespace(
            cuda=SimpleNamespace(
                runtime=SimpleNamespace(getDeviceCount=devices), Device=lambda: device
            )
        )

    def test_no_cupy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(monkeypatch, None)
        assert not gpu_runtime.is_available()
        with pytest.raises(gpu_runtime.NoDevice, match="pip install 'cupy"):
            mo.acceptance_rates([0.0, 2.0], [2.0, 0.0], device="gpu")

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            ((RuntimeError("cudaErrorInsufficientDriver"),), "cudaErrorInsufficientDriver.*driver"),
            ((0,), "CUDA_VISIBLE_DEVICES"),
            ((1, "75"), r"7\.5.*8\.0"),
            ((1, "86", 65_536), "65536 bytes of shared memory"),
        ],
        ids=["no driver", "no device", "too old", "too little shared memory"],
    )
    def test_what_is_missing_is_told(
        self, monkeypatch: pytest.MonkeyPatch, found: tuple[Any, ...], said: str
    ) -> None:
        self.pretend(monkeypatch, self.runtime(*found))
        with pytest.raises(gpu_runtime.NoDevice, match=said):
            gpu_runtime.require_device("a plan")

    def test_shared_memory_of_small_devices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(monkeypatch, self.runtime(1, "86", memory=101_376))
        gpu_runtime.require_device("a plan")

    def test_everything_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(monkeypatch, self.runtime(1))
        assert gpu_runtime.is_available()
        gpu_runtime.require_device("a plan")

    @pytest.mark.parametrize("device", [None, "cpu"])
    def test_the_cpu_steps_in(self, monkeypatch: pytest.MonkeyPatch, device: str | None) -> None:
        self.pretend(monkeypatch, None)
        target, draft = near_rows(2, 50)
        found = mo.acceptance_rates(target, draft, 2, device=device)
        np.testing.assert_array_equal(found, mo.acceptance_rates(target, draft, 2))

    def test_unknown_devices(self) -> None:
        with pytest.raises(mo.errors.InvalidInput, match="device is 'tpu'"):
            mo.acceptance_rates([0.0], [0.0], device="tpu")

    @pytest.mark.parametrize("device", ["gpu", "cuda"])
    def test_errors_name_the_device_as_it_was_given(
        self, monkeypatch: pytest.MonkeyPatch, device: Any
    ) -> None:
        self.pretend(monkeypatch, None)
        given, (target, draft) = f'^device="{device}"', near_rows(2, 10)
        with pytest.raises(gpu_runtime.NoDevice, match=given):
            mo.acceptance_rates(target, draft, device=device)
        with pytest.raises(gpu_runtime.NoDevice, match=given):
            verify_batch(target, draft, [[0], [1]], device=device)
        with pytest.raises(mo.errors.UnsupportedScheme, match="no kernel for relaxed targets"):
            verify_batch(target, draft, [[0], [1]], relax={"tv": 0.1}, device=device)
        monkeypatch.setattr(device_batch, "require_device", lambda asker: None)
        monkeypatch.setattr(device_batch, "runtime_of_device", lambda number: None)
        monkeypatch.setattr(device_batch.interop, "current_device", lambda: 0)
        in_the_way = [*map(Opened.of, (target, draft), ("target", "draft"))]
        with pytest.raises(mo.errors.UnsupportedScheme, match=given):
            device_batch.on_device(*in_the_way, device, None, lambda *_: "no kernel")
        dask = pytest.importorskip("dask.array")
        with pytest.raises(mo.errors.InvalidInput, match=f"{given} takes no Dask arrays"):
            mo.acceptance_rates(dask.from_array(target), dask.from_array(draft), device=device)


class TestDlpack:
    def describe(self, values: NDArray[Any]) -> DeviceLogits:
        found = interop.read_dlpack(values)
        assert found is not None
        return found

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_memory_is_described_not_copied(self, dtype: str) -> None:
        values = np.arange(60, dtype=dtype).reshape(3, 4, 5)
        for view in (values, values[:, ::2], values[1:, :, 1:], values.transpose(1, 0, 2)):
            found = self.describe(view)
            assert found.address == view.ctypes.data
            assert found.dtype == dtype
            assert found.shape == view.shape
            assert found.strides == tuple(s // view.itemsize for s in view.strides)

    def test_what_the_kernels_do_not_read(self) -> None:
        assert interop.read_dlpack(np.zeros((2, 3))) is None
        assert interop.read_dlpack(np.zeros((2, 3), np.int32)) is None
        assert interop.read_dlpack(np.zeros((3, 4), np.float32).T) is None

    def test_rows_without_tokens(self) -> None:
        with pytest.raises(mo.errors.InvalidInput, match="last axis"):
            interop.read_dlpack(np.zeros((2, 0), np.float32))

    def test_device(self) -> None:
        assert interop.device_of(np.zeros(3)) == (interop.CPU, 0)

    def test_contiguous_strides(self) -> None:
        for shape in ((3,), (2, 3), (4, 1, 2, 5)):
            values = np.zeros(shape, np.float32)
            expected = tuple(s // 4 for s in values.strides)
            assert contiguous_strides(shape) == expected


@pytest.mark.parametrize("held", [False, True])
def test_what_the_kernels_do_not_do_goes_to_the_cpu_unless_the_device_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    monkeypatch.setattr(device_batch, "runtime_of_device", lambda number: f"runtime {number}")
    monkeypatch.setattr(device_batch, "is_available", lambda: True)
    monkeypatch.setattr(device_batch, "require_device", lambda asker: None)
    monkeypatch.setattr(device_batch.interop, "is_on_device", lambda array: held)
    monkeypatch.setattr(device_batch.interop, "current_device", lambda: 3)
    monkeypatch.setattr(device_batch.interop, "on_stream_of", lambda array: nullcontext(7))
    side = Opened.of(np.zeros((2, 4), np.float32))

    def on_device(device: str | None, in_the_way: str) -> Any:
        def in_place(runtime: str, stream: int, reference: Any) -> Any:
            assert stream == 7
            assert reference is side
            return in_the_way or ("in place", runtime)

        def in_chunks(runtime: str, target: NDArray[Any], draft: NDArray[Any]) -> Any:
            return in_the_way or ("in chunks", runtime)

        return device_batch.on_device(side, side, device, in_place, in_chunks)  # type: ignore[arg-type]

    found = ("in place" if held else "in chunks", "runtime 3")
    assert on_device("gpu", "") == found
    assert on_device(None, "") == (found if held else None)
    assert on_device(None, "too many drafts") is None
    with pytest.raises(UnsupportedScheme, match="too many drafts"):
        on_device("gpu", "too many drafts")


def test_logits_on_the_device_are_worked_on_as_those_that_are_sent(
    runtime: PtxRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", np)  # the emulation's arrays are NumPy's
    monkeypatch.setattr(
        device_batch, "on_device", lambda p, q, device, here, sent: here(runtime, 1, p)
    )
    rng = np.random.default_rng(5)
    target, draft = rng.standard_normal((2, 3, 2, 40), np.float32)
    drafts = rng.integers(40, size=(3, 2, 3))
    sides = Opened.of(target, "target_logits"), Opened.of(draft, "draft_logits")
    found = device_batch.device_rates(*sides, request_of(num_drafts=(1, 3)), "gpu")
    sent = rates_in_chunks(runtime, target, draft, request_of(num_drafts=(1, 3)))
    np.testing.assert_array_equal(found, sent)

    request = VerificationRequest(request_of(), Randomness(3), with_rates=True)
    ids = Opened.of(drafts.astype(np.int32), "drafts")
    verdict = device_batch.verify_on_device(*sides, ids, None, request, "gpu")
    expected = verify_in_chunks(runtime, target, draft, drafts, None, request)
    assert verdict is not None
    assert not isinstance(expected, str)
    for name in ("tokens", "draft_index", "acceptance_rate", "gap"):
        np.testing.assert_array_equal(getattr(verdict, name), getattr(expected, name))
    bad = target.copy()
    bad[1, 0, 7] = np.nan
    with pytest.raises(mo.errors.InvalidDistribution, match="row 1, 0"):
        device_batch.device_rates(Opened.of(bad, "target_logits"), sides[1], request_of(), "gpu")
    wide = Opened.of(target.astype(np.float64), "target_logits")
    assert device_batch.device_rates(wide, sides[1], request_of(), "gpu") == device_batch.NOT_READ
