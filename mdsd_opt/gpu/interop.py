"""Arrays of other libraries on a device: read in place, on their own stream, and handed back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.base.distributions import bad_row_error
from mdsd_opt.gpu import dlpack
from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.layout import DeviceLogits

_LEGACY_STREAM = 1  # CUDA's default stream in DLPack's numbering
_NO_WAITING = -1


def is_on_device(side: Opened) -> bool:
    """Whether an array lies in a CUDA device's memory."""
    if side.library not in ("cupy", "torch", "jax"):
        return False
    return dlpack.device_of(side.array)[0] == dlpack.CUDA


@contextmanager
def on_stream_of(side: Opened) -> Iterator[int]:
    """Make an array's device, and the stream its library works on, CuPy's current ones.

    Yields the stream as other libraries have to be told about it. JAX has no current stream: CuPy's
    own stays, and JAX makes it wait.
    """
    cupy = importlib.import_module("cupy")
    number = dlpack.device_of(side.array)[1]
    with cupy.cuda.Device(number):
        if side.library == "torch":
            pointer = sys.modules["torch"].cuda.current_stream(number).cuda_stream
            with cupy.cuda.ExternalStream(pointer, number):
                yield pointer or _LEGACY_STREAM
        else:
            yield cupy.cuda.get_current_stream().ptr or _LEGACY_STREAM


def current_device() -> int:
    """Number of CuPy's current device."""
    return int(importlib.import_module("cupy").cuda.Device().id)


def opened(engine: Engine, side: Opened, stream: int, reference: Opened) -> DeviceLogits | None:
    """Describe logits for the kernels; None if they are of a type that kernels do not read.

    `reference` is the side whose library's stream is the current one. Arrays of the same library
    need no waiting; others are told the stream, and arrays on the host are copied to the device.
    """
    if not is_on_device(side):
        return sent(engine, side.numpy())
    array = side.array
    if side.library == "torch":
        array = array.detach()
        array = array if array.stride(-1) == 1 else array.contiguous()
    elif side.library == "cupy":
        is_compact = array.strides[-1] == array.itemsize
        array = array if is_compact else importlib.import_module("cupy").ascontiguousarray(array)
    same = side.library == reference.library != "jax"
    return dlpack.read(array, _NO_WAITING if same else stream)


def sent(engine: Engine, values: NDArray[Any]) -> DeviceLogits | None:
    """Copy logits from the host; None if they are of a type that kernels do not read."""
    if not is_readable(values):
        return None
    buffer = engine.upload(np.ascontiguousarray(values).view(np.uint8))
    strides = dlpack.contiguous_strides(values.shape)
    return DeviceLogits(engine.address(buffer), values.dtype.name, values.shape, strides, buffer)


def is_readable(values: NDArray[Any]) -> bool:
    """Whether the kernels read these numbers as they are."""
    return values.dtype.name in ("float32", "float16", "bfloat16") and values.dtype.isnative


def handed_back(reference: Opened, result: Any) -> Any:
    """Give a CuPy array to the library of `reference`, without a copy.

    JAX takes 32 bits unless it has 64 enabled.
    """
    if reference.library == "torch":
        return sys.modules["torch"].from_dlpack(result)
    if reference.library == "jax":
        jax = sys.modules["jax"]
        narrow = {"f": np.float32, "i": np.int32}[result.dtype.kind]
        return jax.dlpack.from_dlpack(
            result if jax.config.jax_enable_x64 else result.astype(narrow)
        )
    return result


def check_rows(is_bad: NDArray[np.int32], shape: tuple[int, ...], *sides: Opened) -> None:
    """Raise for the first row that is no distribution, with the words of the CPU."""
    bad = np.flatnonzero(is_bad)
    if bad.size == 0:
        return
    index = [int(i) for i in np.unravel_index(bad[0], shape)] if shape else []
    for side in sides:
        sizes = side.shape[:-1]
        own = index[len(index) - len(sizes) :]
        place = tuple(i if size > 1 else 0 for i, size in zip(own, sizes, strict=True))
        row = replace(side, array=side.array[place] if place else side.array).numpy()
        if not np.isfinite(row.max()):
            raise bad_row_error(side.name, index, row)
