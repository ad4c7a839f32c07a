"""Numbers on their way between the host and a model's device.

A copy to the host waits for all that the device was told to do: a step makes few of them, and they
all are here. Copies to the device do not wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_host(device: Any) -> bool:
    """Whether its numbers are the host's own, so that nothing has to wait for them."""
    return bool(device.type == "cpu")


def on_host(*parts: Any) -> list[NDArray[np.float64]]:
    """Some tensors of numbers that float64 holds, in one copy.

    The only place where the host waits for the device.
    """
    import torch

    packed = torch.cat([part.flatten().double() for part in parts]).cpu().numpy()
    stops = np.cumsum([part.numel() for part in parts])[:-1]
    arrays = zip(np.split(packed, stops), parts, strict=True)
    return [array.reshape(part.shape) for array, part in arrays]


def on_device(numbers: Any, device: Any) -> Any:
    """A tensor of what the host knows; from pinned memory where that spares a wait."""
    import torch

    made = torch.as_tensor(numbers)
    if torch.device(device).type != "cuda":
        return made.to(device)
    return made.pin_memory().to(device, non_blocking=True)
