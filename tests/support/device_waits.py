"""What a device would have to be waited for, counted on the CPU."""

from __future__ import annotations

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations whose results have a shape that depends on numbers, and those that give a number.
WAITING = {
    "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "nonzero_static", "masked_select",
    "unique_dim", "_unique", "_unique2", "unique_consecutive", "repeat_interleave", "bincount",
    "histc", "_assert_async",
}  # fmt: skip


class Waits(TorchDispatchMode):
    """Counts what would wait for a device."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        masks = name in {"index", "index_put", "index_put_"} and any(
            x is not None and x.dtype == torch.bool for x in args[1]
        )
        sized = (kwargs or {}).get("output_size") is not None
        if (name in WAITING or masks) and not sized:
            self.found[name] += 1
        return operation(*args, **(kwargs or {}))
