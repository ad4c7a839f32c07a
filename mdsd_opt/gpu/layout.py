"""Where the rows of a batch lie in memory, whatever its shape and strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLogits:
    """Logits in a runtime's memory."""

    address: int  # of the first logit
    dtype: str  # "float32", "float16" or "bfloat16"
    shape: tuple[int, ...]  # (..., V)
    strides: tuple[int, ...]  # in elements; that of the last axis is one
    owner: Any  # keeps the memory alive

    @property
    def itemsize(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def vocab_size(self) -> int:
        return self.shape[-1]


def index_shape(target: DeviceLogits, draft: DeviceLogits) -> tuple[int, ...]:
    """Shape of the batch; `InvalidInput` for shapes or vocabularies that do not fit."""
    if target.vocab_size != draft.vocab_size:
        raise InvalidInput(
            f"target_logits has {target.vocab_size} tokens and draft_logits has "
            f"{draft.vocab_size}. On a device both need the same vocabulary: pad the narrower one "
            "with -inf."
        )
    try:
        return np.broadcast_shapes(target.shape[:-1], draft.shape[:-1])
    except ValueError:
        raise InvalidInput(
            f"target_logits has shape {target.shape} and draft_logits has shape {draft.shape}: "
            "all axes but the last must fit to each other"
        ) from None


def runs(target: DeviceLogits, draft: DeviceLogits) -> Iterator[tuple[slice, list[Any]]]:
    """Rows that one launch can reach, and what kernels take to find them.

    That is the first logit and two strides of either side, and a number n: row r is at (r // n,
    r % n). There is a single run unless the strides are very irregular.
    """
    shape = index_shape(target, draft)
    sizes = list(shape)
    strides = [
        list(axis) for axis in zip(_strides(target, shape), _strides(draft, shape), strict=True)
    ]
    axis = len(sizes) - 2
    while axis >= 0:  # merge axes that are evenly spaced as one
        follows = all(
            outer == inner * sizes[axis + 1]
            for outer, inner in zip(strides[axis], strides[axis + 1], strict=True)
        )
        if follows or sizes[axis] == 1:
            sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
            del strides[axis]
        elif sizes[axis + 1] == 1:
            del sizes[axis + 1], strides[axis + 1]
        axis = min(axis, len(sizes)) - 1
    while len(sizes) < 2:
        sizes.insert(0, 1)
        strides.insert(0, [0, 0])
    per_run = sizes[-2] * sizes[-1]
    if per_run == 0:
        return
    for number, index in enumerate(np.ndindex(*sizes[:-2])):
        arguments: list[Any] = []
        for side, logits in enumerate((target, draft)):
            offset = sum(i * stride[side] for i, stride in zip(index, strides[:-2], strict=True))
            arguments.append(np.uint64(logits.address + offset * logits.itemsize))
            arguments += (np.int64(stride[side]) for stride in strides[-2:])
        part = slice(number * per_run, (number + 1) * per_run)
        yield part, [*arguments, np.int64(sizes[-1])]


def _strides(logits: DeviceLogits, shape: tuple[int, ...]) -> list[int]:
    """Strides of the batch axes after broadcasting to `shape`."""
    own = list(logits.strides[:-1])
    for axis, size in enumerate(logits.shape[:-1]):
        if size == 1:
            own[axis] = 0
    return [0] * (len(shape) - len(own)) + own


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)
