"""A genuine numpy Generator whose random numbers are answered by a source.

NumPy takes its randomness from a C structure of function pointers that a bit generator hands over
in a capsule. Here these functions are Python callbacks, so that any code written for
`numpy.random.Generator`, or for `numpy.random` itself, can be driven through chosen uniforms,
exactly 0.0 included.
"""

from __future__ import annotations

import ctypes
import threading

import numpy as np

from mdsd_opt.auditing.randomness.grids import DOUBLE
from mdsd_opt.auditing.randomness.source import Source

_UINT64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_UINT32 = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


class _BitFunctions(ctypes.Structure):
    """numpy's bitgen_t."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _UINT64),
        ("next_uint32", _UINT32),
        ("next_double", _DOUBLE),
        ("next_raw", _UINT64),
    )


class SourceBits:
    """A bit generator that asks a source.

    Attributes
    ----------
    generator : numpy.random.Generator
        Draws what the source answers.
    """

    def __init__(self, source: Source) -> None:
        self.lock = threading.RLock()
        self._functions = _BitFunctions(
            None,
            _UINT64(lambda _: source.bits(64)),
            _UINT32(lambda _: source.bits(32)),
            _DOUBLE(lambda _: source.uniforms(DOUBLE, (1,))[0]),
            _UINT64(lambda _: source.bits(64)),
        )
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self._name = b"BitGenerator"  # the capsule keeps a pointer to it
        self.capsule = new_capsule(ctypes.addressof(self._functions), self._name, None)
        self.generator = np.random.Generator(self)  # type: ignore[arg-type]  # duck-typed in numpy
