"""Acceptance rates of Dask arrays: lazily, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.batch.job import Job
from mdsd_opt.errors import InvalidInput


def dask_rates(job: Job, target_logits: Any, draft_logits: Any, keep_axis: bool) -> Any:
    """Lazy array of rates, with the chunks of the target's leading axes.

    A row of logits must lie in one chunk, so the last axis is rechunked where it does not.
    """
    import dask.array as da

    target = da.asarray(target_logits)
    draft = da.asarray(draft_logits)
    if target.ndim == 0 or target.shape[:-1] != draft.shape[:-1]:
        raise InvalidInput(
            f"target_logits has shape {target.shape} and draft_logits has shape {draft.shape}: "
            "Dask arrays need the same leading axes"
        )
    target = target.rechunk({-1: -1})
    draft = draft.rechunk((*target.chunks[:-1], -1))
    last = target.ndim - 1

    def block(
        p: NDArray[Any], q: NDArray[Any], block_info: dict[Any, Any] | None = None
    ) -> NDArray[np.float64]:
        location = block_info[0]["array-location"] if block_info else []
        sides = Opened.of(p, "target_logits"), Opened.of(q, "draft_logits")
        rates = job.rates(*job.rows(*sides, tuple(start for start, _ in location[:-1])))
        return rates if keep_axis else rates[..., 0]

    chunks = target.chunks[:-1] + (((len(job.num_drafts),),) if keep_axis else ())
    return da.map_blocks(
        block,
        target,
        draft,
        dtype=np.float64,
        chunks=chunks,
        drop_axis=last,
        new_axis=last if keep_axis else None,
        meta=np.empty((0,) * len(chunks)),
    )
