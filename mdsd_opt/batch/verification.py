"""Decisions of the optimal verifier for batches of logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.arrays import library_of, like, to_numpy
from mdsd_opt.batch.device_rates import filter_settings
from mdsd_opt.batch.rows import LogitRows, Sampling, Storage, paired_rows
from mdsd_opt.errors import InvalidInput
from mdsd_opt.gpu import interop, rates, twin
from mdsd_opt.gpu.availability import is_available, require_device
from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.layout import index_shape
from mdsd_opt.gpu.verification import Randomness, verify_rows


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedBatch:
    """Decisions of a batch, in the library of the target's logits.

    Attributes
    ----------
    tokens : array of int64, shape (...)
        The output token of every row.
    draft_index : array of int64, shape (...)
        Place of the first draft that is the output token, -1 if none is.
    """

    tokens: Any
    draft_index: Any

    @property
    def accepted(self) -> Any:
        """Whether the output token is among the drafts."""
        return self.draft_index >= 0


def verify_batch(
    target_logits: Any,
    draft_logits: Any,
    drafts: Any,
    *,
    temperature: float = 1.0,
    draft_temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int = 0,
    step: int = 0,
    device: str | None = None,
) -> VerifiedBatch:
    r"""Choose one output token for every row, from K drafts drawn independently from q.

    The output has the target's law p exactly. The selected draft has a marginal with a constant
    ratio to q in each of 2048 bins of p/q, at least p below the optimal threshold and at most p
    above it where rounding leaves room; on small vocabularies, and where acceptance is far from
    one, it accepts as often as any verifier can. Elsewhere it loses up to some thousandths: bins
    are about 2 percent wide. p and q are those of the logits with weights rounded to
    :math:`2^{-44}` of the row's largest.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        float32, float16 or bfloat16; others are rounded to float32.
    drafts : array_like of int, shape (..., K)
        Token ids in draw order; -1 where a draft is missing.
    temperature, draft_temperature : float
        Of the target, and of the draft if it differs. 0 leaves the likeliest token alone.
    top_k, top_p, min_p : optional
        Filters, applied to either side in this order; see `mdsd_opt.softmax`.
    seed, step : int
        Random numbers are Philox4x32-10 with the row's number and `step` as counter: give another
        step for every decision. The three numbers of a row (the level of the selection, the test,
        the residual) are separate streams.
    device : {None, "cpu", "gpu"}
        None goes by the logits, see `acceptance_rates`. The CPU takes the same steps, slowly.

    Returns
    -------
    VerifiedBatch

    Raises
    ------
    InvalidDistribution
        A row has a NaN or ``+inf`` or is all ``-inf``.
    InvalidInput
        A parameter out of range, or shapes that do not fit.
    NoDevice
        A device was asked for, and there is none.
    """
    if device not in (None, "cpu", "gpu"):
        raise InvalidInput(f'device is {device!r}: give None, "cpu" or "gpu"')
    if not 0 <= seed < 1 << 64 or not 0 <= step < 1 << 32:
        raise InvalidInput(f"seed is {seed} and step is {step}: give 64 and 32 bits at most")
    second = temperature if draft_temperature is None else draft_temperature
    samplings = [Sampling(t, top_k, top_p, min_p) for t in (temperature, second)]
    if not all(1e-6 < s.scale < 1e6 for s in samplings):
        raise InvalidInput(
            f"temperatures {temperature} and {second}: give 0, or between 2e-6 and 1e6"
        )
    randomness = Randomness(seed, step)
    if device == "gpu":
        require_device()
    on_device = [x for x in (target_logits, draft_logits) if interop.is_on_device(x)]
    if device == "gpu" or (device is None and on_device and is_available()):
        found = _on_device(target_logits, draft_logits, drafts, samplings, randomness, on_device)
        if found is not None:
            return found
    target, draft = paired_rows(target_logits, draft_logits, samplings[0], samplings[1], pad=False)
    ids = _draft_ids(to_numpy(drafts, "drafts"), target.index_shape)
    tokens = decide_on_cpu(target, draft, ids, randomness)
    shape = target.index_shape
    reference = draft_logits if library_of(target_logits) == "numpy" else target_logits
    places = _places(np, ids, tokens)
    return VerifiedBatch(
        like(reference, tokens.reshape(shape)), like(reference, places.reshape(shape))
    )


def decide_on_cpu(
    target: LogitRows, draft: LogitRows, drafts: NDArray[np.int64], randomness: Randomness
) -> NDArray[np.int64]:
    """Row by row, as the kernel does."""
    num_rows = drafts.shape[0]
    rows = randomness.first_row + np.arange(num_rows)
    uniforms = twin.uniforms_of(randomness.seed, randomness.step, rows)
    tokens = np.empty(num_rows, np.int64)
    storage = Storage(np.dtype(np.float32), False)
    for row in range(num_rows):
        sides = [side.read(row, row + 1, storage, side.vocab_size)[0] for side in (target, draft)]
        for side, logits in zip((target, draft), sides, strict=True):
            if not np.isfinite(logits.max()):
                raise side.bad_row(row)
        scales = target.sampling.scale, draft.sampling.scale
        weighed = twin.weigh(sides[0], sides[1], drafts.shape[1], *scales)
        tokens[row] = twin.verify_row(weighed, drafts[row], uniforms[row])
    return tokens


def _draft_ids(drafts: NDArray[Any], index_shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Drafts as rows, checked against the batch."""
    if drafts.dtype.kind not in "iu" or drafts.ndim == 0 or drafts.shape[-1] == 0:
        raise InvalidInput(
            f"drafts have shape {drafts.shape} and dtype {drafts.dtype}: give token ids, (..., K)"
        )
    if drafts.shape[:-1] != index_shape:
        raise InvalidInput(
            f"drafts have shape {drafts.shape} and the logits {index_shape} rows: all axes of "
            "drafts but the last must be those of the logits"
        )
    if drafts.shape[-1] > rates.MAX_DRAFTS:
        raise InvalidInput(f"{drafts.shape[-1]} drafts a row: give at most {rates.MAX_DRAFTS}")
    return np.ascontiguousarray(drafts, np.int64).reshape(-1, drafts.shape[-1])


def _places(library: Any, drafts: Any, tokens: Any) -> Any:
    """First place of each token among its row's drafts, or -1; for NumPy and CuPy."""
    hits = drafts == tokens[:, None]
    return library.where(hits.any(axis=1), hits.argmax(axis=1), -1)


def _on_device(
    target_logits: Any,
    draft_logits: Any,
    drafts: Any,
    samplings: list[Sampling],
    randomness: Randomness,
    on_device: list[Any],
) -> VerifiedBatch | None:
    """Decisions by the kernel; None for logits of a type that it does not read."""
    import contextlib

    import cupy

    from mdsd_opt.gpu.cupy_engine import engine_of_device

    with contextlib.ExitStack() as stack:
        reference = on_device[0] if on_device else None
        stream = 1
        if reference is not None:
            stream = stack.enter_context(interop.on_stream_of(reference))
        engine: Engine = engine_of_device(interop.current_device())
        target = interop.opened(engine, target_logits, stream, reference)
        draft = interop.opened(engine, draft_logits, stream, reference)
        if target is None or draft is None:
            return None
        scales = samplings[0].scale, samplings[1].scale
        pair = rates.Pair(target, draft, *scales)
        filters = filter_settings(samplings[0], samplings[1])
        if filters is not None:
            pair = rates.with_filters(engine, pair, filters)
        shape = index_shape(target, draft)
        if interop.is_on_device(drafts):
            ids = cupy.from_dlpack(drafts).astype(np.int64)
        else:
            ids = cupy.asarray(_draft_ids(to_numpy(drafts, "drafts"), shape))
        ids = cupy.ascontiguousarray(ids.reshape(-1, ids.shape[-1]))
        if ids.shape[0] != math.prod(shape) or not 1 <= ids.shape[1] <= rates.MAX_DRAFTS:
            raise InvalidInput(f"drafts of shape {drafts.shape} for logits of {shape} rows")
        result = verify_rows(engine, pair, ids, randomness)
        interop.check_rows(engine.download(result.is_bad), shape, target_logits, draft_logits)
        places = _places(cupy, ids, result.tokens)
        arrays = [x.reshape(shape) for x in (result.tokens, places.astype(np.int64))]
        if reference is None:
            return VerifiedBatch(*(engine.download(x) for x in arrays))
        return VerifiedBatch(*(interop.handed_back(reference, x) for x in arrays))
