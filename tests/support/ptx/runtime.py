"""A `mdsd_opt.gpu.runtime.DeviceRuntime` that runs PTX on the host, every access checked."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import pickle
import subprocess
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import DTypeLike, NDArray
from support.kernel_budget import nvrtc
from support.ptx.translation import Translation, width

from mdsd_opt.gpu import DeviceLogits
from mdsd_opt.gpu.runtime import as_scalars
from mdsd_opt.gpu.sources import BLOCK_SIZE, COMPILE_OPTIONS, STORED_TYPES, Kernel, source

SCHEDULES = ("forward", "backward", "random")

#: Of the target's and the draft's logits.
ALL_TYPES = tuple(product(STORED_TYPES, repeat=2))

_DEVICE = Path(__file__).parent / "device.hpp"
_MOST_FAULTS = 20
#: How often any stretch of a kernel may be run in a launch, and of one that may run on for ever.
_MOST, _MOST_CHANGED = 1 << 40, 1 << 23
_READABLE, _WRITTEN = 1, 2  # of a byte
_WORD_BYTES = 36  # of `Word`
_NONSENSE = 0xA5


class KernelFault(Exception):
    """Something that would go wrong on a device."""


class _Range(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("bytes", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
    )


class _Fault(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char * 48),
        ("text", ctypes.c_char * 112),
        ("line", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("grid", "block", "cluster", "shared_bytes")),
        ("parameters", ctypes.c_void_p),
        ("ranges", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("num_ranges", "schedule", "seed", "rounding")),
        ("faults", ctypes.c_void_p),
        ("max_faults", ctypes.c_uint32),
        ("num_faults", ctypes.c_uint32),
        ("counts", ctypes.c_void_p),
        ("most", ctypes.c_uint64),
        ("changed", ctypes.c_void_p),
        ("moved_by", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class Device:
    """What kernels are compiled for, and where what is built stays."""

    folder: Path
    cluster_size: int = 2
    block_size: int = 128  # fewer do not spread what weights are rounded by
    architecture: int = 90


@dataclass(frozen=True, slots=True)
class Change:
    """A kernel that is a little wrong: barriers that are left out, or accesses that are moved."""

    kernel: str
    lines: tuple[int, ...]  # of its PTX
    moved_by: int = 0  # bytes


@functools.cache
def built(device: Device, kernel: Kernel, types: tuple[str, str] | None) -> tuple[Any, Translation]:
    """A kernel as a library, and what is known of its PTX; compiled once for all processes."""
    made_by = _DEVICE, Path(__file__), Path(__file__).with_name("translation.py")
    parts = [device, kernel.expression(types), source(kernel), nvrtc().getVersion()]
    key = repr([*parts, *(path.read_text() for path in made_by)])
    device.folder.mkdir(parents=True, exist_ok=True)
    stem = device.folder / f"{kernel.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    library, known = stem.with_suffix(".so"), stem.with_suffix(".pickle")
    with stem.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            translation = Translation(*_ptx(device, kernel, types))
            _compile(translation.code, library)
            known.write_bytes(pickle.dumps(translation))
    return ctypes.CDLL(str(library)), pickle.loads(known.read_bytes())


def _compile(code: str, library: Path) -> None:
    command = ["g++", "-std=c++17", "-Og", "-w", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += ["-ffp-contract=off", f"-I{_DEVICE.parent}", "-x", "c++", "-", "-o", str(library)]
    text = f'#include "device.hpp"\n{code}'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"g++ failed:\n{done.stderr[:3000]}")


def _ptx(device: Device, kernel: Kernel, types: tuple[str, str] | None) -> tuple[str, str]:
    """A kernel's PTX, as CuPy has it compiled, and its name there."""
    compiler, name = nvrtc(), kernel.expression(types)
    program = compiler.createProgram(source(kernel), f"{kernel.file}.cu", (), ())
    compiler.addNameExpression(program, name)
    options = [x for x in COMPILE_OPTIONS if "BLOCK_SIZE" not in x]
    options += [f"-DMDSD_BLOCK_SIZE={device.block_size}", "-ftz=true", "--generate-line-info"]
    options += [
        f"-DMDSD_CLUSTER_SIZE={device.cluster_size}",
        f"-arch=compute_{device.architecture}",
    ]
    compiler.compileProgram(program, options)
    return compiler.getPTX(program).decode(), compiler.getLoweredName(program, name)


class _Memory:
    """Bytes of a buffer, and what may be done with each."""

    def __init__(self, array: NDArray[Any], state: int, is_given: bool) -> None:
        self.begin, self.end = byte_bounds(array)
        self.holder = weakref.ref(array if array.base is None else array.base)
        self.state = np.full(self.end - self.begin, state, np.uint8)
        self.is_given = is_given  # kernels may not write to it


_memories: list[_Memory] = []


def _remember(memory: _Memory) -> None:
    if len(_memories) >= 100:
        _memories[:] = [x for x in _memories if x.holder() is not None]
    _memories.append(memory)


def _memory_at(address: int) -> _Memory | None:
    for memory in reversed(_memories):
        if memory.begin <= address < memory.end and memory.holder() is not None:
            return memory
    return None


def host_logits(values: NDArray[Any]) -> DeviceLogits:
    """NumPy logits as the launchers take them: nothing between them may be read."""
    memory = _Memory(values, 0, True)
    memory.holder = weakref.ref(values)
    places = np.zeros(values.shape, np.int64) + (values.ctypes.data - memory.begin)
    for axis, (size, stride) in enumerate(zip(values.shape, values.strides, strict=True)):
        places += np.arange(size).reshape([-1, *[1] * (values.ndim - 1 - axis)]) * stride
    for byte in range(values.itemsize):
        memory.state[places.ravel() + byte] = _READABLE | _WRITTEN
    if values.size:
        _remember(memory)
    strides = tuple(s // values.itemsize for s in values.strides)
    return DeviceLogits(values.ctypes.data, values.dtype.name, values.shape, strides, values)


def adopt(buffer: NDArray[Any]) -> None:
    """Let kernels read and write memory that another library has allocated."""
    _remember(_Memory(buffer, _READABLE | _WRITTEN, False))


class PtxRuntime:
    """Runs kernels; its buffers are NumPy arrays, and a fault in any thread raises `KernelFault`.

    `counts` are the instructions that each kernel has run so far, and those of 64-bit floats;
    `met` are the stretches of its PTX that any thread came to.
    """

    def __init__(
        self, device: Device, schedule: str = "forward", seed: int = 1, rounding: int = 0,
        change: Change | None = None,
    ) -> None:  # fmt: skip
        self.device, self.schedule, self.seed, self.rounding = device, schedule, seed, rounding
        self.change = change
        nvrtc().getVersion()  # loaded before a test may put something else in CuPy's place
        self.counts: dict[str, Counter[str]] = {}
        self.met: dict[tuple[Kernel, tuple[str, str] | None], set[int]] = {}

    @property
    def threads_per_row(self) -> int:
        return self.device.cluster_size * self.device.block_size

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return a buffer of nonsense, of which nothing may be read before it is written."""
        buffer = np.frombuffer(np.full(_num_bytes(shape, dtype), _NONSENSE, np.uint8), dtype)
        if buffer.size:
            _remember(_Memory(buffer, _READABLE, False))
        return buffer.reshape(shape)

    def upload(self, values: NDArray[Any]) -> NDArray[Any]:
        buffer = values.copy()
        _remember(_Memory(buffer, _READABLE | _WRITTEN, True))
        return buffer

    def join(self, buffers: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(buffers, axis=-1)

    def address(self, buffer: NDArray[Any]) -> int:
        return buffer.ctypes.data

    def lane(self) -> PtxLane:
        return PtxLane()

    def give_back(self, lane: Any) -> None:
        pass

    def download(self, buffer: NDArray[Any]) -> NDArray[Any]:
        return buffer.copy()

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        own_types = types if kernel.reads_logits else None
        library, known = built(self.device, kernel, own_types)
        blocks, threads = 1, min(self.device.block_size, BLOCK_SIZE)
        if kernel.in_clusters:
            blocks, threads = self.device.cluster_size, self.device.block_size
        ranges: list[_Range] = []
        kept: list[Any] = []
        parameters = np.zeros(known.parameters[-1][0] + 8, np.uint8)
        for (offset, type_), given in zip(known.parameters, as_scalars(arguments), strict=True):
            value = given
            if isinstance(given, np.ndarray):
                assert given.flags.c_contiguous
                value = np.uint64(given.ctypes.data)
            assert (value.dtype.kind == "f") == (type_[0] == "f"), (kernel.name, type_, value.dtype)
            assert value.dtype.itemsize == width(type_), (kernel.name, type_, value.dtype)
            parameters[offset : offset + value.dtype.itemsize] = np.frombuffer(value, np.uint8)
            if type_ == "u64":
                ranges += self._ranges(value, given, kept)
        faults, reached = (_Fault * _MOST_FAULTS)(), (_Range * len(ranges))(*ranges)
        counts = np.zeros(len(known.blocks), np.uint64)
        launch = _Launch(
            num_rows * blocks, threads, blocks, kernel.shared_bytes, parameters.ctypes.data,
            ctypes.addressof(reached), len(reached),
            SCHEDULES.index(self.schedule), self.seed, self.rounding, ctypes.addressof(faults),
            _MOST_FAULTS, 0, counts.ctypes.data, _MOST if self.change is None else _MOST_CHANGED,
        )  # fmt: skip
        if self.change is not None and self.change.kernel == kernel.name:
            changed = np.zeros(max(known.sites) + 1, np.uint8)
            changed[list(self.change.lines)] = 1
            launch.changed, launch.moved_by = changed.ctypes.data, self.change.moved_by
        library.run(ctypes.byref(launch))
        self.met.setdefault((kernel, own_types), set()).update(np.flatnonzero(counts).tolist())
        ran = counts.astype(np.int64) @ np.array(known.blocks)
        total = self.counts.setdefault(kernel.name, Counter())
        total.update(instructions=int(ran[0]), float64=int(ran[1]), rows=num_rows)
        if launch.num_faults:
            raise KernelFault(
                "; ".join(_told(kernel, known, x) for x in faults[: launch.num_faults])
            )

    def _ranges(self, value: Any, given: Any, kept: list[Any]) -> Iterator[_Range]:
        """What a kernel may reach by an argument that may be a pointer."""
        memory = _memory_at(int(value))
        if memory is None and isinstance(given, np.ndarray) and given.size:  # a test's own array
            memory = _Memory(given, _READABLE | _WRITTEN, True)
            kept.append(memory)
        if memory is None:
            return
        begin, end = memory.begin, memory.end
        if isinstance(given, np.ndarray):
            begin, end = byte_bounds(given)
        words = None
        if not memory.is_given:
            kept.append(np.zeros(((end - begin) // 4 + 2) * _WORD_BYTES, np.uint8))
            words = kept[-1].ctypes.data
        yield _Range(begin, end, memory.state.ctypes.data + begin - memory.begin, words)


def _num_bytes(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    return int(np.prod(shape)) * np.dtype(dtype).itemsize


def _told(kernel: Kernel, known: Translation, fault: Any) -> str:
    where = known.place_of(fault.line)
    told = f"{fault.kind.decode()} ({fault.text.decode()}, {fault.count} times)"
    return f"{kernel.name}, {where}: {told}"


class PtxLane:
    """A `mdsd_opt.gpu.runtime.Lane` that overwrites what was sent before, as a device's does."""

    def __init__(self) -> None:
        self.sent: dict[str, NDArray[Any]] = {}

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def send(self, side: str, values: NDArray[Any]) -> DeviceLogits:
        return host_logits(self.stage(side, values))

    def stage(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        if name in self.sent:
            self.sent[name].view(np.uint8)[...] = _NONSENSE
        self.sent[name] = values.copy()
        _remember(_Memory(self.sent[name], _READABLE | _WRITTEN, True))
        return self.sent[name]
