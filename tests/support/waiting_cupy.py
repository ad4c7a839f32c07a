"""A CuPy whose streams run nothing until somebody waits for them; its memory is the host's.

What is queued reads memory when it runs, not when it is asked for, and memory that is given up is
overwritten as soon as the stream it was allocated on comes to it. A buffer that is refilled too
early, a stream that does not wait for another, or an array that is dropped too soon therefore shows
as wrong numbers, as on a device, but always. Kernels run on whatever emulates a device.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.ptx.runtime import ALL_TYPES, adopt

from mdsd_opt.gpu.sources import BLOCK_SIZE, CLUSTER_BLOCK_SIZE, KERNELS

_KERNELS = {kernel.expression(types): (kernel, types) for types in ALL_TYPES for kernel in KERNELS}
_GONE = 0xA5  # every byte of memory that nobody has written yet, or nobody holds any more


class Stream:
    """Work in order, which begins when somebody waits."""

    def __init__(self, cupy: WaitingCupy, pointer: int) -> None:
        self.ptr = pointer
        self._cupy = cupy
        self._queue: list[Callable[[], object]] = []

    def push(self, work: Callable[[], object]) -> None:
        self._queue.append(work)

    def synchronize(self) -> None:
        while self._queue:
            self._queue.pop(0)()

    def __enter__(self) -> Stream:
        self._cupy.current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._cupy.current.pop() is self


class Device:
    """A device by its number, or the current one; a context that makes it that."""

    attributes = {"MaxSharedMemoryPerBlockOptin": 232_448}  # noqa: RUF012

    def __init__(self, cupy: WaitingCupy, number: int | None) -> None:
        self._cupy, self._before = cupy, cupy.device
        self.id = cupy.device if number is None else number
        self.compute_capability = cupy.compute_capability

    def __enter__(self) -> None:
        self._cupy.device = self.id

    def __exit__(self, *error: object) -> None:
        self._cupy.device = self._before


class Allocation:
    """Bytes of a device, overwritten in the order of their stream when nobody holds them."""

    def __init__(self, cupy: WaitingCupy, num_bytes: int) -> None:
        self.device = cupy.device
        self.bytes = np.empty(num_bytes, np.uint8)
        if cupy.marks:
            self.bytes.fill(_GONE)
            adopt(self.bytes)
            cupy.graveyard.append(self.bytes)  # an address stays valid, whatever is read there
        cupy.live_bytes += num_bytes
        cupy.asked["allocations"] += 1
        weakref.finalize(self, cupy.give_up, cupy.stream, self.bytes)


class ndarray:
    """An array in a device's memory; `values` shows what is there now."""

    def __init__(self, cupy: WaitingCupy, memory: Allocation, values: NDArray[Any]) -> None:
        self._cupy, self._memory, self.values = cupy, memory, values

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    strides = property(lambda self: self.values.strides)
    itemsize = property(lambda self: self.values.itemsize)
    device_number = property(lambda self: self._memory.device)
    data = property(lambda self: SimpleNamespace(ptr=self.values.ctypes.data))

    def _view(self, values: NDArray[Any]) -> ndarray:
        assert np.shares_memory(values, self.values) or not values.size
        return ndarray(self._cupy, self._memory, values)

    def __getitem__(self, index: Any) -> ndarray:
        return self._view(self.values[index])

    def reshape(self, *shape: Any) -> ndarray:
        return self._view(self.values.reshape(*shape))

    def view(self, dtype: Any) -> ndarray:
        return self._view(self.values.view(dtype))

    def astype(self, dtype: Any) -> ndarray:
        return self._cupy.queued(lambda x: x.astype(dtype), self)

    def __len__(self) -> int:
        return len(self.values)

    def set(self, values: NDArray[Any]) -> None:
        staged, target = np.array(values), self.values
        self._cupy.asked["copies"] += 1
        self._cupy.stream.push(lambda: np.copyto(target, staged))

    def get(self) -> NDArray[Any]:
        self._cupy.asked.update(waits=1, copies=1)
        self._cupy.stream.synchronize()
        self._cupy.bytes_to_host += self.values.nbytes
        return self.values.copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._memory.device

    def __dlpack__(self, stream: int | None = None) -> Any:
        if stream is not None and stream != -1:  # whoever reads waits for the stream that writes
            self._cupy.stream_at(stream).push(self._cupy.stream.synchronize)
        return self.values.__dlpack__()


ndarray.__module__ = "cupy"


class Tensor:
    """PyTorch's array on a device, written on the stream that was PyTorch's current one."""

    def __init__(self, cupy: WaitingCupy, array: ndarray, stream: Stream) -> None:
        self._cupy, self.array, self._stream = cupy, array, stream

    shape = property(lambda self: self.array.shape)
    __dlpack_device__ = property(lambda self: self.array.__dlpack_device__)

    def detach(self) -> Tensor:
        return self

    def stride(self, axis: int | None = None) -> Any:
        strides = tuple(x // self.array.itemsize for x in self.array.strides)
        return strides if axis is None else strides[axis]

    def data_ptr(self) -> int:
        return int(self.array.data.ptr)

    def is_neg(self) -> bool:
        return False

    def __dlpack__(self, stream: int | None = None) -> Any:
        if stream is not None and stream != -1:
            self._cupy.stream_at(stream).push(self._stream.synchronize)
        return self.array.values.__dlpack__()

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self._cupy, self.array[index], self._stream)

    # What a tensor is asked before it is read.
    device = SimpleNamespace(type="cuda")
    dtype, layout, is_nested, is_quantized = None, "strided", False, False

    def is_complex(self) -> bool:
        return False

    def is_floating_point(self) -> bool:
        return True

    def element_size(self) -> int:
        return int(self.array.itemsize)

    def numpy(self, force: bool = True) -> NDArray[Any]:
        self._stream.synchronize()
        return self.array.values.copy()


Tensor.__module__ = "torch"


class Function:
    """A kernel of a module that was compiled."""

    max_dynamic_shared_size_bytes = 49_152  # without being asked for more

    def __init__(self, cupy: WaitingCupy, name: str, blocks: int) -> None:
        self._cupy, (self._kernel, self._types) = cupy, _KERNELS[name]
        assert self._kernel.in_clusters or blocks == 1
        self.blocks = blocks

    def __call__(
        self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], shared_mem: int
    ) -> None:
        threads = CLUSTER_BLOCK_SIZE if self._kernel.in_clusters else BLOCK_SIZE
        assert shared_mem == self._kernel.shared_bytes <= self.max_dynamic_shared_size_bytes
        assert block == (threads,)
        assert grid[0] % self.blocks == 0 < grid[0]
        assert all(isinstance(x, (ndarray, np.generic)) for x in arguments)
        held = [x for x in arguments if isinstance(x, ndarray)]
        assert {x.device_number for x in held} <= {self._cupy.device}
        given = [x.values if isinstance(x, ndarray) else x for x in arguments]
        self._cupy.launched.append(self._kernel.name)
        launch, rows = self._cupy.engine.launch, grid[0] // self.blocks
        self._cupy.stream.push(lambda: launch(self._kernel, self._types, rows, given))


class WaitingCupy(ModuleType):
    """The module. `engine` runs kernels; `launched`, `num_streams` and `asked` are what was done.

    `asked` counts allocations, copies to the device or to the host, and waits. Without `marks`
    memory is left as it is, for an engine that runs nothing.
    """

    ndarray = ndarray

    def __init__(
        self, engine: Any, num_devices: int = 1, capability: int = 90, marks: bool = True
    ) -> None:
        super().__init__("cupy")
        self.engine, self.device, self.marks = engine, 0, marks
        self.graveyard: list[NDArray[Any]] = []
        self.launched: list[str] = []
        self.asked: Counter[str] = Counter()
        self.num_streams = self.live_bytes = self.bytes_to_host = 0
        self._streams = {0: Stream(self, 0)}
        self.current = [self._streams[0]]
        self.compute_capability = str(capability)
        self.cuda = SimpleNamespace(
            Device=lambda number=None: Device(self, number),
            Stream=self._stream_class(),
            get_current_stream=lambda: self.stream,
            alloc_pinned_memory=lambda size: memoryview(bytearray(max(size, 1))),
            runtime=SimpleNamespace(
                getDeviceCount=lambda: num_devices,
                memcpyAsync=self._copy_pinned,
                memcpyHostToDevice=1,
            ),
        )

    @property
    def stream(self) -> Stream:
        return self.current[-1]

    def stream_at(self, pointer: int) -> Stream:
        """A stream by its number, which for the default one is 1 in DLPack."""
        return self._streams.setdefault(0 if pointer == 1 else pointer, Stream(self, pointer))

    def new_stream(self, **options: bool) -> Stream:
        self.num_streams += 1
        return self.stream_at(256 * self.num_streams)

    def _stream_class(self) -> Any:
        class Streams:
            def __new__(cls, **options: bool) -> Any:
                return self.new_stream(**options)

            @staticmethod
            def from_external(foreign: Any) -> Stream:
                return self.stream_at(foreign.__cuda_stream__()[1])

        return Streams

    def give_up(self, stream: Stream, memory: NDArray[np.uint8]) -> None:
        self.live_bytes -= memory.size
        if self.marks:
            stream.push(lambda: memory.fill(_GONE))

    def empty(self, shape: Any, dtype: Any = np.float64) -> ndarray:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        memory = Allocation(self, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return ndarray(self, memory, memory.bytes.view(dtype).reshape(shape))

    def queued(self, function: Callable[..., Any], *inputs: Any) -> ndarray:
        """What a function of arrays gives, once the stream comes to it."""
        shapes = [np.zeros(x.shape, x.dtype) if isinstance(x, ndarray) else x for x in inputs]
        like = np.asarray(function(*shapes))
        found = self.empty(like.shape, like.dtype)
        target = found.values
        given = [x.values if isinstance(x, ndarray) else x for x in inputs]
        self.stream.push(lambda: np.copyto(target, function(*given)))
        return found

    def asarray(self, values: Any) -> ndarray:
        if isinstance(values, ndarray):
            return values
        self.asked["copies"] += 1
        staged = np.array(values)  # the driver copies memory that is not pinned before it returns
        return self.queued(lambda: staged)

    def from_dlpack(self, array: Any) -> ndarray:
        return array if isinstance(array, ndarray) else array.array  # type: ignore[no-any-return]

    def ascontiguousarray(self, array: ndarray) -> ndarray:
        return array if array.values.flags.c_contiguous else self.queued(np.copy, array)

    def asnumpy(self, array: ndarray) -> NDArray[Any]:
        return array.get()

    def concatenate(self, arrays: list[ndarray], axis: int) -> ndarray:
        return self.queued(lambda *given: np.concatenate(given, axis=axis), *arrays)

    def _copy_pinned(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        import ctypes

        self.asked["copies"] += 1
        self.stream_at(stream).push(lambda: ctypes.memmove(to, source, size))

    def RawModule(self, *, code: str, options: Any, name_expressions: list[str]) -> Any:
        blocks = int(options[-1].rpartition("=")[2])  # of `cluster_option`
        return SimpleNamespace(get_function=lambda name: Function(self, name, blocks))

    def torch(self) -> ModuleType:
        """A PyTorch whose current stream is one of its own."""
        torch = ModuleType("torch")
        own = self.new_stream()
        torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
            current_stream=lambda number: SimpleNamespace(cuda_stream=own.ptr)
        )
        torch.bfloat16, torch.strided = "bfloat16", "strided"  # type: ignore[attr-defined]
        functorch = SimpleNamespace(is_functorch_wrapped_tensor=lambda tensor: False)
        torch._C = SimpleNamespace(_functorch=functorch)  # type: ignore[attr-defined]
        torch.from_dlpack = lambda array: Tensor(self, array, own)  # type: ignore[attr-defined]

        def tensor(values: NDArray[Any]) -> Tensor:
            with own:
                return Tensor(self, self.asarray(values), own)

        torch.tensor = tensor  # type: ignore[attr-defined]
        return torch
