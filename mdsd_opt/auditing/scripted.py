"""A genuine numpy Generator whose random numbers are given in advance.

NumPy takes its randomness from a C structure of function pointers that a bit generator hands over
in a capsule. Here these functions are Python callbacks, so that any code written for
`numpy.random.Generator` can be driven through chosen uniforms, exactly 0.0 included.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping

import numpy as np

#: The largest double below 1 that a numpy Generator can return.
LARGEST_UNIFORM = 1.0 - 2.0**-53

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


class ScriptedBits:
    """A bit generator that follows a script, and an ordinary generator where the script is silent.

    Attributes
    ----------
    generator : numpy.random.Generator
        Draws the scripted numbers.
    drawn : int
        Numbers drawn since `restart`.
    drew_bits : bool
        Whether raw bits were drawn (as for integers and exponentials), not only uniforms.
    """

    def __init__(self, seed: int = 0) -> None:
        self.lock = threading.Lock()
        self._silent = np.random.default_rng(seed)
        self._script: Mapping[int, float] = {}
        self.drawn = 0
        self.drew_bits = False
        self._functions = _BitFunctions(
            None,
            _UINT64(lambda _: self._bits(64)),
            _UINT32(lambda _: self._bits(32)),
            _DOUBLE(lambda _: self._uniform()),
            _UINT64(lambda _: self._bits(64)),
        )
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self._name = b"BitGenerator"  # the capsule keeps a pointer to it
        self.capsule = new_capsule(ctypes.addressof(self._functions), self._name, None)
        self.generator = np.random.Generator(self)  # type: ignore[arg-type]  # duck-typed in numpy

    def restart(self, script: Mapping[int, float]) -> None:
        """Follow another script: place in the sequence of draws -> uniform in [0, 1)."""
        self._script = script
        self.drawn = 0
        self.drew_bits = False

    def _uniform(self) -> float:
        place = self.drawn
        self.drawn += 1
        value = self._script.get(place)
        return self._silent.random() if value is None else value

    def _bits(self, width: int) -> int:
        self.drew_bits = True
        return int(self._uniform() * 2.0**53) << 11 >> (64 - width)
