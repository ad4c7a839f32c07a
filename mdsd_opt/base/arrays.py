"""Arrays of other libraries: recognised without importing them, brought to NumPy, and back.

`to_numpy` never changes the precision: bfloat16 arrives as `ml_dtypes.bfloat16`, as a view where
the memory can be shared; PyTorch's 8-bit floats arrive in float32, which holds them all. What hides
numbers or holds none is refused: masks, sparse, complex and abstract tensors. `as_logits` takes
rows of numbers for what they are: logits, logarithms of probabilities, or probabilities, which
taken for logits would give another rate in silence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import InvalidDistribution, InvalidInput

Floats = NDArray[np.float64]
Law = NDArray[np.float64]  #: probabilities of all tokens
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Numbers = NDArray[Any]  #: float64, or Fractions
Row = NDArray[Any]  #: logits of one position, of any precision
Integers = NDArray[np.int64]
Tokens = NDArray[np.int64]
Keys = NDArray[np.uint16]
Flags = NDArray[np.bool_]
Text = tuple[int, ...]  #: token ids, in order
Model = Callable[[Text], Floats]  #: the law after a text


_LIBRARIES = ("torch", "jax", "cupy", "dask")

#: Module with the functions of each library, once somebody has imported it.
_MODULES = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy", "cupy": "cupy",
            "dask": "dask.array"}  # fmt: skip

#: Largest distance of a sum of probabilities from one that counts as rounding, not as an error.
SUM_TOLERANCE = 1e-3


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
    """An array of any library, with its library; `name` is the argument it came from."""

    name: str
    array: Any
    library: str
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(getattr(self.array, "shape", ())))

    @classmethod
    def of(cls, array: Any, name: str = "array") -> Opened:
        """Opened array, or sequence of arrays; `InvalidInput` if it holds no numbers.

        A sequence of tensors [B, V], one for each step, becomes [B, T, V], texts first.
        """
        if isinstance(array, (list, tuple)) and array:
            array = _stacked(array, name)
        library = library_of(array)
        if library == "numpy":
            array = _checked(array, name)
        elif library == "torch":
            array = _plain_tensor(array, name)
        return cls(name, array, library)

    def numpy(self) -> NDArray[Any]:
        """Array on the host, without a change of dtype."""
        if self.library == "numpy":  # looked at when it was opened
            return np.asarray(self.array)
        if self.library == "torch":
            return _from_torch(self.array, self.name)
        if self.library == "jax":
            return _checked(self.array, self.name)
        return _checked(
            self.array.get() if self.library == "cupy" else self.array.compute(), self.name
        )

    def like(self, result: NDArray[Any]) -> Any:
        """Result in the library of this array, and on its device."""
        if self.library == "torch":
            tensor = sys.modules["torch"].from_numpy(np.asarray(result, order="C"))
            return tensor.to(self.array.device)
        if self.library == "jax":
            return sys.modules["jax"].numpy.asarray(result)
        if self.library == "cupy":
            return sys.modules["cupy"].asarray(result)
        return result


def to_numpy(array: Any, name: str = "array") -> NDArray[Any]:
    """NumPy array of any array-like, on the host, without a change of dtype.

    Raises `InvalidInput` for what is no rectangular array of numbers (ragged lists, strings,
    objects).
    """
    return Opened.of(array, name).numpy()


def like(reference: object, result: NDArray[Any]) -> Any:
    """Convert `result` to the library (and the device) that `reference` came from."""
    return Opened("reference", reference, library_of(reference)).like(result)


def _checked(array: Any, name: str) -> NDArray[Any]:
    if _hides_numbers(array):
        raise InvalidInput(
            f"{name} is a masked array, and what its mask means is not known here: give "
            "array.filled(-numpy.inf) for logits, array.filled(0) for probabilities"
        )
    try:
        if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            array = np.from_dlpack(array)
        result = np.asarray(array)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidInput(f"{name} is not an array of numbers: {error}") from error
    if result.dtype.kind in "OUSMmc" or issubclass(result.dtype.type, np.void):
        wanted = "Give float or integer arrays"
        if result.dtype == "V2":  # as NumPy reads what it wrote of bfloat16
            wanted = "If it is bfloat16 that NumPy saved, give array.view(ml_dtypes.bfloat16)"
        raise InvalidInput(
            f"{name} has dtype {result.dtype}, which holds no real numbers. {wanted}."
        )
    return result


def _hides_numbers(array: Any) -> bool:
    """Whether the array is a masked one of NumPy's with something masked."""
    return isinstance(array, np.ndarray) and bool(np.any(getattr(array, "mask", False)))


def _stacked(arrays: list[Any] | tuple[Any, ...], name: str) -> Any:
    """One array of several; numbers and nested lists are returned as they are."""
    first, library = arrays[0], library_of(arrays[0])
    if library == "numpy" and not isinstance(first, np.ndarray):
        return arrays
    for array in arrays:
        if library_of(array) == "numpy":
            _checked(array, name)
        elif library == "torch":
            _plain_tensor(array, name)
    are_steps = first.ndim == 2 and (library == "torch" or len(first) == 1)
    try:
        return sys.modules[_MODULES[library]].stack(arrays, 1 if are_steps else 0)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"{name} is not an array of numbers: {error}") from error


def _plain_tensor(tensor: Any, name: str) -> Any:
    """Tensor whose numbers can be read, 8-bit floats in float32; an error for all others."""
    torch = sys.modules["torch"]
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        problem = "inside torch.func (vmap, grad): call this outside, on the whole batch"
    elif tensor.is_nested:
        problem = "nested: give torch.nested.to_padded_tensor(tensor, -torch.inf), or text by text"
    elif tensor.layout != torch.strided:
        problem = f"of layout {tensor.layout}, which leaves numbers out: give tensor.to_dense()"
    elif tensor.device.type == "meta":
        problem = "on the device meta, where there are no numbers: give one that was computed"
    elif tensor.is_complex():
        problem = f"of dtype {tensor.dtype}: give real numbers, such as tensor.real"
    elif tensor.is_quantized:
        problem = f"of dtype {tensor.dtype}: give tensor.dequantize()"
    elif not (tensor.is_floating_point() and tensor.element_size() == 1):
        return tensor
    else:
        try:
            return tensor.float()
        except (RuntimeError, NotImplementedError):
            problem = f"of dtype {tensor.dtype}, which PyTorch does not convert: give float32"
    raise InvalidInput(f"{name} is a tensor {problem}")


def _from_torch(tensor: Any, name: str) -> NDArray[Any]:
    torch = sys.modules["torch"]
    try:
        if tensor.dtype == torch.bfloat16:  # NumPy has no bfloat16: share the bits instead
            import ml_dtypes

            bits: NDArray[Any] = tensor.view(torch.int16).numpy(force=True)
            return bits.view(ml_dtypes.bfloat16)
        numbers: NDArray[Any] = tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:
        raise InvalidInput(f"{name} is a tensor without numbers to read: {error}") from error
    return numbers


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Mark an array read-only and return it."""
    array.setflags(write=False)
    return array


KINDS = ("logits", "logprobs", "probs")

#: Number of rows that are examined to guess their kind.
_ROWS_SEEN = 8

#: Number of tokens of the first row that are examined before all are.
_TOKENS_SEEN = 64

#: Distance of a sum from one up to which probabilities are suspected: they may be rounded much.
_LOOKS_LIKE_ONE = 0.02

#: Number of tokens that are summed at once.
_TOKENS_SUMMED = 1 << 18

#: Size from which integers, by their bytes, look like the bits of floats: of normal ones, for
#: 8 bits of those from 1/8 on.
_BITS_OF_FLOATS = {1: 1 << 5, 2: 1 << 10, 4: 1 << 23, 8: 1 << 52}


def as_logits(source: Opened, kind: Any) -> Opened:
    """Rows (..., V) as logits, which they are taken for if no kind is given and they may be.

    Raises `InvalidInput` where there is no such kind, where they are the bits of floats, or where
    they look like probabilities, or the largest of their logarithms, and nobody said so;
    `InvalidDistribution` where they are not what they are said to be.
    """
    if not (kind is None or (isinstance(kind, str) and kind in KINDS)):
        raise InvalidInput(f'kind is {kind!r:.60}: give "logits", "logprobs" or "probs"')
    if not source.shape or 0 in source.shape:
        return _log(source) if kind == "probs" and source.library != "dask" else source
    if source.library == "dask":
        rows = source.array.rechunk({-1: -1})
        dtype = np.result_type(rows.dtype, np.float32) if kind == "probs" else rows.dtype
        checked = rows.map_blocks(
            lambda block: as_logits(Opened.of(block, source.name), kind).array,
            dtype=dtype, meta=np.empty((0,) * rows.ndim, dtype),
        )  # fmt: skip
        return Opened(source.name, checked, "dask")
    if "int" in str(source.array.dtype):
        refuse_bits(source.numpy(), source.name)
    with np.errstate(over="ignore"):  # a sum that is infinite is not one, either
        if kind is None:
            _ask(source)
        elif kind != "logits":
            _check_sums(source, kind)
    return _log(source) if kind == "probs" else source


def refuse_bits(values: NDArray[Any], name: str) -> None:
    """Raise `InvalidInput` for integers that look like the bits of floats, not like logits."""
    if values.dtype.kind not in "iu" or values.size == 0:
        return
    width = values.dtype.itemsize
    largest = max(int(values.max()), -int(values.min()))
    if largest < _BITS_OF_FLOATS[width]:
        return
    meant = {1: "ml_dtypes.float8_e4m3fn", 4: "numpy.float32", 8: "numpy.float64"}.get(width)
    if meant is None:
        import ml_dtypes

        some = np.ascontiguousarray(values.reshape(-1)[:_TOKENS_SUMMED])
        sizes = np.abs(some[some != 0].view(ml_dtypes.bfloat16).astype(np.float64))
        usual = (sizes > 2.0**-7) & (sizes < 2.0**7)
        meant = "ml_dtypes.bfloat16" if usual.mean() > 0.9 else "numpy.float16"
    raise InvalidInput(
        f"{name} has integers of dtype {values.dtype} up to {largest}, which look like the bits of "
        f"floats. Give array.view({meant}) if they are, or convert them to float if they are logits"
    )


def _ask(source: Opened) -> None:
    """Raise if rows look like probabilities, or like the largest of their logarithms."""
    first = _first_numbers(source)
    if source.shape[-1] == 1:  # of a single token the sum says nothing
        return
    if (first >= 0).all() and look_like_probabilities(_first_rows(source)):
        raise InvalidInput(
            f"the rows of {source.name} are not negative and sum to one, as probabilities do. "
            "Give the kind 'probs' if they are, or 'logits' if not"
        )
    if (first <= 0).all() and _are_cut(_first_rows(source)):
        raise InvalidInput(
            f"the rows of {source.name} look like log-probabilities of the likeliest tokens alone, "
            f"the others -inf. {_INTERVAL}; give the kind 'logits' if the others cannot come"
        )


def _first_numbers(source: Opened) -> NDArray[np.float64]:
    """Numbers of the first row: few, as they may have to come from a device."""
    array = source.array[(0,) * (len(source.shape) - 1)][:_TOKENS_SEEN]
    return Opened(source.name, array, source.library).numpy().astype(np.float64)


def _first_rows(source: Opened) -> NDArray[np.float64]:
    """First rows along the last axis but one; never all of them, as a reshape might copy."""
    array = source.array[(0,) * (len(source.shape) - 2)]
    if len(source.shape) > 1:
        array = array[:_ROWS_SEEN]
    return Opened(source.name, array, source.library).numpy().astype(np.float64)


def look_like_probabilities(rows: NDArray[Any]) -> bool:
    """Whether no number is negative, and all rows sum to about one."""
    return bool((rows >= 0).all() and (abs(rows.sum(-1) - 1.0) < _LOOKS_LIKE_ONE).all())


def _are_cut(rows: NDArray[np.float64]) -> bool:
    """Whether all rows may be logarithms of probabilities of which most were left out."""
    if not (rows <= 0).all():
        return False
    sums = np.exp(rows).sum(-1)
    cut = (sums > _LEAST_LISTED) & (sums < 1.0 - SUM_TOLERANCE)
    return bool((cut & ((rows == -np.inf).mean(-1) > 0.5)).all())


#: Least mass of a list of the likeliest tokens of which somebody would make an array.
_LEAST_LISTED = 0.05

_INTERVAL = "Of such lists mdsd_opt.acceptance_interval gives certified bounds"


def _check_sums(batch: Opened, kind: str) -> None:
    """Raise unless every row sums to one, but for the rounding of its own numbers."""
    place = 0
    for rows in _blocks(batch.array):
        if kind == "probs" and (rows < 0).any():
            raise InvalidDistribution(
                f"{batch.name} has negative numbers, which are no probabilities"
            )
        sums = Opened(batch.name, _sums(rows, batch.library, kind), batch.library).numpy()
        off = np.atleast_1d(abs(sums.astype(np.float64) - 1.0) > SUM_TOLERANCE)
        for row in np.flatnonzero(off).tolist():
            array = rows[row] if len(rows.shape) > 1 else rows
            _check_row(Opened(batch.name, array, batch.library).numpy(), place + row, batch, kind)
        place += off.size


def _check_row(row: NDArray[Any], number: int, batch: Opened, kind: str) -> None:
    """Raise unless rounding explains the sum of a row, counted in the flattened batch."""
    values = row.astype(np.float64)
    last_bit = 2.0 ** -_significant_bits(row.dtype)
    if kind == "logprobs":
        likely = values[values > -np.inf]
        weights, errors = np.exp(likely), abs(likely) * last_bit
    else:
        weights, errors = values, np.full_like(values, last_bit)
    total = float(weights.sum())
    if abs(total - 1.0) <= SUM_TOLERANCE + float((weights * errors).sum()):
        return
    where = ", ".join(str(int(i)) for i in np.unravel_index(number, batch.shape[:-1]))
    name = f"{batch.name}{f' row {where}' if where else ''}"
    if kind == "logprobs" and values.max() > SUM_TOLERANCE:
        raise InvalidDistribution(
            f"{name} has numbers above zero, which are no logarithms of probabilities"
        )
    raise InvalidDistribution(
        f"{name}: its probabilities do not sum to one, but to {total:.6g}. If only the likeliest "
        f"tokens are listed, the rate is not known. {_INTERVAL}. Otherwise give what sums to one"
    )


def _significant_bits(dtype: np.dtype[Any]) -> int:
    """Number of significant bits of a float; 53 for integers."""
    if dtype.kind in "iub":
        return 53
    import ml_dtypes

    return int(ml_dtypes.finfo(dtype).nmant) + 1


def _blocks(array: Any) -> Iterator[Any]:
    """Rows of an array in their order, some at a time; never all, as a reshape might copy."""
    if len(array.shape) > 2:
        for part in array:
            yield from _blocks(part)
    elif len(array.shape) < 2:
        yield array
    else:
        size = max(1, _TOKENS_SUMMED // array.shape[-1])
        for start in range(0, array.shape[0], size):
            yield array[start : start + size]


def _sums(rows: Any, library: str, kind: str) -> Any:
    """Sums of probabilities of rows, in their library, of terms in single precision at least."""
    module = sys.modules[_MODULES[library]]
    if rows.dtype.itemsize < 4:
        rows = rows.float() if library == "torch" else rows.astype(module.float32)
    weights = module.exp(rows) if kind == "logprobs" else rows
    return weights.sum(-1) if library == "jax" else weights.sum(-1, dtype=module.float64)


def weighted_count(index: NDArray[Any], weights: Floats, size: int) -> Floats:
    """Sum of the weights at each index, float64 of shape (size,)."""
    total = np.bincount(index, weights=weights, minlength=size)
    return total.astype(np.float64, copy=False)  # of no weights bincount gives integers


def spread(rows: NDArray[Any], token_ids: Integers | slice, vocab_size: int) -> NDArray[Any]:
    """Logits (..., n) of some tokens at their places among all; the others cannot come."""
    wide = np.full((*rows.shape[:-1], vocab_size), -np.inf, np.result_type(rows.dtype, np.float32))
    wide[..., token_ids] = rows
    return wide


def checked_token_ids(token_ids: Any, draft_size: int, vocab_size: int, name: str) -> Integers:
    """Ids in the target of a draft's tokens, int64 of shape (draft_size,).

    Raises `InvalidInput` unless there is one for each, and all are tokens of the target.
    """
    ids = to_numpy(token_ids, name)
    if ids.shape != (draft_size,) or ids.dtype.kind not in "iu":
        raise InvalidInput(
            f"{name} has shape {ids.shape} and dtype {ids.dtype}, and the draft {draft_size} "
            "tokens: give the target's id of each of them, as integers. Where the draft's logits "
            "are at their places already, leave it out"
        )
    if np.unique(ids).size < ids.size or ids.min() < 0 or ids.max() >= vocab_size:
        raise InvalidInput(
            f"{name} has ids from {ids.min()} to {ids.max()}, {np.unique(ids).size} of "
            f"{ids.size} different: each is of one of the target's {vocab_size} tokens, no two of "
            "the same. (d2t of EAGLE holds differences: the id of token i is i + d2t[i])"
        )
    return ids.astype(np.int64)


def masked(source: Opened, mask: Any) -> Opened:
    """Logits (..., V) with ``-inf`` where a mask of booleans, which broadcasts to them, is False.

    Raises `InvalidInput` for a mask of another dtype or of a shape that does not fit.
    """
    allowed = Opened.of(mask, "mask")
    if "bool" not in str(allowed.array.dtype):
        raise InvalidInput(
            f"mask has dtype {allowed.array.dtype}: give booleans, True where a token is allowed, "
            "or numbers as lift="
        )
    require_broadcast(allowed, source, "boolean")
    array: Any = source.array
    if source.library == "dask":
        import dask.array as da

        array = da.where(da.asarray(allowed.numpy()), array, -np.inf)
    elif source.library == "torch":
        torch = sys.modules["torch"]
        place = torch.from_numpy(allowed.numpy().copy()).to(array.device)
        array = (array if array.is_floating_point() else array.double()).masked_fill(
            ~place, -np.inf
        )
    elif source.library == "numpy":
        floats = array if array.dtype.kind not in "iu" else array.astype(np.float64)
        array = np.where(allowed.numpy(), floats, np.array(-np.inf, floats.dtype))
    else:
        array = sys.modules[_MODULES[source.library]].where(
            source.like(allowed.numpy()), array, -np.inf
        )
    return Opened(source.name, array, source.library)


def require_broadcast(each: Opened, logits: Opened, kind: str) -> None:
    """Raise `InvalidInput` unless there is something of each token, for all rows or for each."""
    size, most = logits.shape, len(logits.shape)
    fits = len(each.shape) <= most and all(
        n in (1, size[most - 1 - i]) for i, n in enumerate(reversed(each.shape))
    )
    if not fits or not size or not each.shape or each.shape[-1] != size[-1]:
        raise InvalidInput(
            f"{each.name} has shape {each.shape} and {logits.name} has shape {size}: give one "
            f"{kind} a token, for all rows or for each"
        )


def _log(source: Opened) -> Opened:
    array: Any = source.array
    if source.library == "torch":
        array = (array.float() if array.element_size() < 4 else array).log()
    elif source.library == "numpy":
        array = _log_of_numpy(array)
    else:
        array = sys.modules[_MODULES[source.library]].log(array)
    return Opened(source.name, array, source.library)


def _log_of_numpy(array: NDArray[Any]) -> NDArray[Any]:
    wide = array.astype(np.float32) if array.dtype.itemsize < 4 else array
    with np.errstate(divide="ignore"):
        logarithms: NDArray[Any] = np.log(wide)
    return logarithms
