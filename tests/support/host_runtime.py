"""The CUDA kernels on the host: compiled by g++, run thread by thread under a chosen schedule."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mdsd_opt.gpu.runtime import DeviceLogits, as_scalars
from mdsd_opt.gpu.sources import BLOCK_SIZE, KERNELS, STORED_TYPES, Kernel, instances

HERE = Path(__file__).parent / "cuda_host"
KERNEL_FOLDER = Path(__file__).parents[2] / "mdsd_opt" / "gpu" / "kernels"

#: Order in which threads run up to their next barrier.
SCHEDULES = ("forward", "backward", "random", "first_warp_ahead", "last_warp_ahead")

#: Of the target's and the draft's logits.
ALL_TYPES = tuple(product(STORED_TYPES, repeat=2))

#: Those that most tests need; all of them take twice as long to build.
TYPES = (
    ("float32", "float32"),
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
    ("bfloat16", "float32"),
)

#: What a build can be watched by: options for the compiler, and the library to preload.
_SANITIZERS = {
    # Not optimised: compiled four times as fast, and a fifth slower.
    "address": (
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1", "-O0"),
        "libasan.so",
    ),
    "thread": (("-fsanitize=thread", "-g", "-DCUDA_HOST_THREADS"), "libtsan.so"),
}


#: `build` without its folder, as the fixture `built_kernels` gives it.
Build = Callable[..., Path]


class KernelFault(Exception):
    """The emulation found something that would go wrong on a device."""


def build(
    folder: Path,
    cluster_size: int,
    sanitizer: str | None = None,
    types: tuple[tuple[str, str], ...] = TYPES,
    kernels: Sequence[Kernel] = KERNELS,
) -> Path:
    """Compile kernels into a shared library; for ThreadSanitizer with threads, not fibers."""
    headers = [f'#include "{kernel.file}.cuh"' for kernel in kernels]
    (folder / "all_kernels.cuh").write_text("\n".join(headers) + "\n")
    names = [name for pair in (*types, None) for name in instances(kernels, pair)]
    (folder / "kernel_list.inc").write_text("".join(f"KERNEL({name})\n" for name in names))
    library = folder / f"kernels_{cluster_size}{'_' + sanitizer if sanitizer else ''}.so"
    command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off"]
    command += ["-fvisibility=hidden", "-finline-small-functions"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    command += _SANITIZERS[sanitizer][0] if sanitizer else ()
    command += [f"-DMDSD_CLUSTER_SIZE={cluster_size}", f"-I{folder}", f"-I{KERNEL_FOLDER}"]
    command += [f"-I{HERE}", "-include", "cuda_host.hpp"]
    command += [str(HERE / "launch.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"g++ failed:\n{done.stderr}")
    return library


def sanitizer_runtime(sanitizer: str) -> str:
    """The library that a process must preload to run such a build."""
    name = _SANITIZERS[sanitizer][1]
    command = ["g++", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class HostRuntime:
    """A `mdsd_opt.gpu.runtime.DeviceRuntime` of the emulation; its buffers are NumPy arrays."""

    def __init__(
        self, library: Path, schedule: str = "forward", block_size: int = 128, seed: int = 1
    ) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.launch.argtypes = [
            ctypes.c_char_p,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
        self.cluster_size: int = self._library.cluster_size()
        self.schedule = schedule
        self.block_size = block_size
        self.seed = seed

    @property
    def threads_per_row(self) -> int:
        return self.cluster_size * self.block_size

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return a buffer of nonsense, so that what is not written shows."""
        buffer = np.empty(shape, dtype)
        buffer.view(np.uint8)[...] = 0xA5
        return buffer

    def upload(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.copy()

    def join(self, buffers: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(buffers, axis=-1)

    def address(self, buffer: NDArray[Any]) -> int:
        return buffer.ctypes.data

    def lane(self) -> HostLane:
        return HostLane()

    def give_back(self, lane: Any) -> None:
        pass

    def download(self, buffer: NDArray[Any]) -> NDArray[Any]:
        return buffer.copy()

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        assert all(a.flags.c_contiguous for a in arguments if isinstance(a, np.ndarray))
        values = [
            np.array(a.ctypes.data, np.uint64) if isinstance(a, np.ndarray) else np.array(a)
            for a in as_scalars(arguments)
        ]
        pointers = (ctypes.c_void_p * len(values))(*(v.ctypes.data for v in values))
        message = ctypes.create_string_buffer(500)
        blocks = self.cluster_size if kernel.in_clusters else 1
        failed = self._library.launch(
            kernel.expression(types).encode(),
            num_rows * blocks,
            min(self.block_size, BLOCK_SIZE),
            blocks,
            kernel.shared_bytes,
            pointers,
            SCHEDULES.index(self.schedule),
            self.seed,
            message,
            len(message),
        )
        if failed:
            raise KernelFault(message.value.decode())

    def remove_barrier(self, site: str) -> None:
        """Leave the barrier at "file:line" out from now on; "" puts it back."""
        self._library.remove_barrier(site.encode())

    def barriers_met(self) -> dict[str, int]:
        """How often a thread came to each barrier."""
        text = ctypes.create_string_buffer(100_000)
        self._library.read_barriers(text, ctypes.c_size_t(len(text)))
        pairs = (line.rsplit(" ", 1) for line in text.value.decode().splitlines())
        return {site: int(count) for site, count in pairs}


class HostLane:
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
            self.sent[name].view(np.uint8)[...] = 0xA5
        self.sent[name] = values.copy()
        return self.sent[name]


def host_logits(values: NDArray[Any]) -> DeviceLogits:
    """NumPy logits as the launchers take them; bfloat16 by way of ml_dtypes."""
    strides = tuple(s // values.itemsize for s in values.strides)
    return DeviceLogits(values.ctypes.data, values.dtype.name, values.shape, strides, values)
