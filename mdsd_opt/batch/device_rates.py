"""Acceptance rates on a CUDA device: what goes there, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import Opened
from mdsd_opt.batch.dispatch import on_device
from mdsd_opt.batch.job import Job
from mdsd_opt.batch.row_functions import entry
from mdsd_opt.batch.rows import Sampling
from mdsd_opt.gpu import interop, rates, streaming
from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.layout import DeviceLogits, index_shape
from mdsd_opt.gpu.pair import FilterSettings, Pair, RowRates, with_filters
from mdsd_opt.verifiers import BatchRates, Verifier


@dataclass(frozen=True, slots=True)
class Request:
    """What to compute.

    Attributes
    ----------
    scheme : str
    verifier : str or Verifier
    num_drafts : tuple of int
    target_scale, draft_scale : float
        log2(e) divided by the temperature.
    filters : FilterSettings or None
        Which tokens are left out, if any.
    """

    scheme: str
    verifier: str | Verifier
    num_drafts: tuple[int, ...]
    target_scale: float
    draft_scale: float
    filters: FilterSettings | None = None

    @classmethod
    def of(cls, job: Job) -> Request:
        """What a job asks for."""
        target, draft = job.target_sampling, job.draft_sampling
        filters = filter_settings(target, draft)
        return cls(job.scheme, job.verifier, job.num_drafts, target.scale, draft.scale, filters)

    @property
    def declared(self) -> BatchRates:
        """What the verifier declares for these drafts."""
        return entry(self.scheme, self.verifier) or BatchRates()

    @property
    def names(self) -> str:
        """Verifier and drafts, for messages."""
        return f"verifier {verifiers.get(self.verifier).name!r} with drafts {self.scheme!r}"

    def obstacle(self, threads_per_row: int, target: Sequence[int], draft: Sequence[int]) -> str:
        """Why the kernels cannot do it, for logits of these shapes; "" if they can."""
        if not self.declared.device:
            return f"there is no kernel of {self.names}"
        if not all(1e-6 < scale < 1e6 for scale in (self.target_scale, self.draft_scale)):
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

    def pair(self, engine: Engine, target: DeviceLogits, draft: DeviceLogits) -> Pair:
        """Both sides as the kernels take them; filters are launched."""
        pair = Pair(target, draft, self.target_scale, self.draft_scale)
        return pair if self.filters is None else with_filters(engine, pair, self.filters)

    def compute(self, engine: Engine, target: DeviceLogits, draft: DeviceLogits) -> RowRates:
        """Launch the kernels; several times where there are many numbers of drafts."""
        pair = self.pair(engine, target, draft)
        function: Callable[..., RowRates] = getattr(rates, self.declared.device)
        step = rates.MAX_COUNTS
        parts = [
            function(engine, pair, self.num_drafts[i : i + step])
            for i in range(0, len(self.num_drafts), step)
        ]
        if len(parts) == 1:
            return parts[0]
        return RowRates(engine.join([part.rates for part in parts]), None, parts[0].is_bad)


def filter_settings(target: Sampling, draft: Sampling) -> FilterSettings | None:
    """What the kernels have to leave out, None for nothing; filters are the same on both sides."""
    if not (target.masks_tokens or draft.masks_tokens):
        return None
    top_k = None if target.top_k is None else int(target.top_k)
    return FilterSettings(
        target.temperature == 0, draft.temperature == 0, top_k, target.top_p, target.min_p
    )


def device_rates(target: Opened, draft: Opened, request: Request, device: str | None) -> Any | None:
    """Rates of shape (..., len(num_drafts)), or None where the CPU should compute them.

    Parameters
    ----------
    device : {None, "gpu"}
        None leaves arrays on the host to the CPU, and all that the kernels do not do; "gpu" raises
        instead.

    Raises
    ------
    NoDevice
        There is no device, and one was asked for.
    UnsupportedScheme
        The kernels do not do it, and a device was asked for.
    InvalidDistribution
        A row is none.
    """

    def in_place(engine: Engine, stream: int, reference: Opened) -> Any:
        return _rates_in_place(engine, target, draft, request, stream, reference)

    def in_chunks(engine: Engine, p: NDArray[Any], q: NDArray[Any]) -> Any:
        return rates_in_chunks(engine, p, q, request)

    return on_device(target, draft, device, in_place, in_chunks)


NOT_READ = "the kernels read float32, float16 and bfloat16 logits"


def _rates_in_place(
    engine: Engine,
    target_logits: Opened,
    draft_logits: Opened,
    request: Request,
    stream: int,
    reference: Opened,
) -> Any:
    """Rates, handed back in the library of `reference`, or what is in the way."""
    obstacle = request.obstacle(engine.threads_per_row, target_logits.shape, draft_logits.shape)
    if obstacle:
        return obstacle
    target = interop.opened(engine, target_logits, stream, reference)
    draft = interop.opened(engine, draft_logits, stream, reference)
    if target is None or draft is None:
        return NOT_READ
    result = request.compute(engine, target, draft)
    shape = index_shape(target, draft)
    interop.check_rows(engine.download(result.is_bad), shape, target_logits, draft_logits)
    found = result.rates.reshape(*shape, len(request.num_drafts))
    return interop.handed_back(reference, found)


def rates_in_chunks(
    engine: Engine,
    target: NDArray[Any],
    draft: NDArray[Any],
    request: Request,
    chunk_bytes: int = streaming.CHUNK_BYTES,
) -> Any:
    """Rates of arrays on the host, of any size, or what is in the way."""
    obstacle = request.obstacle(engine.threads_per_row, target.shape, draft.shape)
    if obstacle:
        return obstacle
    if not (interop.is_readable(target) and interop.is_readable(draft)):
        return NOT_READ
    shape = np.broadcast_shapes(target.shape[:-1], draft.shape[:-1])
    found = np.empty((int(np.prod(shape)), len(request.num_drafts)))
    is_bad = np.empty(found.shape[0], np.int32)

    def collect(result: RowRates, rows: slice) -> None:
        found[rows] = engine.download(result.rates)
        is_bad[rows] = engine.download(result.is_bad)

    streaming.in_chunks(
        engine.lane,
        target,
        draft,
        lambda p, q, start: request.compute(engine, p, q),
        collect,
        chunk_bytes,
    )
    interop.check_rows(
        is_bad, shape, Opened.of(target, "target_logits"), Opened.of(draft, "draft_logits")
    )
    return found.reshape(*shape, len(request.num_drafts))[()]
