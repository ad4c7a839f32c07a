"""Whether there is a device to compute on, and what is missing if there is none."""

from __future__ import annotations

import functools
import importlib

from mdsd_opt.errors import MdsdError, install_line
from mdsd_opt.gpu.sources import most_shared_bytes


class NoDevice(MdsdError, RuntimeError):
    """A CUDA device was asked for, and there is none that can be used."""


@functools.cache
def why_unavailable() -> str | None:
    """What keeps this process from using a CUDA device, and what to do; None if nothing does."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        return f"CuPy cannot be imported ({error}): {install_line('gpu')}"
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CUDARuntimeError, or whatever a broken driver raises
        return f"CuPy finds no CUDA driver ({error}): install the NVIDIA driver of this machine"
    if devices == 0:
        return "there is no CUDA device, or CUDA_VISIBLE_DEVICES hides it"
    device = cupy.cuda.Device()
    capability = int(device.compute_capability)
    if capability < 80:
        return f"the device has compute capability {capability / 10:.1f}, and 8.0 is the least"
    memory, needed = device.attributes["MaxSharedMemoryPerBlockOptin"], most_shared_bytes()
    if memory < needed:
        return f"the device gives a block {memory} bytes of shared memory, and {needed} are needed"
    return None


def is_available() -> bool:
    """Whether computing on a device is possible."""
    return why_unavailable() is None


def require_device() -> None:
    """Raise unless there is a device.

    Raises
    ------
    NoDevice
        The message says what is missing and which package to install.
    """
    reason = why_unavailable()
    if reason is not None:
        raise NoDevice(
            f'device="gpu" needs a CUDA device: {reason}. device=None computes on the CPU instead.'
        )
