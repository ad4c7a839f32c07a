"""Acceptance rates of batches of logits, which are opened once, and the work on every row.

Nothing here copies or converts a whole batch. Rows that a kernel can read where they are stay
there; all others are brought into shape by the thread that is going to use them. The kernels
release the GIL, so threads are all it takes. They are made anew for every call, which costs a
fraction of a millisecond and leaves nothing behind; calls from several threads at once do not know
of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard, Unpack

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import Floats, Integers, Opened, frozen, spread
from mdsd_opt.base.checked import Rng, checked_integer, drawn_seed, is_among
from mdsd_opt.base.logits import Logits, LogitsKeywords, Reading, batch_shape, of_logits
from mdsd_opt.base.long_runs import available_threads, progress_bar, threaded
from mdsd_opt.base.sampling import Sampling, bad_row_error
from mdsd_opt.drafts import checked_num_drafts, checked_scheme
from mdsd_opt.errors import (
    InvalidDistribution,
    InvalidInput,
    MdsdError,
    UnknownName,
    UnsupportedScheme,
)
from mdsd_opt.prefix_search import BatchRates, RowFunction
from mdsd_opt.verifiers import Verifier, batch_verifiers


@of_logits(late=("temperature", "draft_temperature", "top_k", "top_p", "min_p"), seed="rng")
def acceptance_rates(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int | Sequence[int] = 3,
    drafts: str = "with_replacement",
    verifier: str | Verifier = "optimal",
    *,
    num_threads: int | None = None,
    progress: bool = False,
    rng: Rng = 0,
    device: str | None = None,
    **options: Unpack[LogitsKeywords],
) -> Any:
    r"""Probability that the output token is among the drafts, for every row of logits.

    With p the target's and q the draft's distribution of a row, the best that any lossless
    verifier can reach is

    .. math:: \alpha^* = 1 + \min_{H \subseteq [V]} \left[ P(H) - \Pr(\text{all drafts in } H)
              \right]

    attained on a prefix of the tokens ordered by p/q [Hu25]. Other verifiers reach less.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Logits of both models; or a pair of them, `mdsd_opt.Logits`, as the first argument.
    num_drafts : int or sequence of int
        K. Several of them share the work and are the last axis of the result.
    drafts : {"with_replacement", "without_replacement", "greedy", "top_k"}
        Scheme by which the drafts come from q: K independent draws; K draws without replacement;
        the K - 1 likeliest tokens and one draw from the rest; the K likeliest tokens. Ties go to
        the lowest token id. Or a name that was registered (`mdsd_opt.drafts.register`).
    verifier : str or Verifier
        Verification algorithm: a name of `mdsd_opt.verifiers.names`, ``"module:attribute"``, or a
        verifier. Of "importance_sampling" [Khisti25], "gumbel" [GLS] and "race" the rates are lower
        bounds.
        A verifier of your own that declares no `batch_rates` for these drafts is asked for its rate
        position by position.
    num_threads : int, optional
        Threads; as many as there are processors for this process by default. The result does not
        depend on it, bit for bit.
    progress : bool
        Show a progress bar on stderr.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one. It is that of "rrs" without replacement,
        which is exact at K <= 2 and on small vocabularies (up to 223 tokens at K = 3), and
        otherwise an average over 256 sequences of rejected tokens: its standard error on the
        bundled real logits is 0.0002 a row on average, 0.0013 at most. The estimate depends on
        nothing but the row, the seed and its own K.
    device : {None, "cpu", "gpu", "cuda"}
        Device to compute on. None goes by the logits: those on a CUDA device stay there, if CuPy is
        installed and there are kernels for what is asked; all else is done by the CPU. "gpu" sends
        NumPy arrays to the device, too, in chunks, and raises where None would turn to the CPU.
    **options
        How laws are read from the logits, unless a pair tells: temperature, draft_temperature,
        top_k, top_p, min_p, joint, sampling, draft_sampling, kind, pad, mask, mask_draft, lift,
        draft_token_ids, see `mdsd_opt.Logits`.

    Returns
    -------
    array, shape (...) or (..., len(num_drafts))
        float64, in the library of the input (float32 in JAX unless it has 64 bits enabled). The
        error is below 1e-12 (1e-9 for K > 64 without replacement); with replacement from logits of
        16 or 32 bits it is below 1e-7. On a device it is below 2e-6. With drafts of a scheme of
        yours "optimal" has the rates of its rule, up to 1e-6 below the optimum.

    Raises
    ------
    InvalidDistribution
        A row has a NaN or ``+inf`` or is all ``-inf``; the message names the row. Or rows are no
        probabilities that are said to be.
    InvalidInput
        A parameter out of range or shapes that do not fit.
    UnknownName
        No such draft scheme or verifier.
    UnsupportedScheme
        No formula for this verifier with these drafts, or this K; the message lists those that
        there are. Or no kernel, and the device was asked for.
    NoDevice
        A device was asked for, and there is none; the message says what is missing.
    ProblemTooLarge
        There are so many drafts without replacement that a row would take more than about ten
        seconds.
    """
    check_device(device)
    counts = checked_counts(num_drafts)
    work = RowWork(drafts, verifier, counts, num_threads, progress, drawn_seed(rng))
    _ = work.declared  # an error of names comes before one of arrays
    batch = Batch(work, Logits.of(target_logits, draft_logits, options), device)
    keep_axis = is_several(num_drafts)
    if batch.may_use_a_device and not batch.logits.is_lazy:
        from mdsd_opt.batch.device import RatesRequest, device_rates

        pair = batch.logits
        request = RatesRequest(drafts, verifier, counts, pair.reading)
        rates = device_rates(pair.target, pair.draft, request, device)
        if rates is not None:
            return rates if keep_axis else rates[..., 0]
    return batch.rates(keep_axis)


def check_device(device: str | None) -> None:
    """Raise `InvalidInput` unless this is a place to compute; "cuda" is another word for "gpu"."""
    if not is_among(device, ("cpu", "gpu", "cuda")):
        raise InvalidInput(f'device is {device!r:.60}: give None, "cpu", "gpu" or "cuda"')


def is_several(num_drafts: Any) -> TypeGuard[Iterable[int]]:
    """Whether these are several numbers of drafts; an array without axes is one."""
    return isinstance(num_drafts, Iterable) and getattr(num_drafts, "ndim", 1) > 0


def checked_counts(num_drafts: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of drafts K; `InvalidInput` unless there is one, and each is a number."""
    counts = tuple(num_drafts) if is_several(num_drafts) else (num_drafts,)
    if not counts:
        raise InvalidInput("num_drafts is empty: give at least one number of drafts")
    return tuple(map(checked_num_drafts, counts))


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
        vocab_size = max(target.values.shape[-1], draft.values.shape[-1])
        threads = self.threads
        size = 1 if one_by_one else _rows_at_once(len(rates), vocab_size, threads)
        tasks = [range(i, min(i + size, len(rates))) for i in range(0, len(rates), size)]
        scales = target.sampling.scale, draft.sampling.scale
        is_single = all(map(_is_single, (target, draft), scales))
        dtype = np.dtype(np.float32 if is_single else np.float64)
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
            for done in threaded(run, tasks, threads, "acceptance_rates"):
                advance(done)
        return rates.reshape(*target.index_shape, num_columns)


def _rows_at_once(num_rows: int, vocab_size: int, num_threads: int) -> int:
    size = max(1, _TOKENS_PER_TASK // vocab_size)
    if num_threads > 1:
        evenly = math.ceil(num_rows / (4 * num_threads))
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


def _is_single(rows: LogitRows, scale: float) -> bool:
    """Whether float32 holds these rows, and will do for the arithmetic."""
    kind = rows.values.dtype
    held = kind.name in _SINGLE and kind.isnative and not rows.sampling.masks_tokens
    return held and 1e-6 < scale < 1e6


#: Types of logits that float32 holds.
_SINGLE = ("bfloat16", "float16", "float32")


def converted(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows in another dtype."""
    if rows.dtype != np.float16 or dtype != np.float32 or not rows.dtype.isnative:
        return rows.astype(dtype, copy=False)
    from mdsd_opt.prefix_search import decode_halves

    numbers = np.empty(rows.shape, np.float32)
    bits = np.ascontiguousarray(rows).view(np.uint16).reshape(-1)
    decode_halves(frozen(bits), numbers.reshape(-1))
    return numbers
