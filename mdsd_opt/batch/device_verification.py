"""Decisions on a CUDA device: what goes there, and how it comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.batch.device_rates import NOT_READ, Request
from mdsd_opt.batch.dispatch import on_device
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.gpu import interop, streaming
from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.layout import DeviceLogits, index_shape
from mdsd_opt.gpu.philox import Randomness
from mdsd_opt.gpu.verification import RowTokens, verify_rows
from mdsd_opt.verifiers.base import BatchVerdict, first_places


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """What to decide, and by which random numbers.

    Attributes
    ----------
    rule : Request
        As for acceptance rates of one number of drafts.
    randomness : Randomness
    with_rates : bool
    """

    rule: Request
    randomness: Randomness
    with_rates: bool

    def obstacle(self, engine: Engine, target: Sequence[int], draft: Sequence[int]) -> str:
        """Why the kernels cannot do it, for logits of these shapes; "" if it can."""
        if not self.rule.declared.decides_on_device:
            return f"no kernel decides by {self.rule.names}"
        return self.rule.obstacle(engine.threads_per_row, target, draft)

    def compute(
        self,
        engine: Engine,
        target: DeviceLogits,
        draft: DeviceLogits,
        drafts: Any,
        uniforms: Any,
        first_row: int = 0,
    ) -> RowTokens:
        """Launch the kernels on rows of a batch that begin with `first_row`."""
        pair = self.rule.pair(engine, target, draft)
        return verify_rows(
            engine,
            pair,
            drafts,
            self.randomness,
            uniforms,
            first_row,
            self.with_rates,
            SINGLE_MODEL_SCHEMES[self.rule.scheme].draws_independently(),
        )


def verify_on_device(
    target: Opened,
    draft: Opened,
    drafts: Opened,
    uniforms: NDArray[np.float64] | None,
    request: VerificationRequest,
    device: str | None,
) -> BatchVerdict | None:
    """Decisions by the kernel, or None where the CPU should make them.

    Parameters
    ----------
    device : {None, "gpu"}
        None leaves to the CPU what the kernel does not do; "gpu" raises instead.

    Raises
    ------
    NoDevice
        There is no device, and one was asked for.
    UnsupportedScheme
        The kernel does not do it, and a device was asked for.
    InvalidDistribution
        A row is none.
    """

    def in_place(engine: Engine, stream: int, reference: Opened) -> BatchVerdict | str:
        return _in_place(engine, target, draft, drafts, uniforms, request, stream, reference)

    def in_chunks(engine: Engine, p: NDArray[Any], q: NDArray[Any]) -> BatchVerdict | str:
        return verify_in_chunks(engine, p, q, drafts.numpy(), uniforms, request)

    return on_device(target, draft, device, in_place, in_chunks)


def verify_in_chunks(
    engine: Engine,
    target: NDArray[Any],
    draft: NDArray[Any],
    drafts: NDArray[Any],
    uniforms: NDArray[np.float64] | None,
    request: VerificationRequest,
    chunk_bytes: int = streaming.CHUNK_BYTES,
) -> BatchVerdict | str:
    """Decisions for arrays on the host, of any size, or what is in the way.

    The same as in one piece, to the bit: random numbers go by the row's number in the whole batch.
    """
    obstacle = request.obstacle(engine, target.shape, draft.shape)
    if obstacle:
        return obstacle
    if not (interop.is_readable(target) and interop.is_readable(draft)):
        return NOT_READ
    shape = drafts.shape[:-1]
    rows = drafts.astype(np.int64).reshape(-1, drafts.shape[-1])
    beside: dict[str, NDArray[Any]] = {"drafts": rows}
    if uniforms is not None:
        beside["uniforms"] = uniforms
    tokens, is_bad = np.empty(len(rows), np.int64), np.empty(len(rows), np.int32)
    rates, gaps = (np.empty(len(rows) if request.with_rates else 0) for _ in range(2))

    def compute(p: DeviceLogits, q: DeviceLogits, start: int, ids: Any, draws: Any = None) -> Any:
        return request.compute(engine, p, q, ids, draws, start)

    def collect(result: RowTokens, part: slice) -> None:
        tokens[part] = engine.download(result.tokens)
        is_bad[part] = engine.download(result.is_bad)
        if request.with_rates:
            rates[part] = engine.download(result.rates)
            gaps[part] = engine.download(result.gaps)

    streaming.in_chunks(engine.lane, target, draft, compute, collect, chunk_bytes, beside)
    interop.check_rows(
        is_bad, shape, Opened.of(target, "target_logits"), Opened.of(draft, "draft_logits")
    )
    columns = [tokens, first_places(rows, tokens), *((rates, gaps) if request.with_rates else ())]
    return BatchVerdict(*(column.reshape(shape)[()] for column in columns))


def _in_place(
    engine: Engine,
    target_logits: Opened,
    draft_logits: Opened,
    drafts: Opened,
    uniforms: NDArray[np.float64] | None,
    request: VerificationRequest,
    stream: int,
    reference: Opened,
) -> BatchVerdict | str:
    """Decisions for logits of which at least one side is on the device, handed back there."""
    import cupy

    obstacle = request.obstacle(engine, target_logits.shape, draft_logits.shape)
    if obstacle:
        return obstacle
    target = interop.opened(engine, target_logits, stream, reference)
    draft = interop.opened(engine, draft_logits, stream, reference)
    if target is None or draft is None:
        return NOT_READ
    if interop.is_on_device(drafts):
        ids = cupy.from_dlpack(drafts.array).astype(np.int64)
    else:
        ids = cupy.asarray(drafts.numpy().astype(np.int64))
    ids = cupy.ascontiguousarray(ids.reshape(-1, ids.shape[-1]))
    draws = None if uniforms is None else engine.upload(uniforms)
    result = request.compute(engine, target, draft, ids, draws)
    shape = index_shape(target, draft)
    interop.check_rows(engine.download(result.is_bad), shape, target_logits, draft_logits)
    hits = ids == result.tokens[:, None]
    places = cupy.where(hits.any(axis=1), hits.argmax(axis=1), -1).astype(np.int64)
    columns = [result.tokens, places, *((result.rates, result.gaps) if request.with_rates else ())]
    return BatchVerdict(*(interop.handed_back(reference, x.reshape(shape)) for x in columns))
