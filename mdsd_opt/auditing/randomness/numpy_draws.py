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
from operator import methodcaller
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.sources import CPU_CLOCK, DOUBLE, GRIDS, Shape, Source, asked
from mdsd_opt.base.arrays import Vector

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

#: Bytes of the state of PCG64 in C.
_PCG_BYTES = 32

#: States of a draw of many numbers that are remembered.
_MOST_PLACES = 1024

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


def _fraction(word: int) -> float:
    return math.ldexp(word >> 11, -53)


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
        self._words = 0  # where those of PCG64 stand, state and increment
        if isinstance(self, (BIT_GENERATORS["PCG64"], BIT_GENERATORS["PCG64DXSM"])):
            self._words = ctypes.c_void_p.from_address(self._at).value or 0
        self._kept = (
            _UINT64(lambda _: self._one(64, lambda source: source.bits(64), int)),
            _UINT32(lambda _: self._one(32, lambda source: source.bits(32), lambda x: x >> 32)),
            _DOUBLE(lambda _: self.uniform()),
        )
        functions.next_uint64, functions.next_uint32, functions.next_double = self._kept
        functions.next_raw = self._kept[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_kind, (type(self).__name__,), super().__reduce__()[2]

    def _place(self) -> int:
        if self._words:
            return hash(ctypes.string_at(self._words, _PCG_BYTES))
        if isinstance(self, BIT_GENERATORS["MT19937"]):
            return hash(ctypes.string_at(self._at, _TWISTER_BYTES))
        state = self.state
        return hash((*map(repr, state["state"].values()), state.get("buffer_pos")))

    def _one(self, kind: Hashable, draw: Callable[[Source], Any], own: Callable[[int], Any]) -> Any:
        place, word, source = self._place(), self._step(self._at), asked()
        return own(word) if source is None else source.answer(place, kind, draw)

    def uniform(self) -> float:
        """A uniform in float64: of these, a law that is driven takes thousands."""
        words, source = self._words, asked()
        if source is None or not words:
            return float(self._one(DOUBLE.name, _uniform, _fraction))
        place = hash(ctypes.string_at(words, _PCG_BYTES))
        self._step(self._at)
        number: float = source.answer(place, DOUBLE.name, _uniform)
        return number

    def drawn(
        self,
        kind: str,
        shape: Shape,
        draw: Callable[[Source, Shape], Vector],
        own: Callable[[int], float] = _fraction,
    ) -> Vector:
        """Numbers of one kind, or what they are of `own` words."""
        size, source, places = math.prod(shape), asked(), list[int]()
        if size == 1:  # the same by whatever function it is drawn
            return np.full(shape, self._one(kind, lambda source: draw(source, (1,))[0], own))
        if source is None or size == 0:
            return np.array([own(self._step(self._at)) for _ in range(size)]).reshape(shape)
        for n in range(size):
            if n < _MOST_PLACES:
                places.append(self._place())
            self._step(self._at)
        return np.array(source.followed(places, (kind, shape), lambda: draw(source, shape)))


@cache
def served_kind(name: str) -> Any:
    """Bit generator of this name, as a class whose objects ask for their numbers."""
    return type(name, (ServedBits, BIT_GENERATORS[name]), {})


def _of_kind(name: str) -> Any:
    return served_kind(name)()


class _Drawing:
    """Methods that draw whole arrays at once, so that rows of them can be races."""

    _bit_generator: Any

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if size is None and dtype is np.float64 and out is None:
            return self._bit_generator.uniform()
        grid = GRIDS[np.dtype(dtype).name]
        return self._filled(
            size, dtype, out, grid.name, lambda source, at: source.uniforms(grid, at)
        )

    random_sample = random

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        return self._filled(size, dtype, out, "exponential", _clocks, _exponential)

    def _filled(self, size: Any, dtype: Any, out: Any, *draw: Any) -> Any:
        kind, *how = draw
        numbers = self._bit_generator.drawn(kind, _shape(size if out is None else out.shape), *how)
        if out is None:
            return _given(numbers.astype(dtype))
        out[...] = numbers
        return out

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        return _given(_scale(scale) * self.standard_exponential(_shape(size, scale)))

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        with np.errstate(divide="ignore"):
            noise = -np.log(self.standard_exponential(_shape(size, loc, scale)))
        return _given(loc + _scale(scale) * noise)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        width = np.subtract(high, low)
        return _given(low + width * self.random(_shape(size, width)))


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
    bits = served_kind("MT19937")()
    with ExitStack() as stack:
        stack.callback(legacy.set_bit_generator, legacy.get_bit_generator())
        legacy.set_bit_generator(bits)
        for name, method in _FUNCTIONS.items():
            stack.callback(setattr, legacy, name, getattr(legacy, name))
            setattr(legacy, name, getattr(ServedRandomState(bits), method))
        yield


#: Asks a source for a uniform in float64.
_uniform = methodcaller("uniform", DOUBLE)


def _clocks(source: Source, shape: Shape) -> Vector:
    return source.clocks(CPU_CLOCK, shape)


def _exponential(word: int) -> float:
    return -math.log1p(-_fraction(word))


def _scale(scale: Any) -> Any:
    if (np.asarray(scale) < 0).any():
        raise ValueError("scale < 0")
    return scale


def _shape(size: Any, *parameters: Any) -> Shape:
    if size is None:
        return np.broadcast_shapes(*(np.shape(each) for each in parameters))
    return tuple(size) if np.iterable(size) else (int(size),)


def _given(numbers: Any) -> Any:
    """Numbers as NumPy's own methods return them."""
    return numbers if np.ndim(numbers) else float(numbers)
