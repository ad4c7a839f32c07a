"""Calls on a CUDA device that are prepared once: no memory to ask for, and nothing to wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Opened
from mdsd_opt.base.checked import Rng, checked_integer
from mdsd_opt.base.logits import Reading
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.batch.acceptance import RowWork, checked_counts, is_several
from mdsd_opt.batch.device import Prepared, RatesRequest
from mdsd_opt.batch.verification import randomness_of
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.gpu import (
    DeviceLogits,
    Pair,
    Randomness,
    RecordingRuntime,
    RowTokens,
    empty_tokens,
    index_shape,
    interop,
    rates,
    require_device,
    runtime_of_device,
)
from mdsd_opt.verifiers import BatchVerdict, Verifier

#: Most calls of a plan whose launches are kept.
_MOST_KNOWN = 16


class _Plan:
    """What a call needs: buffers for rows of one vocabulary and type, and compiled kernels.

    Launches are kept by the places of all arrays of a call: one that comes again is launched again,
    without a look at anything else.
    """

    def __init__(
        self,
        request: RatesRequest,
        vocab_size: int,
        max_rows: int,
        dtype: Any,
        decides: bool = False,
    ) -> None:
        require_device("a plan")
        size = checked_integer(vocab_size, "vocab_size")
        self._max_rows = checked_integer(max_rows, "max_rows")
        given = dtype if isinstance(dtype, tuple) else (dtype, dtype)
        self._types = tuple(_type_name(x) for x in given)
        if not set(self._types) <= {"float32", "float16", "bfloat16"} or len(given) != 2:
            raise InvalidInput(
                f"dtype is {dtype!r}: give float32, float16 or bfloat16, or those of both sides"
            )
        if len(request.num_drafts) > rates.MAX_COUNTS:
            raise InvalidInput(
                f"num_drafts are {len(request.num_drafts)} numbers, and a plan takes at most "
                f"{rates.MAX_COUNTS}: make several plans"
            )
        self._device = interop.current_device()
        self._runtime: Any = RecordingRuntime(runtime_of_device(self._device))
        obstacle = request.obstacle(self._runtime.threads_per_row, (size,), (size,))
        if not obstacle and decides and not request.declared.decides_on_device:
            obstacle = f"no kernel decides by {request.names}"
        if obstacle:
            raise UnsupportedScheme(f"a plan is for a device: {obstacle}")
        self._request, self._vocab_size = request, size
        self._prepared = Prepared(self._runtime, request, self._max_rows, decides)
        self._last: tuple[Opened, Opened] | None = None
        self._views: dict[Any, Any] = {}
        self._known: dict[Any, tuple[str, Sequence[Callable[[], None]], Any]] = {}

    def _launched(self, *given: Any, out: Any, places: Sequence[Any]) -> Any:
        """Launch the kernels, and return the results; `places` are arrays to write to."""
        key = *map(interop.place_of, given), *map(interop.place_of, places)
        if key in self._known:
            library, launches, results = self._known[key]
            self._last = (
                Opened("target_logits", given[0], library),
                Opened("draft_logits", given[1], library),
            )
            with interop.on_stream_of(self._last[0]):
                for launch in launches:
                    launch()
            return results if out is None else out
        self._runtime.launches = []
        results = self._first(*given, out)
        assert self._last is not None
        library = self._last[0].library
        if () not in key and library == self._last[1].library:
            self._known[key] = library, self._runtime.launches, results
            if len(self._known) > _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
        return results

    def _first(self, *given: Any) -> Any:
        """Launch the kernels for arrays that were not given before; results."""
        raise NotImplementedError

    def check(self) -> None:
        """Wait for the last call, and raise `InvalidDistribution` if a row was none.

        The message names the row, as that of a plain call; of several the first one.
        """
        if self._last is None:
            return
        shape = np.broadcast_shapes(*(side.shape[:-1] for side in self._last))
        with interop.on_stream_of(self._last[0]):
            is_bad = self._prepared.work.is_bad[: math.prod(shape)]
            interop.check_rows(self._runtime.download(is_bad), shape, *self._last)

    def _pair_of_zeros(self) -> Pair:
        """One row, with which kernels are compiled and loaded before anybody captures them."""
        zeros = self._runtime.upload(np.zeros(4 * self._vocab_size, np.uint8))
        address, size = self._runtime.address(zeros), self._vocab_size
        sides = (DeviceLogits(address, x, (1, size), (size, 1), zeros) for x in self._types)
        return self._prepared.pair(self._request, *sides)

    def _opened(self, target: Any, draft: Any) -> tuple[Opened, Opened]:
        """Both sides; `InvalidInput` unless they lie on the plan's device."""
        sides = Opened.of(target, "target_logits"), Opened.of(draft, "draft_logits")
        for side in sides:
            on_device = side.library in ("cupy", "torch") and interop.is_on_device(side)
            if not on_device or interop.device_of(side.array)[1] != self._device:
                raise InvalidInput(
                    f"{side.name} is not on device {self._device}, for which the plan was made: "
                    "give arrays of CuPy or PyTorch there"
                )
        return sides

    def _pair(self, sides: tuple[Opened, Opened], stream: int) -> tuple[Pair, tuple[int, ...]]:
        """Both sides as the kernels take them, and the shape of the batch; filters are launched."""
        found: list[DeviceLogits] = []
        for side, dtype in zip(sides, self._types, strict=True):
            logits = interop.opened(self._runtime, side, stream, sides[0], copies=False)
            if logits is None or logits.dtype != dtype or logits.vocab_size != self._vocab_size:
                raise InvalidInput(
                    f"{side.name} has shape {side.shape} and dtype {side.array.dtype}: the plan is "
                    f"for {dtype}, shape (..., {self._vocab_size}), the last axis contiguous"
                )
            found.append(logits)
        target, draft = found
        shape = index_shape(target, draft)
        if math.prod(shape) > self._max_rows:
            raise InvalidInput(
                f"{math.prod(shape)} rows are more than max_rows = {self._max_rows} of the plan"
            )
        self._last = sides
        return self._prepared.pair(self._request, target, draft), shape

    def _given(self, buffer: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """A caller's array as the kernels take it; `InvalidInput` unless it is as they need it."""
        import cupy

        opened = Opened.of(buffer, name)
        if opened.library in ("cupy", "torch") and interop.is_on_device(opened):
            array = cupy.from_dlpack(opened.array) if opened.library == "torch" else opened.array
            item = np.dtype(dtype).itemsize
            strides = tuple(item * math.prod(shape[i + 1 :]) for i in range(len(shape)))
            if array.dtype == dtype and array.shape == shape and tuple(array.strides) == strides:
                return array
        raise InvalidInput(
            f"{name} has shape {opened.shape}: give a contiguous array of {np.dtype(dtype).name}, "
            f"shape {shape}, on the device"
        )

    def _handed_back(self, reference: Opened, own: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """The plan's own buffers in the caller's library, of the batch's shape."""
        key = reference.library, shape
        if key not in self._views:
            parts = (x[: math.prod(shape)].reshape((*shape, *x.shape[1:])) for x in own)
            self._views[key] = [interop.handed_back(reference, x) for x in parts]
        return self._views[key]


class RatesPlan(_Plan):
    """`acceptance_rates` on a CUDA device, prepared for at most so many rows of one type.

    A call launches kernels on the current stream of the logits' library: it allocates nothing,
    copies nothing to the host and waits for nothing, so that CUDA graphs can capture it. It gives
    what `acceptance_rates` gives, bit for bit. A plan is for one stream at a time.

    Parameters
    ----------
    vocab_size : int
        V.
    max_rows : int
        Most rows of a batch.
    dtype : str, or pair of str
        Type of the logits, "float32", "float16" or "bfloat16", or those of target and draft; also
        as a dtype of NumPy or PyTorch.
    num_drafts : int or sequence of int
        K, or up to eight of them.
    drafts, verifier : optional
        As for `acceptance_rates`.
    **sampling
        `temperature`, `draft_temperature`, `top_k`, `top_p`, `min_p`, `sampling`, see
        `mdsd_opt.Logits`.

    Raises
    ------
    NoDevice
        There is no device that can be used.
    UnsupportedScheme
        There is no kernel for this.
    InvalidInput
        A parameter out of range.
    """

    def __init__(
        self,
        vocab_size: int,
        max_rows: int,
        dtype: Any = "float32",
        num_drafts: int | Sequence[int] = 3,
        drafts: str = "with_replacement",
        *,
        verifier: str | Verifier = "optimal",
        **sampling: Any,
    ) -> None:
        counts = checked_counts(num_drafts)
        reading = Reading(*Sampling.of_both(**sampling))
        _ = RowWork(drafts, verifier, counts).declared
        request = RatesRequest(drafts, verifier, counts, reading)
        super().__init__(request, vocab_size, max_rows, dtype)
        self._keeps_axis = is_several(num_drafts)
        self._rates = self._runtime.empty((self._max_rows, len(counts)), np.float64)
        result = self._prepared.work(self._pair_of_zeros(), self._rates)
        self._runtime.download(result.is_bad)  # whatever stream comes next: all this is done

    def __call__(self, target_logits: Any, draft_logits: Any, out: Any = None) -> Any:
        """Launch the kernels on logits (..., V) of CuPy or PyTorch.

        Parameters
        ----------
        target_logits, draft_logits : array, shape (..., V)
            Leading axes broadcast; the last one is contiguous. They stay as they are until the
            work is done.
        out : array of float64, shape (...) or (..., len(num_drafts)), optional
            Where the rates go. Without it they go into the plan's own memory, which the next call
            overwrites.

        Returns
        -------
        array
            `out`, or the plan's memory. Rates of rows that are no distributions are undefined:
            `check` tells.
        """
        places = () if out is None else (out,)
        return self._launched(target_logits, draft_logits, out=out, places=places)

    def _first(self, target_logits: Any, draft_logits: Any, out: Any) -> Any:
        sides = self._opened(target_logits, draft_logits)
        with interop.on_stream_of(sides[0]) as stream:
            pair, shape = self._pair(sides, stream)
            own = self._rates if self._keeps_axis else self._rates.reshape(-1)
            if out is None:
                self._prepared.work(pair, self._rates)
                return self._handed_back(sides[0], (own,), shape)[0]
            given = self._given(out, "out", (*shape, *own.shape[1:]), np.float64)
            self._prepared.work(pair, given.reshape(math.prod(shape), self._rates.shape[1]))
            return out


#: Arrays of a verdict; the last two only on request.
_VERDICT = "tokens", "draft_index", "acceptance_rate", "gap"


class DecisionsPlan(_Plan):
    """`verify_batch` on a CUDA device, prepared for at most so many rows of one type.

    As `RatesPlan`. Seed and step are in the device's memory, and every call adds one to the step: a
    CUDA graph that is replayed draws anew. The n-th call since the start, from 0, decides as
    ``verify_batch(..., rng=rng, step=step + n)``, bit for bit.

    Parameters
    ----------
    vocab_size, max_rows, dtype
        As for `RatesPlan`.
    num_drafts : int
        K.
    scheme : {"with_replacement", "without_replacement"}
        Scheme by which the drafts come from q.
    rng, step : int
        As for `verify_batch`: the seed, and the first step.
    with_rates : bool
        Tell for every row the rule's acceptance rate, and by how much the optimum may exceed it.
    **sampling
        As for `RatesPlan`.

    Raises
    ------
    NoDevice, UnsupportedScheme, InvalidInput
        As for `RatesPlan`.
    """

    def __init__(
        self,
        vocab_size: int,
        max_rows: int,
        dtype: Any = "float32",
        num_drafts: int = 3,
        scheme: str = "with_replacement",
        *,
        rng: Rng = 0,
        step: int = 0,
        with_rates: bool = False,
        **sampling: Any,
    ) -> None:
        counts = checked_counts((num_drafts,))
        reading = Reading(*Sampling.of_both(**sampling))
        _ = RowWork(scheme, "optimal", counts).declared
        randomness = randomness_of(rng, step)
        request = RatesRequest(scheme, "optimal", counts, reading)
        super().__init__(request, vocab_size, max_rows, dtype, decides=True)
        is_bad = self._prepared.work.is_bad
        self._found = empty_tokens(self._runtime, self._max_rows, with_rates, is_bad)
        self._places = self._runtime.empty((self._max_rows,), np.int64)
        self._key = self._runtime.upload(_key_of(randomness))
        self._num_drafts = counts[0]
        self._names = _VERDICT if with_rates else _VERDICT[:2]
        self._decide(
            self._pair_of_zeros(), self._runtime.upload(np.zeros((1, counts[0]), np.int64))
        )
        self.restart(randomness.seed, step)
        self._runtime.download(self._found.is_bad)  # whatever stream comes next: all this is done

    def restart(self, rng: Rng, step: int = 0) -> None:
        """Seed and step of the next call, and of the next replay of a graph.

        They are written on the stream of the last call.
        """
        key = _key_of(randomness_of(rng, step))
        with nullcontext() if self._last is None else interop.on_stream_of(self._last[0]):
            self._runtime.write(self._key, key)

    def __call__(
        self, target_logits: Any, draft_logits: Any, drafts: Any, out: Any = None
    ) -> BatchVerdict:
        """Launch the kernels on logits (..., V) and drafts (..., K) of CuPy or PyTorch.

        Parameters
        ----------
        target_logits, draft_logits : array, shape (..., V)
            As for `RatesPlan`.
        drafts : array of int64, shape (..., K)
            Contiguous token ids in draw order; -1 where there is none.
        out : BatchVerdict, optional
            Where the results go: contiguous arrays of shape (...), int64 and float64, those of the
            rates only where the plan has them. Without it they go into the plan's own memory,
            which the next call overwrites.

        Returns
        -------
        BatchVerdict
            `out`, or the plan's memory. Tokens are -1 in rows that are no distributions: `check`
            tells.
        """
        places = [] if out is None else [getattr(out, name) for name in self._names]
        found: BatchVerdict = self._launched(
            target_logits, draft_logits, drafts, out=out, places=places
        )
        return found

    def _first(
        self, target_logits: Any, draft_logits: Any, drafts: Any, out: BatchVerdict | None
    ) -> BatchVerdict:
        sides = self._opened(target_logits, draft_logits)
        with interop.on_stream_of(sides[0]) as stream:
            pair, shape = self._pair(sides, stream)
            ids = self._given(drafts, "drafts", (*shape, self._num_drafts), np.int64)
            ids = ids.reshape(math.prod(shape), self._num_drafts)
            own = [self._found.tokens, self._places, self._found.rates, self._found.gaps]
            own = own[: len(self._names)]
            if out is None:
                self._decide(pair, ids)
                return BatchVerdict(*self._handed_back(sides[0], own, shape))
            given = [
                self._given(getattr(out, name), f"out.{name}", shape, x.dtype).reshape(-1)
                for name, x in zip(self._names, own, strict=True)
            ]
            tokens, places, *told = given
            self._decide(pair, ids, RowTokens(tokens, self._found.is_bad, *told), places)
            return out

    def _decide(
        self, pair: Pair, ids: Any, found: RowTokens | None = None, places: Any = None
    ) -> None:
        work, found = self._prepared.work, found or self._found
        work(pair, ids, Randomness(0), found, key=self._key)
        places = self._places if places is None else places
        work.tell_places(ids, found.tokens[: pair.num_rows], places, self._key)


def _key_of(randomness: Randomness) -> Any:
    return np.array([randomness.seed, randomness.step], np.uint64)


def _type_name(dtype: Any) -> str:
    """Name of a type of NumPy, of PyTorch, or given as text."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return str(name or dtype).rpartition(".")[2]
