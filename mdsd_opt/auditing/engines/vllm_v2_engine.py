"""vLLM: the rejection sampler of its second model runner, as interpreted Triton kernels."""

from __future__ import annotations

from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np

from mdsd_opt.auditing.engines.engine import Adapter, Chain, Laws, Tokens
from mdsd_opt.auditing.engines.kernel_draws import Race, coin, log1p
from mdsd_opt.auditing.engines.loading import file_alone, interpret_triton, stand_in

PACKAGE = "vllm"
TESTED = ("0.33.0",)
FUNCTION = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils.rejection_sample"
REBOUND = (
    "tl_rand32 and murmur3_uniform32, which hash a seed: uniforms from PyTorch instead; log1p of "
    "the device; its imports from the rest of the package, none of which the function calls"
)

_FOLDER = "vllm.v1.worker.gpu"


def chain(*, block: bool) -> Chain:
    """With draft logits, at temperature 1."""
    import torch

    interpret_triton(PACKAGE)
    race = Race()
    sample = _loaded(race).rejection_sample

    def verify(p: Laws, q: Laws, drafts: Tokens) -> Tokens:
        slots = len(drafts) + 1
        race.vocab_size = p.shape[1]
        with np.errstate(divide="ignore"):
            target, draft = (torch.from_numpy(np.log(laws)).float() for laws in (p, q))
        tokens, count = sample(
            target_logits=target,
            draft_logits=draft[None],
            draft_sampled=torch.tensor([0, *drafts]),
            cu_num_logits=torch.tensor([0, slots]),
            pos=torch.arange(slots),
            idx_mapping=torch.zeros(1, dtype=torch.int64),
            expanded_idx_mapping=torch.zeros(slots, dtype=torch.int64),
            expanded_local_pos=torch.arange(slots),
            temperature=torch.ones(1),
            seed=torch.zeros(1, dtype=torch.int64),
            num_speculative_steps=len(drafts),
            use_block_verification=block,
        )
        return tuple(tokens[0, : int(count[0])].tolist())

    return verify


def _loaded(race: Race) -> ModuleType:
    import triton
    import triton.language as tl

    made = stand_in(
        "vllm.triton_utils", tl=tl, triton=triton, tldevice=SimpleNamespace(log1p=log1p)
    )
    folder = _FOLDER.replace(".", "/")
    gumbel = file_alone(PACKAGE, f"{folder}/sample/gumbel.py", made)
    vars(gumbel).update(tl_rand32=coin, murmur3_uniform32=race)
    made |= stand_in("vllm.v1.spec_decode.fly", compute_fly_entropy=None)
    made |= stand_in(f"{_FOLDER}.sample.watermark", philox_gumbel_block_argmax=None)
    made |= stand_in(f"{_FOLDER}.sample.gumbel")
    made[f"{_FOLDER}.sample.gumbel"] = gumbel
    return file_alone(PACKAGE, f"{folder}/spec_decode/rejection_sampler_utils.py", made)


ADAPTERS = {
    "vllm_v2": Adapter(
        PACKAGE, TESTED, FUNCTION, REBOUND, chain=partial(chain, block=False), takes_long=True
    ),
    "vllm_v2_block": Adapter(
        PACKAGE, TESTED, FUNCTION, REBOUND, chain=partial(chain, block=True), takes_long=True
    ),
}
