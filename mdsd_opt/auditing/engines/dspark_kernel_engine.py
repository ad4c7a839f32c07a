"""SGLang: the Triton kernels of DSpark's verification of a chain, under Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mdsd_opt.auditing.engines import dspark_engine
from mdsd_opt.auditing.engines.engine import Adapter, Chain
from mdsd_opt.auditing.engines.kernel_draws import Race, coin, log1p, rebound
from mdsd_opt.auditing.engines.loading import file_alone, interpret_triton

PACKAGE, TESTED = dspark_engine.PACKAGE, dspark_engine.TESTED
FUNCTION = "sglang.kernels.ops.speculative.dspark.blockwise_rejection.blockwise_rejection_triton"
REBOUND = (
    "tl.rand and the hash of a seed: uniforms from PyTorch instead; log1p of the device; "
    "msgspec.Struct, which holds the seed"
)


def chain() -> Chain:
    """The kernels, whose random numbers are drawn from PyTorch."""
    import triton.language as tl

    interpret_triton(PACKAGE)
    module = file_alone(PACKAGE, dspark_engine.PATH, dspark_engine.stand_ins())
    race = Race()
    vars(module).update(_murmur3_uniform32=race, libdevice=SimpleNamespace(log1p=log1p))

    def reject(**given: Any) -> Any:
        race.vocab_size = given["target_logits"].shape[-1]
        with rebound((tl, "rand", coin)):
            return module.blockwise_rejection_triton(**given)

    return dspark_engine.at_temperature_one(reject)


ADAPTERS = {
    "sglang_dspark_kernel": Adapter(
        PACKAGE, TESTED, FUNCTION, REBOUND, chain=chain, takes_long=True
    ),
}
