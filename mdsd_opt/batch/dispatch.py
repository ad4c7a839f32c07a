"""Where a batch of logits is worked on: on a CUDA device, or by the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.gpu import interop
from mdsd_opt.gpu.engine import Engine, engine_of_device, is_available, require_device


def on_device(
    target: Opened,
    draft: Opened,
    device: str | None,
    in_place: Callable[[Engine, int, Opened], Any],
    in_chunks: Callable[[Engine, NDArray[Any], NDArray[Any]], Any],
) -> Any | None:
    """What is found on the device, or None where the CPU should work on the batch.

    Parameters
    ----------
    device : {None, "gpu"}
        None leaves arrays on the host to the CPU, and all that the kernels do not do; "gpu" raises
        instead.
    in_place : callable
        ``in_place(engine, stream, reference)``, for logits of which a side is on the device;
        results are handed back in the library of `reference`. Text is what is in the way.
    in_chunks : callable
        ``in_chunks(engine, target, draft)``, for arrays on the host. Text is what is in the way.

    Raises
    ------
    NoDevice
        There is no device, and one was asked for.
    UnsupportedScheme
        The kernels do not do it, and a device was asked for.
    """
    held = [side for side in (target, draft) if interop.is_on_device(side)]
    if device == "gpu":
        require_device()
    elif not held or not is_available():
        return None
    if held:
        with interop.on_stream_of(held[0]) as stream:
            found = in_place(engine_of_device(interop.current_device()), stream, held[0])
    else:
        engine = engine_of_device(interop.current_device())
        found = in_chunks(engine, target.numpy(), draft.numpy())
    if not isinstance(found, str):
        return found
    if device == "gpu":
        raise UnsupportedScheme(f'device="gpu": {found}. device=None computes on the CPU instead.')
    return None
