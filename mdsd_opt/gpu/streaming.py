"""Batches in the host's memory, sent to a device in chunks while earlier ones are worked on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.gpu.engine import Lane

#: Bytes of logits in one chunk, both sides together.
CHUNK_BYTES = 256 << 20

_NUM_LANES = 2


def in_chunks(
    new_lane: Callable[[], Lane],
    target: NDArray[Any],
    draft: NDArray[Any],
    compute: Callable[..., Any],
    collect: Callable[[Any, slice], None],
    chunk_bytes: int = CHUNK_BYTES,
    beside: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Work on a batch of any size, with no more than two chunks on the device.

    Parameters
    ----------
    new_lane : callable
        Makes a lane.
    target, draft : ndarray, shape (..., V)
        Of shapes that broadcast; float32, float16 or bfloat16.
    compute : callable
        ``compute(target, draft, start, *beside)`` launches the work on the rows from `start` on;
        what it returns is given to `collect` with the rows' place, once the other lane has been
        filled.
    beside : mapping of name to ndarray, shape (num_rows, n), optional
        What else belongs to the rows, and travels with them; handed to `compute` as buffers.
    """
    others = dict(beside or {})
    index_shape = np.broadcast_shapes(target.shape[:-1], draft.shape[:-1])
    target, draft = (np.broadcast_to(x, (*index_shape, x.shape[-1])) for x in (target, draft))
    num_rows = math.prod(index_shape)
    row_bytes = sum(x.shape[-1] * x.itemsize for x in (target, draft, *others.values()))
    size = max(1, chunk_bytes // row_bytes)
    lanes = [new_lane() for _ in range(min(_NUM_LANES, math.ceil(num_rows / size)))]
    waiting: list[tuple[Lane, Any, slice]] = []
    for number, start in enumerate(range(0, num_rows, size)):
        rows = slice(start, min(start + size, num_rows))
        lane = lanes[number % len(lanes)]
        if len(waiting) == len(lanes):
            _finish(waiting.pop(0), collect)
        with lane.current():
            sides = [
                lane.send(name, _rows(values, rows))
                for name, values in (("target", target), ("draft", draft))
            ]
            buffers = [lane.stage(name, values[rows]) for name, values in others.items()]
            waiting.append((lane, compute(*sides, start, *buffers), rows))
    for job in waiting:
        _finish(job, collect)


def _finish(job: tuple[Lane, Any, slice], collect: Callable[[Any, slice], None]) -> None:
    lane, result, rows = job
    with lane.current():
        collect(result, rows)


def _rows(values: NDArray[Any], rows: slice) -> NDArray[Any]:
    """Rows of the flattened batch, without flattening all of it."""
    if values.ndim == 1:
        return values[None]
    if values.ndim == 2:
        return values[rows]
    return values[np.unravel_index(np.arange(rows.start, rows.stop), values.shape[:-1])]
