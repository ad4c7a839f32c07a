"""NumPy's generators, answered by the source that is asked now.

NumPy takes its randomness from a C structure of function pointers in each bit generator. Here they
are Python callbacks, so that any code written for `numpy.random.Generator`, or for `numpy.random`
itself, can be driven through chosen uniforms, exactly 0.0 included. The bit generators are genuine
ones, whose states go on as they would: they can be read, put back, copied, spawned and jumped.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.sources import CPU_CLOCK, DOUBLE, GRIDS, Shape, Source, asked
from mdsd_opt.base.array_types import Vector

_UINT64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_UINT32 = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)

#: NumPy's own classes, bound before any of them is replaced.
BIT_GENERATORS: dict[str, Any] = {
    name: getattr(np.random, name) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
}

#: Bytes of the state of MT19937 in C, which `MT19937.state` copies number by number.
_TWISTER_BYTES = 625 * 4

#: States of a draw of many numbers that are remembered.
_MOST_PLACES = 64

#: Functions of `numpy.random` that draw uniforms and exponentials, and the methods behind them.
_FUNCTIONS = {
    **dict.fromkeys(("random", "random_sample", "ranf", "sample"), "random"),
    **{name: name for name in ("rand", "uniform", "exponential", "standard_exponential", "gumbel")},
}


class _BitFunctions(ctypes.Structure):
    """The C structure bitgen_t of NumPy."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _UINT64),
        ("next_uint32", _UINT32),
        ("next_double", _DOUBLE),
        ("next_raw", _UINT64),
    )


class ServedBits:
    """What makes a bit generator ask for its numbers. Where no source is asked, they are its own.

    A generator that was kept from an audit before goes on in that way.
    """

    capsule: Any
    state: Any

    def __init__(self, seed: Any = None) -> None:
        super().__init__(seed)  # type: ignore[call-arg]  # of the class that it is mixed into
        functions = _BitFunctions.from_address(_pointer_of(self.capsule, b"BitGenerator"))
        own = ctypes.cast(functions.next_uint64, ctypes.c_void_p).value
        assert own is not None
        self._at, self._step = functions.state, _UINT64(own)
        self._kept = (
            _UINT64(lambda _: self._word(64)),
            _UINT32(lambda _: self._word(32)),
            _DOUBLE(lambda _: self.uniform()),
        )
        functions.next_uint64, functions.next_uint32, functions.next_double = self._kept
        functions.next_raw = self._kept[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_kind, (type(self).__name__,), super().__reduce__()[2]

    def _place(self) -> Hashable:
        if isinstance(self, BIT_GENERATORS["MT19937"]):
            return "numpy", hash(ctypes.string_at(self._at, _TWISTER_BYTES))
        state = self.state
        parts = (part if isinstance(part, int) else repr(part) for part in state["state"].values())
        return "numpy", *parts, state.get("buffer_pos")

    def _word(self, width: int) -> int:
        place, number, source = self._place(), self._step(self._at), asked()
        if source is None:
            return int(number) >> (64 - width)
        return int(source.followed([place], width, lambda: source.bits(width)))

    def uniform(self) -> float:
        """A single one, of which a law that is driven takes thousands."""
        place, number, source = self._place(), self._step(self._at), asked()
        if source is None:
            return math.ldexp(number >> 11, -53)
        answer = source.followed([place], DOUBLE.name, lambda: source.uniforms(DOUBLE, (1,)))
        return float(answer[0])

    def uniforms(self, name: str, shape: Shape) -> Vector:
        """Uniforms of a type."""
        grid = GRIDS[name]
        return self._drawn(name, shape, lambda source, at: source.uniforms(grid, at), lambda u: u)

    def clocks(self, shape: Shape) -> Vector:
        """Exponentials of rate one."""
        return self._drawn(
            "exponential",
            shape,
            lambda source, at: source.clocks(CPU_CLOCK, at),
            lambda u: -np.log1p(-u),
        )

    def _drawn(
        self,
        kind: str,
        shape: Shape,
        draw: Callable[[Source, Shape], Vector],
        own: Callable[[Vector], Vector],
    ) -> Vector:
        size, source = math.prod(shape), asked()
        places, numbers = list[Hashable](), np.empty(size)
        for n in range(size):
            if n < _MOST_PLACES:
                places.append(self._place())
            numbers[n] = math.ldexp(self._step(self._at) >> 11, -53)
        if source is None or not size:
            return own(numbers).reshape(shape)
        # A single number is the same by whatever function it is drawn.
        told, at = (kind, (1,)) if size == 1 else ((kind, shape), shape)
        answer = source.followed(places, told, lambda: draw(source, at))
        return np.array(answer).reshape(shape)


@cache
def served_kind(name: str) -> Any:
    """Bit generator of this name, as a class whose objects ask for their numbers."""
    made = type(name, (ServedBits, BIT_GENERATORS[name]), {})
    made.__module__ = __name__
    return made


def _of_kind(name: str) -> Any:
    return served_kind(name)()


class _Drawing:
    """Methods that draw whole arrays at once, so that rows of them can be races."""

    _bit_generator: Any

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if size is None and dtype is np.float64 and out is None:
            return self._bit_generator.uniform()
        shape = _shape(size if out is None else out.shape)
        return _given(self._bit_generator.uniforms(np.dtype(dtype).name, shape), dtype, out)

    random_sample = random

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        shape = _shape(size if out is None else out.shape)
        return _given(self._bit_generator.clocks(shape), dtype, out)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        return _scaled(self._bit_generator.clocks(_shape(size, scale)), 0.0, scale)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        with np.errstate(divide="ignore"):
            noise = -np.log(self._bit_generator.clocks(_shape(size, loc, scale)))
        return _scaled(noise, loc, scale)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        width = np.subtract(high, low)
        return _given(low + width * self._bit_generator.uniforms(DOUBLE.name, _shape(size, width)))


class ServedGenerator(_Drawing, np.random.Generator):
    """A generator of NumPy on `ServedBits`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedGenerator, (self._bit_generator,)


class ServedRandomState(_Drawing, np.random.RandomState):
    """A legacy generator of NumPy on `ServedBits`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedRandomState, (self._bit_generator,)


@contextmanager
def functions_served() -> Iterator[None]:
    """Answer draws by the functions of `numpy.random`, which have one generator."""
    legacy: Any = np.random  # typed without some of these functions
    drawing = ServedRandomState(served_kind("MT19937")())
    with ExitStack() as stack:
        stack.callback(legacy.set_bit_generator, legacy.get_bit_generator())
        legacy.set_bit_generator(drawing._bit_generator)
        for name, method in _FUNCTIONS.items():
            stack.callback(setattr, legacy, name, getattr(legacy, name))
            setattr(legacy, name, getattr(drawing, method))
        yield


def _shape(size: Any, *parameters: Any) -> Shape:
    if size is None:
        return np.broadcast_shapes(*(np.shape(each) for each in parameters))
    return tuple(size) if np.iterable(size) else (int(size),)


def _scaled(drawn: Vector, loc: Any, scale: Any) -> Any:
    if (np.asarray(scale) < 0).any():
        raise ValueError("scale < 0")
    return _given(loc + scale * drawn)


def _given(values: Any, dtype: Any = np.float64, out: Any = None) -> Any:
    """Numbers as NumPy's own methods return them."""
    if out is not None:
        out[...] = values
        return out
    return np.asarray(values).astype(dtype) if np.ndim(values) else float(values)
