"""Where an array of any library lies, read from its DLPack capsule without taking a copy.

Reading the capsule itself, instead of handing it to another library, is what lets bfloat16 through:
few libraries know each other's, and a kernel needs no more than a pointer.
"""

from __future__ import annotations

import ctypes
from typing import Any

from mdsd_opt.errors import InvalidInput
from mdsd_opt.gpu.layout import DeviceLogits

#: Kinds of memory in DLPack's numbering.
CPU = 1
CUDA = 2

_FLOAT = 2
_BFLOAT = 4


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


_STORED = {(_FLOAT, 32): "float32", (_FLOAT, 16): "float16", (_BFLOAT, 16): "bfloat16"}

_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype = ctypes.c_void_p
_pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]


def read(array: Any, stream: int | None = None) -> DeviceLogits | None:
    """Describe an array's memory; None if its numbers are none that the kernels read.

    Parameters
    ----------
    array : object with ``__dlpack__``
    stream : int, optional
        The stream that is going to read it, in DLPack's numbering; -1 if it is the producer's own.

    Returns
    -------
    DeviceLogits
        Its `owner` keeps the memory alive. An array whose last axis is not contiguous is None, too.
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
    """Kind of memory and number of the device."""
    kind, number = array.__dlpack_device__()
    return int(kind), int(number)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)
