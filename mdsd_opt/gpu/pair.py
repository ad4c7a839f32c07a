"""Both sides of a batch in the form of the kernels: places of rows, for any shape and strides."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput
from mdsd_opt.gpu.runtime import DeviceLogits, DeviceRuntime
from mdsd_opt.gpu.sources import BINNED_TOKEN_FILTERS, TOKEN_FILTERS


def index_shape(target: DeviceLogits, draft: DeviceLogits) -> tuple[int, ...]:
    """Shape of the batch; `InvalidInput` for shapes or vocabularies that do not fit."""
    return _index_shape(target.shape, draft.shape)


@functools.lru_cache
def _index_shape(target: tuple[int, ...], draft: tuple[int, ...]) -> tuple[int, ...]:
    if target[-1] != draft[-1]:
        raise InvalidInput(
            f"target_logits has {target[-1]} tokens and draft_logits has {draft[-1]}. On a device "
            "both need the same vocabulary: pad the narrower one with -inf."
        )
    try:
        return np.broadcast_shapes(target[:-1], draft[:-1])
    except ValueError:
        raise InvalidInput(
            f"target_logits has shape {target} and draft_logits has shape {draft}: "
            "all axes but the last must fit to each other"
        ) from None


def runs(target: DeviceLogits, draft: DeviceLogits) -> Iterator[tuple[slice, list[Any]]]:
    """Layouts of the rows that each launch can reach, as kernels take them.

    That is the first logit and two strides of either side, and a number n: row r is at (r // n,
    r % n). There is a single run unless the strides are very irregular.
    """
    sides = target, draft
    shapes, strides = (x.shape for x in sides), (x.strides for x in sides)
    for part, places, inner in _layout((*shapes,), (*strides,)):
        arguments: list[Any] = []
        for logits, (offset, *steps) in zip(sides, places, strict=True):
            arguments += [np.uint64(logits.address + offset * logits.itemsize), *steps]
        yield part, [*arguments, inner]


#: Rows, the first logit's offset and two strides of either side, and n, see `runs`.
_Run = tuple[slice, list[tuple[int, np.int64, np.int64]], np.int64]


@functools.lru_cache  # a plan's calls are of few shapes
def _layout(
    shapes: tuple[tuple[int, ...], ...], strides: tuple[tuple[int, ...], ...]
) -> list[_Run]:
    """What `runs` gives, by offsets instead of addresses."""
    shape = _index_shape(*shapes)
    sizes = list(shape)
    both = (_strides(*side, shape) for side in zip(shapes, strides, strict=True))
    steps = [list(axis) for axis in zip(*both, strict=True)]
    axis = len(sizes) - 2
    while axis >= 0:  # merge axes that are evenly spaced as one
        follows = all(
            outer == inner * sizes[axis + 1]
            for outer, inner in zip(steps[axis], steps[axis + 1], strict=True)
        )
        if follows or sizes[axis] == 1:
            sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
            del steps[axis]
        elif sizes[axis + 1] == 1:
            del sizes[axis + 1], steps[axis + 1]
        axis = min(axis, len(sizes)) - 1
    while len(sizes) < 2:
        sizes.insert(0, 1)
        steps.insert(0, [0, 0])
    per_run = sizes[-2] * sizes[-1]
    if per_run == 0:
        return []
    found: list[_Run] = []
    for number, index in enumerate(np.ndindex(*sizes[:-2])):
        places = []
        for side in range(2):
            offset = sum(i * step[side] for i, step in zip(index, steps[:-2], strict=True))
            places.append((offset, np.int64(steps[-2][side]), np.int64(steps[-1][side])))
        part = slice(number * per_run, (number + 1) * per_run)
        found.append((part, places, np.int64(sizes[-1])))
    return found


def _strides(
    own_shape: tuple[int, ...], strides: tuple[int, ...], shape: tuple[int, ...]
) -> list[int]:
    """Strides of the batch axes after broadcasting to `shape`."""
    own = list(strides[:-1])
    for axis, size in enumerate(own_shape[:-1]):
        if size == 1:
            own[axis] = 0
    return [0] * (len(shape) - len(own)) + own


def scale_arguments(scale: float) -> list[np.float32]:
    """Scale log2(e) / T as a sum of two numbers of single precision."""
    high = np.float32(scale)
    return [high, np.float32(scale - float(high))]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Both sides of a batch with the scales and filters that give probabilities.

    A scale is log2(e) divided by the temperature. Filters are buffers, one ``Filter`` of
    `kernels/logits.cuh` a row, of 8 bytes: tokens that are left out.
    """

    target: DeviceLogits
    draft: DeviceLogits
    target_scale: float
    draft_scale: float
    target_filters: Any = None
    draft_filters: Any = None

    @property
    def types(self) -> tuple[str, str]:
        return self.target.dtype, self.draft.dtype

    @property
    def num_rows(self) -> int:
        return math.prod(index_shape(self.target, self.draft))

    def arguments(self) -> Iterator[tuple[slice, list[Any]]]:
        """Rows of each launch, with the arguments that every kernel takes first to work on them."""
        for part, places in runs(self.target, self.draft):
            arguments = [*places, np.int32(self.target.vocab_size)]
            for scale, filters in (
                (self.target_scale, self.target_filters),
                (self.draft_scale, self.draft_filters),
            ):
                arguments += [*scale_arguments(scale), None if filters is None else filters[part]]
            yield part, arguments

    def exact_arguments(self) -> Iterator[tuple[slice, list[Any]]]:
        """`arguments` of kernels with whole weights of 64 bits, which take the bits next.

        That is of a weight's fraction: as many as keep the sum of a row below 2**63.
        """
        bits = np.int32(min(44, 61 - math.ceil(math.log2(max(self.target.vocab_size, 2)))))
        return ((part, [*arguments, bits]) for part, arguments in self.arguments())


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Settings of the filters that choose tokens; see `mdsd_opt.softmax`."""

    target_one_hot: bool = False  # a temperature of zero
    draft_one_hot: bool = False
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


def empty_filters(runtime: DeviceRuntime, num_rows: int) -> list[Any]:
    """Buffers for the filters of both sides."""
    return [runtime.empty((num_rows, 2), np.float32) for _ in range(2)]


def with_filters(
    runtime: DeviceRuntime, pair: Pair, settings: FilterSettings, filters: list[Any] | None = None
) -> Pair:
    """Pair with the tokens filtered on both sides as the settings say, in `filters` if given."""
    filters = filters or empty_filters(runtime, pair.num_rows)
    top_k = settings.top_k
    values = [
        np.int32(settings.target_one_hot),
        np.int32(settings.draft_one_hot),
        np.int32(0 if top_k is None or top_k >= pair.target.vocab_size else top_k),
        np.float64(1.0 if settings.top_p is None else settings.top_p),
        np.float64(math.log2(settings.min_p) if settings.min_p else -math.inf),
    ]
    for kernel, runs in (
        (BINNED_TOKEN_FILTERS, pair.arguments()),
        (TOKEN_FILTERS, pair.exact_arguments()),
    ):
        for part, arguments in runs:
            outputs = [side[part] for side in filters]
            rows = part.stop - part.start
            runtime.launch(kernel, pair.types, rows, [*arguments, *values, *outputs])
    return replace(pair, target_filters=filters[0], draft_filters=filters[1])


@dataclass(slots=True, eq=False)
class RowRates:
    """Acceptance rates of a batch, in the runtime's memory.

    Rows that a first look leaves open are worked on again when `rates` or `gaps` are asked for, on
    the stream that is then current; that waits for the first look.

    `gaps` are by how much each rate may be off. What was left open by the bins is certain for the
    weights a rate was computed from; the 5e-7 for the rounding of these is what it was seen to come
    to.
    """

    first_rates: Any  # float64, shape (num_rows, num_counts)
    first_gaps: Any  # the same; None where there is nothing to search for
    is_bad: Any  # int32, shape (num_rows,): 1 for a row that is no distribution, of any rates
    _settle: Callable[[], None] | None = None

    @property
    def rates(self) -> Any:
        self.settle_by(None)
        return self.first_rates

    @property
    def gaps(self) -> Any:
        self.settle_by(None)
        return self.first_gaps

    def settle_by(self, settle: Callable[[], None] | None) -> None:
        """Settle the open rows, and leave later ones to `settle`."""
        before, self._settle = self._settle, settle
        if before is not None:
            before()
