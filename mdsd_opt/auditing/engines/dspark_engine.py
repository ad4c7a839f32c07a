"""SGLang: the PyTorch form of DSpark's verification of a chain."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from mdsd_opt.auditing.engines.engine import Adapter, Chain, Laws, Tokens
from mdsd_opt.auditing.engines.loading import file_alone, interpret_triton, stand_in

PACKAGE = "sglang"
TESTED = ("0.5.23",)
FUNCTION = "sglang.kernels.ops.speculative.dspark.blockwise_rejection.blockwise_rejection_torch"
REBOUND = "msgspec.Struct, which holds the seed; the choice between this form and the kernel"

PATH = "sglang/kernels/ops/speculative/dspark/blockwise_rejection.py"


class _Struct:
    def __init_subclass__(cls, **options: object) -> None:
        """As msgspec's takes options of a class."""


def chain() -> Chain:
    """At temperature 1; its generator is seeded by a counter."""
    interpret_triton(PACKAGE)
    return at_temperature_one(file_alone(PACKAGE, PATH, stand_ins()).blockwise_rejection_torch)


def at_temperature_one(reject: Callable[..., Any]) -> Chain:
    import torch

    one = torch.ones(1)

    def verify(p: Laws, q: Laws, drafts: Tokens) -> Tokens:
        with np.errstate(divide="ignore"):
            target, draft = (torch.from_numpy(np.log(laws)).float() for laws in (p, q))
        accepted, last, _ = reject(
            candidates=torch.tensor([[0, *drafts]]),
            target_logits=target,
            draft_logits=draft[None],
            target_temperatures=one,
            draft_temperatures=one,
            noise=SimpleNamespace(key=0, counter=torch.zeros(1, dtype=torch.int64)),
        )
        return (*drafts[: int(accepted[0])], int(last[0]))

    return verify


def stand_ins() -> dict[str, ModuleType]:
    folder = "sglang.kernels.ops.speculative.dspark"
    return stand_in(f"{folder}.dispatch", inputs_on_cuda=None) | stand_in("msgspec", Struct=_Struct)


ADAPTERS = {
    "sglang_dspark": Adapter(PACKAGE, TESTED, FUNCTION, REBOUND, chain=chain),
}
