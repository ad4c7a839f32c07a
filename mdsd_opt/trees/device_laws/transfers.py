"""Transfers between the host and a model's device, and tokens that are promised.

A copy to the host waits for all that the device was told to do: a step makes few of them, and they
all are here. Copies to the device do not wait. Nor do tokens that a device has drawn and the host
has not been told of: to ask for each would be a wait for each level of a tree. They stand where
token ids stand, go into a model as they are, and are kept once the host has copied what it needs of
the whole tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats

_number = count()


def is_host(device: Any) -> bool:
    """Whether a device's numbers are the host's own, so that nothing has to wait for them."""
    return bool(device.type == "cpu")


def on_host(*parts: Any) -> list[Floats]:
    """Tensors of numbers that float64 holds, on the host in one copy.

    The only place where the host waits for the device.
    """
    import torch

    packed = torch.cat([part.flatten().double() for part in parts]).cpu().numpy()
    stops = np.cumsum([part.numel() for part in parts])[:-1]
    arrays = zip(np.split(packed, stops), parts, strict=True)
    return [array.reshape(part.shape) for array, part in arrays]


def on_device(numbers: Any, device: Any) -> Any:
    """Tensor on the device of the host's numbers; from pinned memory where that spares a wait."""
    import torch

    tensor = torch.as_tensor(numbers)
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class PromisedToken:
    """A token that the host does not know yet; never equal to another one, in order of making.

    As an int it is -1 until the promise is kept, which an interrupted step never does. The tensor
    is of int64 and shape ().
    """

    __slots__ = ("_number", "_value", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor, self._number = tensor, next(_number)
        self._value: int | None = None

    def keep(self, value: int) -> None:
        """Set the token; -1 if none was left."""
        self._value = value

    def __int__(self) -> int:
        return -1 if self._value is None else self._value

    def __lt__(self, other: PromisedToken) -> bool:
        return self._number < other._number

    def __ge__(self, least: int) -> bool:
        """Whether the token is at least so large, as far as is known: it may turn out to be -1."""
        return self._value is None or self._value >= least


def token_ids(rows: Sequence[Sequence[Any]], device: Any) -> Any:
    """Rows of token ids of one length, known or promised; int64."""
    import torch

    flat = [token for row in rows for token in row]
    later = [i for i, token in enumerate(flat) if isinstance(token, PromisedToken)]
    if not later:
        return on_device(np.array(rows, np.int64), device)
    known = np.array([0 if isinstance(token, PromisedToken) else token for token in flat], np.int64)
    drawn = torch.stack([flat[i].tensor for i in later]).to(device)
    ids = on_device(known, device).index_copy(0, on_device(later, device), drawn)
    return ids.view(len(rows), len(rows[0]))


def known(tokens: Sequence[Any]) -> tuple[int, ...]:
    """Token ids, all of whose promises are kept."""
    return tuple(map(int, tokens))
