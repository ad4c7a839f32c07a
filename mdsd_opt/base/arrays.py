"""Arrays of other libraries: recognised without importing them, brought to NumPy, and back.

`to_numpy` never changes the precision: bfloat16 arrives as `ml_dtypes.bfloat16`, as a view where
the memory can be shared. `as_logits` takes rows of numbers for what they are: logits, logarithms of
probabilities, or probabilities, which taken for logits would give another rate in silence.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import InvalidDistribution, InvalidInput

_LIBRARIES = ("torch", "jax", "cupy", "dask")


def library_of(array: object) -> str:
    """Name of the library an array comes from: "numpy", "torch", "jax", "cupy" or "dask".

    Anything else (lists, scalars, pandas objects) counts as "numpy".
    """
    for base in type(array).__mro__:
        root = base.__module__.partition(".")[0]
        if root == "jaxlib":
            return "jax"
        if root in _LIBRARIES:
            return root
    return "numpy"


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """An array of any library, looked up once; `name` is the argument it came from."""

    name: str
    array: Any
    library: str

    @classmethod
    def of(cls, array: Any, name: str = "array") -> Opened:
        """Look at an array; `InvalidInput` if it holds no numbers."""
        library = library_of(array)
        return cls(name, _checked(array, name) if library == "numpy" else array, library)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def numpy(self) -> NDArray[Any]:
        """Bring it to the host, without a change of dtype."""
        if self.library == "numpy":  # looked at when it was opened
            return np.asarray(self.array)
        if self.library == "torch":
            return _from_torch(self.array)
        if self.library == "cupy":
            return np.asarray(self.array.get())
        return _checked(self.array.compute() if self.library == "dask" else self.array, self.name)

    def like(self, result: NDArray[Any]) -> Any:
        """A result in the library of this array, and on its device."""
        if self.library == "torch":
            tensor = sys.modules["torch"].from_numpy(np.asarray(result, order="C"))
            return tensor.to(self.array.device)
        if self.library == "jax":
            return sys.modules["jax"].numpy.asarray(result)
        if self.library == "cupy":
            return sys.modules["cupy"].asarray(result)
        return result


def to_numpy(array: Any, name: str = "array") -> NDArray[Any]:
    """Bring any array-like to NumPy, on the host, without a change of dtype.

    Raises `InvalidInput` for what is no rectangular array of numbers (ragged lists, strings,
    objects).
    """
    return Opened.of(array, name).numpy()


def like(reference: object, result: NDArray[Any]) -> Any:
    """Hand `result` back in the library (and on the device) that `reference` came from."""
    return Opened("reference", reference, library_of(reference)).like(result)


def _checked(array: Any, name: str) -> NDArray[Any]:
    try:
        result = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is not an array of numbers: {error}") from error
    if result.dtype == object or result.dtype.kind in "USMmc":
        raise InvalidInput(
            f"{name} has dtype {result.dtype}, which holds no real numbers. "
            "Give float or integer arrays."
        )
    return result


def _from_torch(tensor: Any) -> NDArray[Any]:
    torch = sys.modules["torch"]
    if tensor.requires_grad or tensor.device.type != "cpu":
        tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # NumPy has no bfloat16: share the bits instead
        import ml_dtypes

        bits: NDArray[Any] = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    return tensor.numpy()


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Mark an array read-only and return it."""
    array.setflags(write=False)
    return array


KINDS = ("logits", "logprobs", "probs")

#: Rows that are looked at to see what they are.
_ROWS_SEEN = 8

#: Tokens of the first that are looked at before all are.
_TOKENS_SEEN = 64

#: By how much the sum of probabilities, stored in 16 bits, may be off.
_SUM_ERROR = 0.02


def as_logits(given: Opened, kind: str | None) -> Opened:
    """Rows (..., V) as logits, which they are taken for if no kind is given and they may be.

    Raises `InvalidInput` where there is no such kind, or where they look like probabilities and
    nobody said so; `InvalidDistribution` where they are not what they are said to be.
    """
    if kind not in (None, *KINDS):
        raise InvalidInput(f'kind is {kind!r}: give "logits", "logprobs" or "probs"')
    if kind != "logits" and given.library != "dask" and given.shape and 0 not in given.shape:
        _check(given, kind)
    return _log(given) if kind == "probs" else given


def _check(given: Opened, kind: str | None) -> None:
    """Raise unless the rows may be what they are said to be."""
    if kind is None and not (_first_numbers(given) >= 0).all():  # nearly all logits
        return
    rows = _first_rows(given)
    # Of a single token the sum says nothing.
    if kind is None and given.shape[-1] > 1 and _are_probabilities(rows):
        raise InvalidInput(
            f"the rows of {given.name} are not negative and sum to one, as probabilities do. "
            "Give the kind 'probs' if they are, or 'logits' if not"
        )
    if kind == "logprobs" and (rows.astype(np.float64) > _SUM_ERROR).any():
        raise InvalidDistribution(
            f"{given.name} has numbers above zero, which are no logarithms of probabilities"
        )
    if kind == "probs" and (given.array < 0).any():
        raise InvalidDistribution(f"{given.name} has negative numbers, which are no probabilities")
    if kind == "probs" and not _are_probabilities(rows):
        raise InvalidDistribution(f"{given.name} has rows that do not sum to one")


def _first_numbers(given: Opened) -> NDArray[np.float64]:
    """Numbers of the first row: few, as they may have to come from a device."""
    array = given.array[(0,) * (len(given.shape) - 1)][:_TOKENS_SEEN]
    return Opened(given.name, array, given.library).numpy().astype(np.float64)


def _first_rows(given: Opened) -> NDArray[Any]:
    """The first rows along the last axis but one; never all of them, as a reshape might copy."""
    array = given.array[(0,) * (len(given.shape) - 2)]
    if len(given.shape) > 1:
        array = array[:_ROWS_SEEN]
    return Opened(given.name, array, given.library).numpy()


def _are_probabilities(rows: NDArray[Any]) -> bool:
    rows = rows.astype(np.float64)
    return bool((rows >= 0).all() and (abs(rows.sum(-1) - 1.0) < _SUM_ERROR).all())


def _log(given: Opened) -> Opened:
    array: Any = given.array
    if given.library == "torch":
        array = (array.float() if array.element_size() < 4 else array).log()
    elif given.library == "numpy":
        array = _log_of_numpy(array)
    elif given.library == "dask":
        array = array.map_blocks(_log_of_numpy)
    else:
        array = sys.modules[{"jax": "jax.numpy"}.get(given.library, "cupy")].log(array)
    return Opened(given.name, array, given.library)


def _log_of_numpy(array: NDArray[Any]) -> NDArray[Any]:
    wide = array.astype(np.float32) if array.dtype.itemsize < 4 else array
    with np.errstate(divide="ignore"):
        logarithms: NDArray[Any] = np.log(wide)
    return logarithms
