"""A batch of logits, opened once: its arrays, the work on every row, and the rows of a task.

Nothing here copies or converts a whole batch. Rows that a kernel can read where they are stay
there; all others are brought into shape by the thread that is going to use them. The kernels
release the GIL, so threads are all it takes. They are made anew for every call, which costs a
fraction of a millisecond and leaves nothing behind; calls from several threads at once do not know
of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.array_types import Floats, Integers
from mdsd_opt.base.arrays import Opened, frozen, spread
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.logits import Logits, Reading, batch_shape
from mdsd_opt.base.long_runs import available_threads, progress_bar, threaded
from mdsd_opt.base.sampling import Sampling, bad_row_error
from mdsd_opt.drafts import checked_scheme
from mdsd_opt.errors import (
    InvalidDistribution,
    InvalidInput,
    MdsdError,
    UnknownName,
    UnsupportedScheme,
)
from mdsd_opt.prefix_search import BatchRates, RowFunction
from mdsd_opt.verifiers import Verifier, batch_verifiers


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Logits as they were given, and the work on them, with its device.

    Nothing is copied or converted before it is known where to.
    """

    work: RowWork
    logits: Logits
    device: str | None = None

    @property
    def may_use_a_device(self) -> bool:
        """Whether to ask for a device: arrays of NumPy go there on request only."""
        if self.device is None:
            return {self.logits.target.library, self.logits.draft.library} != {"numpy"}
        return self.device != "cpu"

    def rates(self, keep_axis: bool = True) -> Any:
        """Rates by the CPU, shape (..., len(num_drafts)); without the last axis on request."""
        if self.logits.is_lazy:
            return _dask_rates(self, keep_axis)
        rates = self.work.rates(*paired_rows(*self.logits.sides))
        if not keep_axis:
            rates = rates[..., 0]
        reference = self.logits.reference
        return rates[()] if reference.library == "numpy" else reference.like(rates)


def _dask_rates(batch: Batch, keep_axis: bool) -> Any:
    """Lazy array of rates, with the chunks of the target's leading axes.

    A row of logits must lie in one chunk, so the last axis is rechunked where it does not.
    """
    if batch.device not in (None, "cpu"):
        raise InvalidInput(
            f'device="{batch.device}" takes no Dask arrays: call acceptance_rates on their blocks'
        )
    import dask.array as da

    work = batch.work
    if work.num_threads is None:  # Dask runs the blocks in parallel already
        work = replace(work, num_threads=1)
    *sides, reading = batch.logits.sides
    target, draft = (da.asarray(side.array) for side in sides)
    if target.shape[:-1] != draft.shape[:-1]:
        raise InvalidInput(
            f"target_logits has shape {target.shape} and draft_logits has shape {draft.shape}: "
            "Dask arrays need the same leading axes"
        )
    target = target.rechunk({-1: -1})
    draft = draft.rechunk((*target.chunks[:-1], -1))
    last = target.ndim - 1

    def block(p: NDArray[Any], q: NDArray[Any], block_info: dict[Any, Any] | None = None) -> Floats:
        location = block_info[0]["array-location"] if block_info else []
        sides = Opened.of(p, "target_logits"), Opened.of(q, "draft_logits")
        origin = tuple(start for start, _ in location[:-1])
        rates = work.rates(*paired_rows(*sides, reading, origin))
        return rates if keep_axis else rates[..., 0]

    chunks = target.chunks[:-1] + (((len(work.num_drafts),),) if keep_axis else ())
    return da.map_blocks(
        block, target, draft, dtype=np.float64, chunks=chunks, drop_axis=last,
        new_axis=last if keep_axis else None, meta=np.empty((0,) * len(chunks)),
    )  # fmt: skip


#: Number of tokens a thread takes at once: milliseconds of work, little enough to be shared evenly.
_TOKENS_PER_TASK = 1 << 20

#: Least number of tokens per thread: smaller batches are not worth one.
_TOKENS_PER_THREAD = 1 << 16


@dataclass(frozen=True)
class RowWork:
    """Work to do on every row, without the rows themselves."""

    scheme: str
    verifier: str | Verifier
    num_drafts: tuple[int, ...]
    num_threads: int | None = None
    progress: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_threads is not None:
            checked_integer(self.num_threads, "num_threads")

    @property
    def threads(self) -> int:
        """Number of threads: as requested, or as many as there are processors for this process."""
        return available_threads() if self.num_threads is None else self.num_threads

    @cached_property
    def declared(self) -> BatchRates:
        """Declaration of the verifier's rates for these drafts.

        Raises `UnknownName`, which lists those that exist, and `UnsupportedScheme` where both
        exist, but not together, or not for these numbers of drafts.
        """
        checked_scheme(self.scheme)
        try:
            rule = verifiers.get(self.verifier)
        except UnknownName:
            raise UnknownName.among("verifier", self.verifier, batch_verifiers()) from None
        rates = rule.batch_rates_for(self.scheme)
        if rates is None:
            raise UnsupportedScheme(
                f"there are no batched rates of verifier {rule.name!r} with drafts "
                f"{self.scheme!r}. Verifiers for these drafts: "
                f"{', '.join(batch_verifiers(self.scheme))}."
            )
        for k in self.num_drafts:
            rule.check_num_drafts(k)
        return rates

    def rates(
        self,
        target: LogitRows,
        draft: LogitRows,
        function: RowFunction | None = None,
        num_columns: int | None = None,
    ) -> Floats:
        """Rates of all rows, shape (..., len(num_drafts)); or a function's results, in its columns.

        `declared` says which function computes them unless one is given.
        """
        if function is None:
            function = self.declared.row_function(self.seed)
        num_columns = num_columns or len(self.num_drafts)
        rates = np.empty((math.prod(target.index_shape), num_columns))
        one_by_one = getattr(function, "is_slow", False)
        size = 1 if one_by_one else self._rows_at_once(len(rates), target, draft)
        tasks = [range(i, min(i + size, len(rates))) for i in range(0, len(rates), size)]
        dtype, vocab_size = common_dtype(target, draft), max(target.vocab_size, draft.vocab_size)
        scales = target.sampling.scale, draft.sampling.scale
        counts = np.array(self.num_drafts, dtype=np.int64)

        def run(rows: range) -> int:
            start, stop = rows.start, rows.stop
            p, q = (side.read(start, stop, dtype, vocab_size) for side in (target, draft))
            totals = np.empty((len(rows), 2))
            try:
                function(p, q, *scales, counts, rates[start:stop], totals)
            except MdsdError as error:
                if not one_by_one or isinstance(error, InvalidDistribution):
                    raise
                raise type(error)(f"row {target.name_of(start)}: {error}") from error
            bad = ~np.isfinite(totals)
            if bad.any():
                row, side = np.argwhere(bad)[0]
                raise (target, draft)[side].bad_row(start + int(row))
            return len(rows)

        with progress_bar("acceptance rates", rates.shape[0], self.progress) as advance:
            for done in threaded(run, tasks, self.threads, "acceptance_rates"):
                advance(done)
        return rates.reshape(*target.index_shape, num_columns)

    def _rows_at_once(self, num_rows: int, target: LogitRows, draft: LogitRows) -> int:
        vocab_size = max(target.vocab_size, draft.vocab_size)
        size = max(1, _TOKENS_PER_TASK // vocab_size)
        if self.threads > 1:
            evenly = math.ceil(num_rows / (4 * self.threads))
            at_least = max(1, _TOKENS_PER_THREAD // vocab_size)
            size = max(min(size, evenly), at_least)
        return size


@dataclass(frozen=True, slots=True, eq=False)
class LogitRows:
    """One side of a batch, flattened to rows; `values` have shape (..., V), and two axes at least.

    Messages use the argument they came from, the batch's shape, () for a single row, and the number
    added to the index of a row where a part of a larger batch begins.
    """

    name: str
    values: NDArray[Any]
    sampling: Sampling
    index_shape: tuple[int, ...]
    origin: tuple[int, ...]
    token_ids: Integers | None = None  # of the columns; those of the first tokens by default

    @property
    def vocab_size(self) -> int:
        """Width of the rows."""
        return self.values.shape[-1]

    def read(self, start: int, stop: int, dtype: np.dtype[Any], vocab_size: int) -> NDArray[Any]:
        """Rows start .. stop as a kernel needs them: contiguous, aligned, read-only, padded."""
        if self.values.flags.c_contiguous:
            rows = self.values.reshape(-1, self.vocab_size)[start:stop]
        else:
            rows = self.values[np.unravel_index(np.arange(start, stop), self.values.shape[:-1])]
        if self.sampling.masks_tokens:
            rows = self._masked(rows, start)
        rows = converted(rows, dtype)
        if self.token_ids is not None:
            rows = spread(rows, self.token_ids, vocab_size)
        elif rows.shape[1] < vocab_size:
            rows = spread(rows, slice(rows.shape[1]), vocab_size)
        rows = np.require(rows, requirements=["C", "A"])
        # One kind of array, read-only, whatever was given: each other kind would be compiled anew.
        return frozen(rows.view(dtype))

    def _masked(self, rows: NDArray[Any], start: int) -> Floats:
        """Rows with -inf where a token is filtered out."""
        values = rows.astype(np.float64)
        largest = values.max(axis=1)
        if not np.isfinite(largest).all():
            raise self.bad_row(start + int(np.argmin(np.isfinite(largest))))
        return np.where(self.sampling.law(values) > 0, values, -np.inf)

    def probabilities(self, row: int) -> Floats:
        """Probabilities of one row, counted in the flattened batch, in float64, shape (V,)."""
        values = self.values[np.unravel_index(row, self.values.shape[:-1])].astype(np.float64)
        if not np.isfinite(values.max()):
            raise self.bad_row(row)
        return self.sampling.law(values)

    def bad_row(self, row: int) -> InvalidDistribution:
        """Error that says what is wrong with a row, counted in the flattened batch."""
        values = self.values[np.unravel_index(row, self.values.shape[:-1])]
        return bad_row_error(self.name, self._index(row), values)

    def name_of(self, row: int) -> str:
        """Name of a row in messages."""
        return ", ".join(map(str, self._index(row))) or "0"

    def _index(self, row: int) -> list[int]:
        index = np.unravel_index(row, self.index_shape) if self.index_shape else ()
        return [int(i) + o for i, o in zip(index, self.origin, strict=True)]


def paired_rows(
    target_logits: Opened, draft_logits: Opened, reading: Reading, origin: tuple[int, ...] = ()
) -> tuple[LogitRows, LogitRows]:
    """Both sides of a batch, of one shape up to the width of the vocabularies."""
    index_shape = batch_shape(target_logits.shape, draft_logits.shape)
    sides = []
    for side, sampling, ids in (
        (target_logits, reading.target, None),
        (draft_logits, reading.draft, reading.draft_token_ids),
    ):
        values = side.numpy()
        shape = (*(index_shape or (1,)), values.shape[-1])
        wide = np.broadcast_to(values, shape) if values.shape != shape else values
        start = origin or (0,) * len(index_shape)
        sides.append(LogitRows(side.name, wide, sampling, index_shape, start, ids))
    return sides[0], sides[1]


def common_dtype(target: LogitRows, draft: LogitRows) -> np.dtype[Any]:
    """Type float32 if both sides can be read so without loss, else float64."""
    names = {_float_name(target), _float_name(draft)}
    if not all(1e-6 < side.sampling.scale < 1e6 for side in (target, draft)):
        names = {"float64"}  # float32 arithmetic would not do
    single = names <= {"bfloat16", "float16", "float32"}
    return np.dtype(np.float32 if single else np.float64)


def converted(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows in another dtype."""
    if rows.dtype != np.float16 or dtype != np.float32 or not rows.dtype.isnative:
        return rows.astype(dtype, copy=False)
    from mdsd_opt.prefix_search import decode_halves

    numbers = np.empty(rows.shape, np.float32)
    bits = np.ascontiguousarray(rows).view(np.uint16).reshape(-1)
    decode_halves(frozen(bits), numbers.reshape(-1))
    return numbers


def _float_name(rows: LogitRows) -> str:
    native = rows.values.dtype.isnative and not rows.sampling.masks_tokens
    return rows.values.dtype.name if native else "float64"
