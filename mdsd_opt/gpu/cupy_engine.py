"""The kernels on a device, by way of CuPy."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mdsd_opt.gpu.dlpack import contiguous_strides
from mdsd_opt.gpu.engine import as_scalars
from mdsd_opt.gpu.layout import DeviceLogits
from mdsd_opt.gpu.sources import BLOCK_SIZE, CLUSTER_BLOCK_SIZE, COMPILE_OPTIONS, Kernel, source


class CupyEngine:
    """An `mdsd_opt.gpu.engine.Engine` on CuPy's current device and stream."""

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self._device = self._cupy.cuda.Device().id
        self.blocks_per_row = 8 if int(self._cupy.cuda.Device().compute_capability) >= 90 else 1

    @property
    def threads_per_row(self) -> int:
        return self.blocks_per_row * CLUSTER_BLOCK_SIZE

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        return self._cupy.empty(shape, dtype)

    def upload(self, values: NDArray[Any]) -> Any:
        return self._cupy.asarray(values)

    def join(self, buffers: Sequence[Any]) -> Any:
        return self._cupy.concatenate(buffers, axis=-1)

    def address(self, buffer: Any) -> int:
        return int(buffer.data.ptr)

    def download(self, buffer: Any) -> NDArray[Any]:
        return np.asarray(self._cupy.asnumpy(buffer))

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        function = _function(self._device, kernel, types if kernel.reads_logits else None)
        blocks, threads = (
            (self.blocks_per_row, CLUSTER_BLOCK_SIZE) if kernel.in_clusters else (1, BLOCK_SIZE)
        )
        function(
            (num_rows * blocks,),
            (threads,),
            tuple(as_scalars(arguments)),
            shared_mem=kernel.shared_bytes,
        )

    def lane(self) -> CupyLane:
        """Return a stream of its own, with memory to stage rows of NumPy arrays in."""
        return CupyLane(self._cupy)


class CupyLane:
    """A stream, and for all that is sent a pinned buffer on the host and one on the device."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._buffers: dict[str, tuple[NDArray[Any], Any]] = {}

    @contextmanager
    def current(self) -> Iterator[None]:
        """What is launched inside goes to this lane's stream."""
        with self._stream:
            yield

    def send(self, side: str, values: NDArray[Any]) -> DeviceLogits:
        """Copy rows to the device without waiting for them; the last ones must have been used."""
        device = self._copied(side, values)
        strides = contiguous_strides(values.shape)
        return DeviceLogits(device.data.ptr, values.dtype.name, values.shape, strides, device)

    def stage(self, name: str, values: NDArray[Any]) -> Any:
        """Copy what is no logits in the same way, into a buffer."""
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
def _function(device: int, kernel: Kernel, types: tuple[str, str] | None) -> Any:
    """A kernel, for `types` if it reads logits; compiled once for every device."""
    cupy = importlib.import_module("cupy")
    name = kernel.expression(types)
    module = cupy.RawModule(code=source(kernel), options=COMPILE_OPTIONS, name_expressions=[name])
    function = module.get_function(name)
    function.max_dynamic_shared_size_bytes = kernel.shared_bytes
    return function


@functools.cache
def engine_of_device(device: int) -> CupyEngine:
    """Return the engine of a device, which must be CuPy's current one."""
    return CupyEngine()
