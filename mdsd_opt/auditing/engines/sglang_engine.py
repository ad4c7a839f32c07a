"""SGLang: the Triton kernel that verifies chains, under Triton's interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

from mdsd_opt.auditing.engines.engine import Adapter, Chain, Laws, Tokens
from mdsd_opt.auditing.engines.loading import file_alone, interpret_triton

PACKAGE = "sglang"
TESTED = ("0.5.23",)
FUNCTION = "sglang.kernels.ops.speculative.reject_sampling.chain_speculative_sampling_triton"
REBOUND = "nothing; the file is loaded alone, and Triton interprets its kernel"


def chain(*, block: bool) -> Chain:
    """The coins are uniforms in float32, drawn before the call, as its engine does."""
    import torch

    interpret_triton(PACKAGE)
    path = "sglang/kernels/ops/speculative/reject_sampling.py"
    sample = partial(
        file_alone(PACKAGE, path, {}).chain_speculative_sampling_triton, block_verification=block
    )

    def verify(p: Laws, q: Laws, drafts: Tokens) -> Tokens:
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


ADAPTERS = {
    "sglang": Adapter(PACKAGE, TESTED, FUNCTION, REBOUND, chain=partial(chain, block=False)),
    "sglang_block": Adapter(PACKAGE, TESTED, FUNCTION, REBOUND, chain=partial(chain, block=True)),
}
