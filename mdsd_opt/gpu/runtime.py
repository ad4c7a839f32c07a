"""Runtimes that run kernels: a device by way of CuPy, or anything else that takes pointers.

Batches in the host's memory are sent to it in chunks, while earlier ones are worked on.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mdsd_opt.errors import MdsdError, install_line
from mdsd_opt.gpu.sources import (
    BLOCK_SIZE,
    CLUSTER_BLOCK_SIZE,
    CLUSTER_SIZE,
    COMPILE_OPTIONS,
    RATIO_TABLES,
    Kernel,
    cluster_option,
    most_shared_bytes,
    source,
)

#: Number of bytes of logits in one chunk, both sides together.
CHUNK_BYTES = 256 << 20

_NUM_LANES = 2

#: Place of V among the arguments of a kernel that reads logits, see `pair.Pair.arguments`.
_VOCAB_PLACE = 7


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLogits:
    """Logits in a runtime's memory."""

    address: int  # of the first logit
    dtype: str  # "float32", "float16" or "bfloat16"
    shape: tuple[int, ...]  # (..., V)
    strides: tuple[int, ...]  # in elements; that of the last axis is one
    owner: Any  # keeps the memory alive

    @property
    def itemsize(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def vocab_size(self) -> int:
        return self.shape[-1]


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


class Lane(Protocol):
    """Stream of its own with memory to stage rows in."""

    def current(self) -> AbstractContextManager[None]:
        """Context in which launches go to this lane's stream."""

    def send(self, side: str, values: NDArray[Any]) -> DeviceLogits:
        """Copy rows to the device; the last ones that went this way must have been used."""

    def stage(self, name: str, values: NDArray[Any]) -> Any:
        """Copy an array that is no logits in the same way, into a buffer."""


class DeviceRuntime(Protocol):
    """Memory and launches of kernels; a buffer is an array in its memory, of its library."""

    @property
    def threads_per_row(self) -> int:
        """Number of threads of all blocks of a cluster."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Return a new buffer."""

    def upload(self, values: NDArray[Any]) -> Any:
        """Copy a small array into a new buffer."""

    def join(self, buffers: Sequence[Any]) -> Any:
        """Buffer of several ones side by side, along their last axis."""

    def address(self, buffer: Any) -> int:
        """Address at which a buffer begins."""

    def lane(self) -> Lane:
        """Return a lane for batches that come in chunks; nobody else has it."""

    def give_back(self, lane: Lane) -> None:
        """Take back a lane of which all work has been collected."""

    def download(self, buffer: Any) -> NDArray[Any]:
        """Copy a buffer to the host, after everything that was launched before."""

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        """Run a kernel, one cluster a row, or one block where it reads no logits.

        `types` are those of the target's and the draft's logits; an argument is a buffer, a NumPy
        scalar, or None for a null pointer.
        """


def as_scalars(arguments: Sequence[Any]) -> list[Any]:
    """Argument of a launch: a null pointer as an integer of its size, all else as it is."""
    return [np.uint64(0) if argument is None else argument for argument in arguments]


class NoDevice(MdsdError, RuntimeError):
    """Error where a CUDA device was requested, and there is none that can be used."""


@functools.cache
def why_unavailable() -> str | None:
    """Obstacle to the use of a CUDA device, with its remedy; None if there is none."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        return f"CuPy cannot be imported ({error}): {install_line('gpu')}"
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CUDARuntimeError, or whatever a broken driver raises
        return _why_no_driver(cupy.cuda.runtime, error)
    if devices == 0:
        return "there is no CUDA device, or CUDA_VISIBLE_DEVICES hides it"
    device = cupy.cuda.Device()
    capability = int(device.compute_capability)
    if capability < 80:
        return f"the device has compute capability {capability / 10:.1f}, and 8.0 is the least"
    memory, needed = device.attributes["MaxSharedMemoryPerBlockOptin"], most_shared_bytes()
    if memory < needed:
        return f"the device gives a block {memory} bytes of shared memory, and {needed} are needed"
    return None


def _why_no_driver(runtime: Any, error: Exception) -> str:
    """Reason why CuPy cannot count devices, in words."""
    try:
        driver, built_for = (
            x() // 1000 for x in (runtime.driverGetVersion, runtime.runtimeGetVersion)
        )
    except Exception:  # whatever a broken driver raises
        driver = built_for = 0
    if 0 < driver < built_for:
        return (
            f"the driver is one of CUDA {driver}, and this CuPy needs one of CUDA {built_for}: "
            f"pip uninstall cupy-cuda{built_for}x, then pip install 'cupy-cuda{driver}x[ctk]'"
        )
    return f"CuPy finds no CUDA driver ({error}): install the NVIDIA driver of this machine"


def is_available() -> bool:
    """Whether computing on a device is possible."""
    return why_unavailable() is None


def require_device(asker: str) -> None:
    """Raise `NoDevice` unless there is one; it says what is missing and what to install."""
    reason = why_unavailable()
    if reason is not None:
        raise NoDevice(
            f"{asker} needs a CUDA device: {reason}. With device=None acceptance_rates and "
            "verify_batch compute on the CPU."
        )


class CupyRuntime:
    """Runtime on CuPy's current device and stream."""

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self._device = self._cupy.cuda.Device().id
        self._idle_lanes: list[CupyLane] = []

    @functools.cached_property
    def blocks_per_row(self) -> int:
        """Most blocks of a cluster: one where the device has none or cannot run one of eight.

        A part of a device, as by MIG or MPS, may have too few processors side by side.
        """
        if int(self._cupy.cuda.Device().compute_capability) < 90:
            return 1
        function = _function(self._device, RATIO_TABLES, ("float32", "float32"))
        return CLUSTER_SIZE if active_clusters(function, RATIO_TABLES.shared_bytes) > 0 else 1

    @property
    def threads_per_row(self) -> int:
        return self.blocks_per_row * CLUSTER_BLOCK_SIZE

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        return self._cupy.empty(shape, dtype)

    def upload(self, values: NDArray[Any]) -> Any:
        return self._cupy.asarray(values)

    def write(self, buffer: Any, values: NDArray[Any]) -> None:
        """Copy a small array into a buffer that there is."""
        buffer.set(values)

    def join(self, buffers: Sequence[Any]) -> Any:
        return self._cupy.concatenate(buffers, axis=-1)

    def address(self, buffer: Any) -> int:
        return int(buffer.data.ptr)

    def download(self, buffer: Any) -> NDArray[Any]:
        return np.asarray(self._cupy.asnumpy(buffer))

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        self.planned(kernel, types, num_rows, arguments)()

    def planned(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> Callable[[], None]:
        """Launch that may be made more than once, on whatever stream is current then."""
        blocks, threads = 1, BLOCK_SIZE
        if kernel.in_clusters:
            blocks, threads = self.blocks_per_row, CLUSTER_BLOCK_SIZE
        if blocks > 1:
            blocks = kernel.blocks(types, int(arguments[_VOCAB_PLACE]))
        function = _function(self._device, kernel, types if kernel.reads_logits else None, blocks)
        given = (num_rows * blocks,), (threads,), tuple(as_scalars(arguments))
        return functools.partial(function, *given, shared_mem=kernel.shared_bytes)

    def lane(self) -> CupyLane:
        try:
            return self._idle_lanes.pop()
        except IndexError:
            return CupyLane(self._cupy)

    def give_back(self, lane: Lane) -> None:
        """Keep the lane for the next batch: CuPy gives its memory to no other stream."""
        assert isinstance(lane, CupyLane)
        self._idle_lanes.append(lane)


class RecordingRuntime:
    """A device's runtime that keeps what it launches, so that all of it can be launched again."""

    def __init__(self, runtime: CupyRuntime) -> None:
        self._runtime = runtime
        self.launches: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        self.launches.append(self._runtime.planned(kernel, types, num_rows, arguments))
        self.launches[-1]()


class CupyLane:
    """Stream with a pinned buffer on either side for arrays that are sent without a wait."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._buffers: dict[str, tuple[NDArray[Any], Any]] = {}

    @contextmanager
    def current(self) -> Iterator[None]:
        with self._stream:
            yield

    def send(self, side: str, values: NDArray[Any]) -> DeviceLogits:
        device = self._copied(side, values)
        strides = contiguous_strides(values.shape)
        return DeviceLogits(device.data.ptr, values.dtype.name, values.shape, strides, device)

    def stage(self, name: str, values: NDArray[Any]) -> Any:
        device = self._copied(name, values)
        return device[: values.nbytes].view(values.dtype).reshape(values.shape)

    def _copied(self, side: str, values: NDArray[Any]) -> Any:
        if side not in self._buffers or self._buffers[side][0].size < values.nbytes:
            memory = self._cupy.cuda.alloc_pinned_memory(values.nbytes)
            pinned: NDArray[Any] = np.frombuffer(memory, np.uint8, values.nbytes)
            self._buffers[side] = pinned, self._cupy.empty(values.nbytes, np.uint8)
        pinned, device = self._buffers[side]
        staged = pinned[: values.nbytes].view(values.dtype).reshape(values.shape)
        np.copyto(staged, values)
        self._cupy.cuda.runtime.memcpyAsync(
            device.data.ptr,
            pinned.ctypes.data,
            values.nbytes,
            self._cupy.cuda.runtime.memcpyHostToDevice,
            self._stream.ptr,
        )
        return device


@functools.cache
def _function(
    device: int, kernel: Kernel, types: tuple[str, str] | None, blocks: int = CLUSTER_SIZE
) -> Any:
    """Compiled kernel, for `types` if it reads logits; it is compiled once for every device."""
    cupy = importlib.import_module("cupy")
    name = kernel.expression(types)
    options = (*COMPILE_OPTIONS, cluster_option(blocks))
    module = cupy.RawModule(code=source(kernel), options=options, name_expressions=[name])
    function = module.get_function(name)
    function.max_dynamic_shared_size_bytes = kernel.shared_bytes
    return function


class _LaunchConfig(ctypes.Structure):
    """Arguments of a launch, in the layout of ``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    )


def active_clusters(function: Any, shared_bytes: int) -> int:
    """Number of clusters of a kernel that the device runs at a time, which CuPy does not tell."""
    ask = ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    number = ctypes.c_int()
    config = _LaunchConfig(
        (CLUSTER_SIZE, 1, 1), (CLUSTER_BLOCK_SIZE, 1, 1), shared_bytes, None, None, 0
    )
    failed = ask.cuOccupancyMaxActiveClusters(
        ctypes.byref(number), ctypes.c_void_p(function.kernel.ptr), ctypes.byref(config)
    )
    return 0 if failed else number.value


@functools.cache
def runtime_of_device(device: int) -> CupyRuntime:
    """Return the runtime of a device, which must be CuPy's current one."""
    return CupyRuntime()


def work_in_chunks(
    runtime: DeviceRuntime,
    target: NDArray[Any],
    draft: NDArray[Any],
    compute: Callable[..., Any],
    collect: Callable[[Any, slice], None],
    chunk_bytes: int = CHUNK_BYTES,
    beside: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Compute a batch of any size with at most two chunks on the device.

    `target` and `draft`, float32, float16 or bfloat16, have shapes (..., V) that broadcast.
    ``compute(target, draft, start, *beside)`` launches the work on the rows from `start` on; what
    it returns is given to `collect` with the rows' place, once the other lane has been filled. The
    arrays of `beside`, shape (num_rows, n), travel with the rows, to `compute` as buffers.
    """
    others = dict(beside or {})
    index_shape = np.broadcast_shapes(target.shape[:-1], draft.shape[:-1])
    target, draft = (np.broadcast_to(x, (*index_shape, x.shape[-1])) for x in (target, draft))
    num_rows = math.prod(index_shape)
    row_bytes = sum(x.shape[-1] * x.itemsize for x in (target, draft, *others.values()))
    size = max(1, chunk_bytes // row_bytes)
    lanes = [runtime.lane() for _ in range(min(_NUM_LANES, math.ceil(num_rows / size)))]
    waiting: list[tuple[Lane, Any, slice]] = []
    for number, start in enumerate(range(0, num_rows, size)):
        rows = slice(start, min(start + size, num_rows))
        lane = lanes[number % len(lanes)]
        if len(waiting) == len(lanes):
            _finish(waiting.pop(0), collect)
        with lane.current():
            sides = [
                lane.send(name, _rows(values, rows))
                for name, values in (("target", target), ("draft", draft))
            ]
            buffers = [lane.stage(name, values[rows]) for name, values in others.items()]
            waiting.append((lane, compute(*sides, start, *buffers), rows))
    for started in waiting:
        _finish(started, collect)
    for lane in lanes:  # not after an error, which may have left work on them
        runtime.give_back(lane)


def _finish(started: tuple[Lane, Any, slice], collect: Callable[[Any, slice], None]) -> None:
    lane, result, rows = started
    with lane.current():
        collect(result, rows)


def _rows(values: NDArray[Any], rows: slice) -> NDArray[Any]:
    """Some rows of the flattened batch, without flattening all of it."""
    if values.ndim == 1:
        return values[None]
    if values.ndim == 2:
        return values[rows]
    return values[np.unravel_index(np.arange(rows.start, rows.stop), values.shape[:-1])]
