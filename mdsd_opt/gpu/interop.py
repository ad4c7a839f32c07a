"""Access to arrays of other libraries on a device, in place and on their own stream.

Where an array lies is read from its DLPack capsule, without a copy. Reading the capsule itself,
instead of handing it to another library, is what lets bfloat16 through: few libraries know each
other's, and a kernel needs no more than a pointer.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.base.sampling import bad_row_error
from mdsd_opt.errors import InvalidInput
from mdsd_opt.gpu.runtime import DeviceLogits, DeviceRuntime, contiguous_strides

_LEGACY_STREAM = 1  # CUDA's default stream in DLPack's numbering
_NO_WAITING = -1

#: Kinds of memory and of numbers, by DLPack's numbers.
CPU, CUDA = 1, 2
_FLOAT, _BFLOAT = 2, 4
_STORED = {(_FLOAT, 32): "float32", (_FLOAT, 16): "float16", (_BFLOAT, 16): "bfloat16"}

_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype = ctypes.c_void_p
_pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]


def is_on_device(side: Opened) -> bool:
    """Whether an array lies in a CUDA device's memory."""
    if side.library not in ("cupy", "torch", "jax"):
        return False
    return device_of(side.array)[0] == CUDA


@contextmanager
def on_stream_of(side: Opened) -> Iterator[int]:
    """Make an array's device, and the stream its library works on, CuPy's current ones.

    Yields the stream as other libraries have to be told about it. JAX has no current stream: CuPy's
    own stays, and JAX makes it wait.
    """
    cupy = importlib.import_module("cupy")
    number = device_of(side.array)[1]
    with cupy.cuda.Device(number):
        if side.library == "torch":
            pointer = sys.modules["torch"].cuda.current_stream(number).cuda_stream
            with _stream_at(cupy, pointer, number):
                yield pointer or _LEGACY_STREAM
        else:
            yield cupy.cuda.get_current_stream().ptr or _LEGACY_STREAM


class _ForeignStream:
    """Stream of another library, as an object of CUDA's protocol for streams."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def _stream_at(cupy: Any, pointer: int, device: int) -> Any:
    """CuPy's object for a stream made elsewhere; before 14.0 CuPy knows no protocol."""
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_ForeignStream(pointer))
    return cupy.cuda.ExternalStream(pointer, device)


def place_of(array: Any) -> tuple[Any, ...]:
    """Where an array of CuPy or PyTorch lies, and how it is to be read; () for any other."""
    if hasattr(array, "data_ptr"):
        strides = array.stride(), array.is_neg()
        return type(array), array.data_ptr(), array.shape, array.dtype, strides
    pointer = getattr(getattr(array, "data", None), "ptr", None)
    if pointer is None:
        return ()
    return type(array), pointer, array.shape, array.dtype, array.strides


def require_one_device(*sides: Opened) -> None:
    """Raise `InvalidInput` for arrays on several devices; those on the host are sent to any."""
    found = {side.name: device_of(side.array)[1] for side in sides if is_on_device(side)}
    if len(set(found.values())) > 1:
        places = ", ".join(f"{name} is on device {number}" for name, number in found.items())
        raise InvalidInput(f"{places}: bring them to the same device")


def current_device() -> int:
    """Number of CuPy's current device."""
    return int(importlib.import_module("cupy").cuda.Device().id)


def opened(
    runtime: DeviceRuntime, side: Opened, stream: int, reference: Opened, copies: bool = True
) -> DeviceLogits | None:
    """Describe logits for the kernels; None if they are of a type that kernels do not read.

    `reference` is the side whose library's stream is the current one. Arrays of the same library
    need no waiting; others are told the stream, and arrays on the host are copied to the device, as
    are those with gaps between tokens, unless they are to stay where they are.
    """
    if not is_on_device(side):
        return sent(runtime, side.numpy())
    array = side.array
    if side.library == "torch":
        array = array.detach()
        array = array if not copies or array.stride(-1) == 1 else array.contiguous()
    elif side.library == "cupy" and copies:
        is_compact = array.strides[-1] == array.itemsize
        array = array if is_compact else importlib.import_module("cupy").ascontiguousarray(array)
    same = side.library == reference.library != "jax"
    return read_dlpack(array, _NO_WAITING if same else stream)


def sent(runtime: DeviceRuntime, values: NDArray[Any]) -> DeviceLogits | None:
    """Copy logits from the host; None if they are of a type that kernels do not read."""
    if not is_readable(values):
        return None
    buffer = runtime.upload(np.ascontiguousarray(values).view(np.uint8))
    strides = contiguous_strides(values.shape)
    return DeviceLogits(runtime.address(buffer), values.dtype.name, values.shape, strides, buffer)


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


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def read_dlpack(array: Any, stream: int | None = None) -> DeviceLogits | None:
    """Describe an array's memory; None if its numbers are none that the kernels read.

    Nor do they read an array whose last axis is not contiguous. `stream` is going to read it, in
    DLPack's numbering: -1 if it is the producer's own. The `owner` keeps the memory alive.
    """
    capsule = array.__dlpack__() if stream is None else array.__dlpack__(stream=stream)
    tensor = _Tensor.from_address(_pointer_in(capsule, b"dltensor"))
    dtype = _STORED.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        return None
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    else:  # contiguous
        strides = contiguous_strides(shape)
    if not shape or shape[-1] == 0:
        raise InvalidInput(f"logits of shape {shape}: the last axis must hold the tokens")
    if strides[-1] != 1 and shape[-1] > 1:
        return None
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceLogits(address, dtype, shape, strides, (array, capsule))


def device_of(array: Any) -> tuple[int, int]:
    """Kind of an array's memory and number of its device."""
    kind, number = array.__dlpack_device__()
    return int(kind), int(number)
