"""A batch of logits, opened once: its arrays, and the work on every row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.arrays import Opened, as_logits, masked, require_broadcast
from mdsd_opt.base.checked import floats
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.batch.rows import RowWork
from mdsd_opt.errors import InvalidInput


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Logits of both sides as they were given, and the work on them, with its device.

    Nothing is copied or converted before it is known where to.
    """

    work: RowWork
    target: Opened
    draft: Opened
    device: str | None = None

    @classmethod
    def open(
        cls,
        target_logits: Any,
        draft_logits: Any,
        work: RowWork,
        device: str | None,
        kind: str | None = None,
        mask: Any = None,
        mask_draft: bool = True,
        lift: Any = None,
    ) -> Batch:
        """Open both sides by `as_logits`, `masked` and `lifted`, whose errors it raises."""
        target = as_logits(Opened.of(target_logits, "target_logits"), kind)
        draft = as_logits(Opened.of(draft_logits, "draft_logits"), kind)
        if mask is None and lift is None:
            return cls(work, target, draft, device)
        if mask_draft and target.shape[-1:] != draft.shape[-1:]:
            raise InvalidInput(
                f"a mask for {target.shape[-1]:,} tokens does not fit a draft of "
                f"{draft.shape[-1]:,}: set the draft's logits to -inf where it is False, and give "
                "mask_draft=False"
            )
        if mask is not None:
            target, draft = masked(target, mask), masked(draft, mask) if mask_draft else draft
        if lift is not None:
            target = lifted(target, lift, work.target_sampling)
            work = replace(work, target_sampling=Sampling())
            if mask_draft:
                draft = lifted(draft, lift, work.draft_sampling)
                work = replace(work, draft_sampling=Sampling())
        return cls(work, target, draft, device)

    @property
    def reference(self) -> Opened:
        """Side in whose library results are returned."""
        return self.draft if self.target.library == "numpy" else self.target

    @property
    def may_use_a_device(self) -> bool:
        """Whether to ask for a device: arrays of NumPy go there on request only."""
        if self.device is None:
            return {self.target.library, self.draft.library} != {"numpy"}
        return self.device == "gpu"

    def rates(self, keep_axis: bool = True) -> Any:
        """Acceptance rates, shape (..., len(num_drafts)); without the last axis on request."""
        if "dask" in (self.target.library, self.draft.library):
            return _dask_rates(self, keep_axis)
        if self.may_use_a_device:
            from mdsd_opt.batch.device import Request, device_rates

            found = device_rates(self.target, self.draft, Request(self.work), self.device)
            if found is not None:
                return found if keep_axis else found[..., 0]
        rates = self.work.rates(*self.work.rows(self.target, self.draft))
        if not keep_axis:
            rates = rates[..., 0]
        return rates[()] if self.reference.library == "numpy" else self.reference.like(rates)


def lifted(given: Opened, lift: Any, sampling: Sampling) -> Opened:
    """Logarithms of the laws of logits (..., V), each probability times the weight of its token.

    Raises `InvalidInput` for weights that are negative, not finite or of a shape that does not fit.
    """
    opened = Opened.of(lift, "lift")
    require_broadcast(opened, given, "number")
    weights = floats(opened.array, "lift")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InvalidInput("lift has weights that are negative or not finite: give numbers from 0")
    if given.library == "dask":
        raise InvalidInput("lift takes no Dask arrays: call acceptance_rates on their blocks")
    with np.errstate(divide="ignore"):
        rows = np.log(sampling.law(given.numpy())) + np.log(weights)
    return Opened(given.name, given.like(rows), given.library)


def _dask_rates(batch: Batch, keep_axis: bool) -> Any:
    """Lazy array of rates, with the chunks of the target's leading axes.

    A row of logits must lie in one chunk, so the last axis is rechunked where it does not.
    """
    if batch.device == "gpu":
        raise InvalidInput(
            'device="gpu" takes no Dask arrays: call acceptance_rates on their blocks'
        )
    import dask.array as da

    work = batch.work
    if work.num_threads is None:  # Dask runs the blocks in parallel already
        work = replace(work, num_threads=1)
    target, draft = da.asarray(batch.target.array), da.asarray(batch.draft.array)
    if target.ndim == 0 or target.shape[:-1] != draft.shape[:-1]:
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
        rates = work.rates(*work.rows(*sides, tuple(start for start, _ in location[:-1])))
        return rates if keep_axis else rates[..., 0]

    chunks = target.chunks[:-1] + (((len(work.num_drafts),),) if keep_axis else ())
    return da.map_blocks(
        block, target, draft, dtype=np.float64, chunks=chunks, drop_axis=last,
        new_axis=last if keep_axis else None, meta=np.empty((0,) * len(chunks)),
    )  # fmt: skip
