"""Functions of SGLang: the kernel for chains, and DSpark's verification in PyTorch and in kernels.

Triton kernels run under Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from mdsd_opt.auditing.chains import Chain, Rows, Tokens
from mdsd_opt.auditing.engines.engine import Adapter
from mdsd_opt.auditing.engines.loading import (
    Race,
    coin,
    file_alone,
    interpret_triton,
    log1p,
    rebound,
    stand_in,
)

PACKAGE, TESTED = "sglang", ("0.5.23",)

_DSPARK = "sglang/kernels/ops/speculative/dspark/blockwise_rejection.py"


def _reject_sampling(*, block: bool) -> Chain:
    """SGLang's kernel for chains; its coins are float32 uniforms drawn before, as in the engine."""
    import torch

    interpret_triton(PACKAGE)
    path = "sglang/kernels/ops/speculative/reject_sampling.py"
    sample = partial(
        file_alone(PACKAGE, path, {}).chain_speculative_sampling_triton, block_verification=block
    )

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
        slots = len(drafts) + 1

        def integers(*values: int) -> Any:
            return torch.tensor([values], dtype=torch.int32)

        predicts = torch.zeros(slots, dtype=torch.int32)
        accepted = integers(*[-1] * slots)
        count = torch.zeros(1, dtype=torch.int32)
        coins, last = torch.rand(1, slots), torch.rand(1)
        laws = [torch.tensor(rows).float()[None].contiguous() for rows in (p, q)]
        sample(
            predicts, accepted, count, integers(0, *drafts), integers(*range(slots)), None, None,
            coins, last, *laws, 1.0, 1.0, True,
        )  # fmt: skip
        return tuple(predicts[: int(count) + 1].tolist())

    return verify


class _Struct:
    def __init_subclass__(cls, **options: object) -> None:
        """Accept and ignore options of a class, as msgspec's base class takes them."""


def _dspark() -> Chain:
    """DSpark in PyTorch, at temperature 1; its generator is seeded by a counter."""
    interpret_triton(PACKAGE)
    module = file_alone(PACKAGE, _DSPARK, _stand_ins())
    vars(module)["torch"] = _WithoutSeeds("torch")
    return _at_temperature_one(module.blockwise_rejection_torch)


class _WithoutSeeds(ModuleType):
    """PyTorch module whose generators ignore seeds and draw from PyTorch's own generator.

    In the engine the counter moves on at every step; here each call is a first one.
    """

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)

    def Generator(self, device: Any = None) -> Any:  # as PyTorch's
        return SimpleNamespace(manual_seed=lambda seed: None)

    def rand(self, *size: Any, generator: Any, **named: Any) -> Any:
        import torch

        return torch.rand(*size, **named)


def _at_temperature_one(reject: Callable[..., Any]) -> Chain:
    import torch

    one = torch.ones(1)

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
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


def _stand_ins() -> dict[str, ModuleType]:
    folder = "sglang.kernels.ops.speculative.dspark"
    return stand_in(f"{folder}.dispatch", inputs_on_cuda=None) | stand_in("msgspec", Struct=_Struct)


def _dspark_kernel() -> Chain:
    """The kernels of DSpark, whose random numbers are drawn from PyTorch."""
    import triton.language as tl

    interpret_triton(PACKAGE)
    module = file_alone(PACKAGE, _DSPARK, _stand_ins())
    race = Race()
    vars(module).update(_murmur3_uniform32=race, libdevice=SimpleNamespace(log1p=log1p))

    def reject(**given: Any) -> Any:
        race.vocab_size = given["target_logits"].shape[-1]
        with rebound((tl, "rand", coin)):
            return module.blockwise_rejection_triton(**given)

    return _at_temperature_one(reject)


_CHAINS = Adapter(
    PACKAGE,
    TESTED,
    "sglang.kernels.ops.speculative.reject_sampling.chain_speculative_sampling_triton",
    "nothing; the file is loaded alone, and Triton interprets its kernel",
    chain=partial(_reject_sampling, block=False),
)

ADAPTERS = {
    "sglang": _CHAINS,
    "sglang_block": replace(_CHAINS, chain=partial(_reject_sampling, block=True)),
    "sglang_dspark": Adapter(
        PACKAGE,
        TESTED,
        "sglang.kernels.ops.speculative.dspark.blockwise_rejection.blockwise_rejection_torch",
        "the generator, seeded by a counter: uniforms from PyTorch instead; msgspec.Struct, which "
        "holds the seed; the choice between this form and the kernel",
        chain=_dspark,
    ),
    "sglang_dspark_kernel": Adapter(
        PACKAGE,
        TESTED,
        "sglang.kernels.ops.speculative.dspark.blockwise_rejection.blockwise_rejection_triton",
        (
            "tl.rand and the hash of a seed: uniforms from PyTorch instead; log1p of the device; "
            "msgspec.Struct, which holds the seed"
        ),
        chain=_dspark_kernel,
        takes_long=True,
    ),
}
