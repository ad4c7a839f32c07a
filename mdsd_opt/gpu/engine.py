"""What runs kernels: a device by way of CuPy, or anything else that can be given pointers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mdsd_opt.gpu.layout import DeviceLogits
from mdsd_opt.gpu.sources import Kernel


class Lane(Protocol):
    """A stream of its own with memory to stage rows in."""

    def current(self) -> AbstractContextManager[None]:
        """What is launched inside goes to this lane's stream."""
        ...

    def send(self, side: str, values: NDArray[Any]) -> DeviceLogits:
        """Copy rows to the device; the last ones that went this way must have been used."""
        ...

    def stage(self, name: str, values: NDArray[Any]) -> Any:
        """Copy what is no logits in the same way, into a buffer."""
        ...


class Engine(Protocol):
    """Memory and launches. A buffer is an array in the engine's memory, of the engine's library."""

    @property
    def threads_per_row(self) -> int:
        """Threads of all blocks of a cluster."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Return a new buffer."""
        ...

    def upload(self, values: NDArray[Any]) -> Any:
        """Copy a small array into a new buffer."""
        ...

    def join(self, buffers: Sequence[Any]) -> Any:
        """Buffers side by side, along their last axis."""
        ...

    def address(self, buffer: Any) -> int:
        """Where a buffer begins."""
        ...

    def lane(self) -> Lane:
        """Return a new lane for batches that come in chunks."""
        ...

    def download(self, buffer: Any) -> NDArray[Any]:
        """Copy a buffer to the host, after everything that was launched before."""
        ...

    def launch(
        self,
        kernel: Kernel,
        types: tuple[str, str],
        num_rows: int,
        arguments: Sequence[Any],
    ) -> None:
        """Run a kernel, one cluster a row, or one block where it reads no logits.

        `types` are those of the target's and the draft's logits; an argument is a buffer, a NumPy
        scalar, or None for a null pointer.
        """
        ...


def as_scalars(arguments: Sequence[Any]) -> list[Any]:
    """Null pointers as integers of a pointer's size; all else as it is."""
    return [np.uint64(0) if argument is None else argument for argument in arguments]
