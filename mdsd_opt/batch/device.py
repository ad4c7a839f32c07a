"""Rates and decisions on a CUDA device: transfers there and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import Floats, Opened
from mdsd_opt.base.logits import Reading
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.gpu import (
    CHUNK_BYTES,
    DecisionsWork,
    DeviceLogits,
    DeviceRuntime,
    FilterSettings,
    Pair,
    Randomness,
    RowRates,
    RowTokens,
    empty_filters,
    empty_tokens,
    index_shape,
    interop,
    is_available,
    rates,
    require_device,
    runtime_of_device,
    verify_rows,
    with_filters,
    work_in_chunks,
)
from mdsd_opt.verifiers import BatchRates, BatchVerdict, Verifier, first_places


def on_device(
    target: Opened,
    draft: Opened,
    device: str | None,
    in_place: Callable[[DeviceRuntime, int, Opened], Any],
    in_chunks: Callable[[DeviceRuntime, NDArray[Any], NDArray[Any]], Any],
) -> Any | None:
    """Results of the device, or None if the CPU should work on the batch.

    Device None leaves arrays on the host to the CPU, and all that the kernels do not do; another
    raises instead. ``in_place(runtime, stream, reference)`` is for logits of which a side is on the
    device, and hands results back in the library of `reference`; ``in_chunks(runtime, target,
    draft)`` is for arrays on the host. Text from them is what is in the way. Where a device was
    asked for, raises `NoDevice` if there is none, and `UnsupportedScheme` for what the kernels do
    not do; always `InvalidDistribution` for a row that is none.
    """
    held = [side for side in (target, draft) if interop.is_on_device(side)]
    if device is not None:
        require_device(f'device="{device}"')
    elif not held or not is_available():
        return None
    interop.require_one_device(target, draft)
    if held:
        with interop.on_stream_of(held[0]) as stream:
            answer = in_place(runtime_of_device(interop.current_device()), stream, held[0])
    else:
        runtime = runtime_of_device(interop.current_device())
        answer = in_chunks(runtime, target.numpy(), draft.numpy())
    if not isinstance(answer, str):
        return answer
    if device is not None:
        raise UnsupportedScheme(
            f'device="{device}": {answer}. device=None computes on the CPU instead.'
        )
    return None


@dataclass(frozen=True)
class RatesRequest:
    """Work on rows, as the kernels do it: rates for every K of `num_drafts`."""

    scheme: str
    verifier: str | Verifier
    num_drafts: tuple[int, ...]
    reading: Reading

    @cached_property
    def scales(self) -> tuple[float, float]:
        """Scales of target and draft: log2(e) divided by the temperature."""
        return self.reading.target.scale, self.reading.draft.scale

    @cached_property
    def declared(self) -> BatchRates:
        """Declaration of the verifier for these drafts."""
        rule = verifiers.get(self.verifier)
        return rule.batch_rates_for(self.scheme) or BatchRates()

    @property
    def names(self) -> str:
        """Names of verifier and drafts, for messages."""
        return f"verifier {verifiers.get(self.verifier).name!r} with drafts {self.scheme!r}"

    def obstacle(self, threads_per_row: int, target: Sequence[int], draft: Sequence[int]) -> str:
        """Reason why the kernels cannot handle logits of these shapes; "" if they can."""
        if self.reading.draft_token_ids is not None:
            return "the kernels do not put the draft's tokens at their places (draft_token_ids)"
        if self.declared.device not in rates.BY_NAME:
            return f"there is no kernel of {self.names}"
        if not self.reading.filters_alike:
            return "the kernels have the same filters on both sides"
        if self.reading.target.joint:
            return "the kernels apply top-p to what top-k has left (joint=False)"
        if not all(1e-6 < scale < 1e6 for scale in self.scales):
            return "the temperature is too large or too small for single precision"
        if 0 in (len(target), len(draft)) or 0 in (target[-1], draft[-1]):
            return "the last axis of both logits must hold the tokens"
        try:
            np.broadcast_shapes(target[:-1], draft[:-1])
        except ValueError:
            return f"logits of shapes {tuple(target)} and {tuple(draft)} do not fit to each other"
        if target[-1] != draft[-1]:
            return f"the vocabularies differ in size, {target[-1]} and {draft[-1]}"
        if target[-1] > rates.MAX_VOCAB_SIZE:
            return f"a vocabulary of {target[-1]} is larger than {rates.MAX_VOCAB_SIZE}"
        most = rates.most_drafts(self.declared.device, target[-1], threads_per_row)
        if max(self.num_drafts) > most:
            return f"num_drafts is {max(self.num_drafts)}, and the kernels take at most {most}"
        return ""

    @cached_property
    def filters(self) -> FilterSettings | None:
        """Filters that the kernels have to apply, or None."""
        return filter_settings(self.reading.target, self.reading.draft)

    @property
    def is_replaced(self) -> bool:
        """Whether drafts are drawn with replacement."""
        return SINGLE_MODEL_SCHEMES[self.scheme].draws_independently()

    def pair(
        self,
        runtime: DeviceRuntime,
        target: DeviceLogits,
        draft: DeviceLogits,
        filters: list[Any] | None = None,
    ) -> Pair:
        """Both sides as the kernels take them; filters are launched, into buffers if given."""
        pair, settings = Pair(target, draft, *self.scales), self.filters
        return pair if settings is None else with_filters(runtime, pair, settings, filters)

    def compute(
        self, runtime: DeviceRuntime, target: DeviceLogits, draft: DeviceLogits
    ) -> RowRates:
        """Launch the kernels; several times where there are many numbers of drafts."""
        pair = self.pair(runtime, target, draft)
        function, step = rates.BY_NAME[self.declared.device], rates.MAX_COUNTS
        parts = [
            function(runtime, pair, self.num_drafts[i : i + step])
            for i in range(0, len(self.num_drafts), step)
        ]
        if len(parts) == 1:
            return parts[0]
        return RowRates(runtime.join([part.rates for part in parts]), None, parts[0].is_bad)


def filter_settings(target: Sampling, draft: Sampling) -> FilterSettings | None:
    """Filters that the kernels have to apply, or None; they are the same on both sides."""
    if not (target.masks_tokens or draft.masks_tokens):
        return None
    top_k = None if target.top_k is None else int(target.top_k)
    return FilterSettings(
        target.temperature == 0, draft.temperature == 0, top_k, target.top_p, target.min_p
    )


NOT_READ = "the kernels read float32, float16 and bfloat16 logits"


def device_rates(
    target: Opened, draft: Opened, request: RatesRequest, device: str | None
) -> Any | None:
    """Rates of shape (..., len(num_drafts)), or None and errors as `on_device` says."""

    def in_place(runtime: DeviceRuntime, stream: int, reference: Opened) -> Any:
        obstacle = request.obstacle(runtime.threads_per_row, target.shape, draft.shape)
        sides = None if obstacle else _opened(runtime, target, draft, stream, reference)
        if sides is None:
            return obstacle or NOT_READ
        shape = index_shape(*sides)
        if len(request.num_drafts) > rates.MAX_COUNTS:
            result = request.compute(runtime, *sides)
            is_bad = runtime.download(result.is_bad)
        else:
            with _prepared(runtime, stream, request, sides) as prepared:
                result = prepared.work(prepared.pair(request, *sides))
                is_bad = runtime.download(result.is_bad)
        interop.check_rows(is_bad, shape, target, draft)
        table = result.rates.reshape(*shape, len(request.num_drafts))
        return interop.handed_back(reference, table)

    return on_device(target, draft, device, in_place, partial(rates_in_chunks, request=request))


def _opened(
    runtime: DeviceRuntime, target: Opened, draft: Opened, stream: int, reference: Opened
) -> tuple[DeviceLogits, DeviceLogits] | None:
    """Both sides as the kernels read them; None if their types are not read."""
    p, q = (interop.opened(runtime, side, stream, reference) for side in (target, draft))
    return None if p is None or q is None else (p, q)


def rates_in_chunks(
    runtime: DeviceRuntime,
    target: NDArray[Any],
    draft: NDArray[Any],
    request: RatesRequest,
    chunk_bytes: int = CHUNK_BYTES,
) -> Any:
    """Rates of arrays on the host, of any size, or the reason why there are none."""
    obstacle = request.obstacle(runtime.threads_per_row, target.shape, draft.shape)
    if obstacle or not (interop.is_readable(target) and interop.is_readable(draft)):
        return obstacle or NOT_READ
    shape = np.broadcast_shapes(target.shape[:-1], draft.shape[:-1])
    rates = np.empty((int(np.prod(shape)), len(request.num_drafts)))
    is_bad = np.empty(rates.shape[0], np.int32)

    def collect(result: RowRates, rows: slice) -> None:
        rates[rows] = runtime.download(result.rates)
        is_bad[rows] = runtime.download(result.is_bad)

    def compute(p: DeviceLogits, q: DeviceLogits, start: int) -> RowRates:
        return request.compute(runtime, p, q)

    work_in_chunks(runtime, target, draft, compute, collect, chunk_bytes)
    _check_sent(is_bad, shape, target, draft)
    return rates.reshape(*shape, len(request.num_drafts))[()]


def _check_sent(is_bad: Any, shape: tuple[int, ...], p: NDArray[Any], q: NDArray[Any]) -> None:
    sides = Opened.of(p, "target_logits"), Opened.of(q, "draft_logits")
    interop.check_rows(is_bad, shape, *sides)


class Prepared:
    """Buffers for a request's work on at most so many rows; calls on them allocate nothing."""

    def __init__(
        self, runtime: DeviceRuntime, request: RatesRequest, max_rows: int, decides: bool = False
    ) -> None:
        self.runtime = runtime
        self.work: Any
        if decides:
            self.work = DecisionsWork(runtime, request.num_drafts[0], max_rows, request.is_replaced)
        else:
            name = request.declared.device
            self.work = rates.prepared(runtime, name, request.num_drafts, max_rows, waits=False)
        self._filters = None if request.filters is None else empty_filters(runtime, max_rows)

    def pair(self, request: RatesRequest, target: DeviceLogits, draft: DeviceLogits) -> Pair:
        """Both sides of at most so many rows; filters are launched."""
        return request.pair(self.runtime, target, draft, self._filters)


#: What was prepared for plain calls, by the runtime, the stream, and what it is for.
_idle: WeakKeyDictionary[DeviceRuntime, dict[Any, Prepared]] = WeakKeyDictionary()

#: Kept at most for each runtime, and most rows of each: together no more memory than one large
#: call takes.
_MOST_IDLE = 6
_MOST_IDLE_ROWS = 128


@contextmanager
def _prepared(
    runtime: DeviceRuntime,
    stream: int,
    request: RatesRequest,
    sides: tuple[DeviceLogits, DeviceLogits],
    decides: bool = False,
) -> Iterator[Prepared]:
    """What was prepared for such a call on the stream, kept for the next one unless this fails.

    Nobody else has it meanwhile, and all work on it must be done at the end.
    """
    num_rows = math.prod(index_shape(*sides))
    what = request.scheme, request.declared.device, request.num_drafts, decides
    key = stream, what, request.filters is None, num_rows
    idle = _idle.setdefault(runtime, {})
    prepared = idle.pop(key, None) or Prepared(runtime, request, num_rows, decides)
    yield prepared
    if num_rows <= _MOST_IDLE_ROWS:
        idle[key] = prepared
        while len(idle) > _MOST_IDLE:
            idle.pop(next(iter(idle)), None)


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """Decisions to make, and their random numbers; `rule` as for rates of one number of drafts."""

    rule: RatesRequest
    randomness: Randomness
    with_rates: bool

    def obstacle(self, runtime: DeviceRuntime, target: Sequence[int], draft: Sequence[int]) -> str:
        """Reason why the kernels cannot handle logits of these shapes; "" if they can."""
        if not self.rule.declared.decides_on_device:
            return f"no kernel decides by {self.rule.names}"
        return self.rule.obstacle(runtime.threads_per_row, target, draft)

    def compute(
        self,
        runtime: DeviceRuntime,
        target: DeviceLogits,
        draft: DeviceLogits,
        drafts: Any,
        uniforms: Any,
        first_row: int = 0,
    ) -> RowTokens:
        """Launch the kernels on rows of a batch that begin with `first_row`."""
        pair = self.rule.pair(runtime, target, draft)
        return verify_rows(
            runtime, pair, drafts, self.randomness, uniforms, first_row, self.with_rates,
            self.rule.is_replaced,
        )  # fmt: skip


def verify_on_device(
    target: Opened,
    draft: Opened,
    drafts: Opened,
    uniforms: Floats | None,
    request: VerificationRequest,
    device: str | None,
) -> BatchVerdict | None:
    """Decisions by the kernel, or None and errors as `on_device` says."""

    def in_place(runtime: DeviceRuntime, stream: int, reference: Opened) -> BatchVerdict | str:
        import cupy

        interop.require_one_device(target, draft, drafts)
        obstacle = request.obstacle(runtime, target.shape, draft.shape)
        sides = None if obstacle else _opened(runtime, target, draft, stream, reference)
        if sides is None:
            return obstacle or NOT_READ
        held = interop.is_on_device(drafts)
        ids = cupy.from_dlpack(drafts.array) if held else cupy.asarray(drafts.numpy())
        ids = cupy.ascontiguousarray(ids.astype(np.int64).reshape(-1, ids.shape[-1]))
        draws = None if uniforms is None else runtime.upload(uniforms)
        shape, rule = index_shape(*sides), request.rule
        with _prepared(runtime, stream, rule, sides, decides=True) as prepared:
            work, num_rows = prepared.work, len(ids)
            result = empty_tokens(runtime, num_rows, request.with_rates, work.is_bad)
            work(prepared.pair(rule, *sides), ids, request.randomness, result, draws)
            places = runtime.empty((num_rows,), np.int64)
            work.tell_places(ids, result.tokens, places)
            is_bad = runtime.download(result.is_bad)
        interop.check_rows(is_bad, shape, target, draft)
        extras = (result.rates, result.gaps) if request.with_rates else ()
        columns = (result.tokens, places, *extras)
        return BatchVerdict(*(interop.handed_back(reference, x.reshape(shape)) for x in columns))

    def in_chunks(runtime: DeviceRuntime, p: NDArray[Any], q: NDArray[Any]) -> BatchVerdict | str:
        return verify_in_chunks(runtime, p, q, drafts.numpy(), uniforms, request)

    return on_device(target, draft, device, in_place, in_chunks)


def verify_in_chunks(
    runtime: DeviceRuntime,
    target: NDArray[Any],
    draft: NDArray[Any],
    drafts: NDArray[Any],
    uniforms: Floats | None,
    request: VerificationRequest,
    chunk_bytes: int = CHUNK_BYTES,
) -> BatchVerdict | str:
    """Decisions for arrays on the host, of any size, or the reason why there are none.

    The same as in one piece, to the bit: random numbers go by the row's number in the whole batch.
    """
    obstacle = request.obstacle(runtime, target.shape, draft.shape)
    if obstacle or not (interop.is_readable(target) and interop.is_readable(draft)):
        return obstacle or NOT_READ
    shape = drafts.shape[:-1]
    rows = drafts.astype(np.int64).reshape(-1, drafts.shape[-1])
    beside: dict[str, NDArray[Any]] = {"drafts": rows}
    if uniforms is not None:
        beside["uniforms"] = uniforms
    tokens, is_bad = np.empty(len(rows), np.int64), np.empty(len(rows), np.int32)
    rates, gaps = (np.empty(len(rows) if request.with_rates else 0) for _ in range(2))

    def compute(p: DeviceLogits, q: DeviceLogits, start: int, ids: Any, draws: Any = None) -> Any:
        return request.compute(runtime, p, q, ids, draws, start)

    def collect(result: RowTokens, part: slice) -> None:
        tokens[part] = runtime.download(result.tokens)
        is_bad[part] = runtime.download(result.is_bad)
        if request.with_rates:
            rates[part] = runtime.download(result.rates)
            gaps[part] = runtime.download(result.gaps)

    work_in_chunks(runtime, target, draft, compute, collect, chunk_bytes, beside)
    _check_sent(is_bad, shape, target, draft)
    columns = [tokens, first_places(rows, tokens), *((rates, gaps) if request.with_rates else ())]
    return BatchVerdict(*(column.reshape(shape)[()] for column in columns))
