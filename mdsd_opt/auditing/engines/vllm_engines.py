"""Rejection samplers of vLLM: of its V1 engine and of its second model runner.

Their Triton kernels run under Triton's interpreter.
"""

from __future__ import annotations

import inspect
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
    stand_in,
)

PACKAGE, TESTED = "vllm", ("0.33.0",)

#: Names that the file imports and that `rejection_sample` does not use on sampled requests.
_UNUSED = {
    "config.model": ("PROCESSED_LOGPROBS_MODES",),
    "model_executor.warmup.jit_warmup": ("WarmupChoices",),
    "utils.torch_utils": ("async_tensor_h2d",),
    "v1.outputs": ("LogprobsLists", "LogprobsTensors", "SamplerOutput"),
    "v1.sample.logits_processor.builtin": ("MinTokensLogitsProcessor",),
    "v1.sample.metadata": ("SamplingMetadata",),
    "v1.sample.ops.bad_words": ("apply_bad_words_with_drafts",),
    "v1.sample.ops.penalties": ("apply_all_penalties",),
    "v1.sample.ops.topk_topp_sampler": ("apply_top_k_top_p",),
    "v1.sample.sampler": ("Sampler",),
    "v1.spec_decode.fly": (
        "apply_fly_greedy_acceptance_kernel",
        "apply_fly_random_acceptance_kernel",
        "compute_fly_entropy",
    ),
    "v1.spec_decode.metadata": ("SpecDecodeMetadata",),
    "v1.spec_decode.utils": ("unconditional_to_conditional_rates",),
}

#: Package of the second model runner.
_FOLDER = "vllm.v1.worker.gpu"


def _first_runner() -> Chain:
    """Sampler of the V1 engine, with draft probabilities; the caller draws the bonus token."""
    import torch

    interpret_triton(PACKAGE)
    path = "vllm/v1/sample/rejection_sampler.py"
    sample = file_alone(PACKAGE, path, _stand_ins()).rejection_sample
    requests = SimpleNamespace(
        all_greedy=False, all_random=True, temperature=torch.ones(1), generators={}
    )

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
        bonus = torch.multinomial(torch.from_numpy(p[-1:]).float(), 1)
        count = len(drafts)
        with np.errstate(divide="ignore"):
            logits = torch.from_numpy(np.log(p[:-1])).float()
        tokens = sample(
            torch.tensor(drafts, dtype=torch.int32),
            [count],
            count,
            torch.tensor([count], dtype=torch.int32),
            torch.from_numpy(q).float().contiguous(),
            logits,
            bonus,
            requests,
        )[0]
        return tuple(token for token in tokens.tolist() if token >= 0)

    return verify


def _stand_ins() -> dict[str, ModuleType]:
    import triton
    import triton.language as tl

    made = stand_in("vllm.triton_utils", tl=tl, triton=triton)
    made |= stand_in("vllm.logger", init_logger=lambda name: None)
    made |= stand_in(
        "vllm.model_executor.warmup.jit_warmup_triton_helper",
        DispatchSpec=None,
        TritonWarmupTensor=None,
        triton_kernel_dispatcher_with_warmup=_launcher,
    )
    for module, names in _UNUSED.items():
        made |= stand_in(f"vllm.{module}", **dict.fromkeys(names))
    return made


def _launcher(*, kernel: Any, warmup_inputs: Any) -> Callable[..., Any]:
    """Launch a kernel on the grid and with the constants that the decorated function gives."""

    def decorate(specified: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(specified)

        def launch(*args: Any, **kwargs: Any) -> None:
            grid, constants = specified(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            known = set(kernel.arg_names)
            named = {f"{name}_ptr": value for name, value in given.items()} | given
            kernel[grid](**{k: v for k, v in named.items() if k in known}, **constants)

        return launch

    return decorate


def _second_runner(*, block: bool) -> Chain:
    """Sampler of the second model runner, with draft logits, at temperature 1."""
    import torch

    interpret_triton(PACKAGE)
    race = Race()
    sample = _loaded(race).rejection_sample

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
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


_SECOND = Adapter(
    PACKAGE,
    TESTED,
    "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils.rejection_sample",
    (
        "tl_rand32 and murmur3_uniform32, which hash a seed: uniforms from PyTorch instead; log1p "
        "of the device; its imports from the rest of the package, none of which the function calls"
    ),
    chain=partial(_second_runner, block=False),
    takes_long=True,
)

ADAPTERS = {
    "vllm": Adapter(
        PACKAGE,
        TESTED,
        "vllm.v1.sample.rejection_sampler.rejection_sample",
        (
            "the launcher of its kernels, which compiles them beforehand; its imports from the "
            "rest of the package, none of which the function calls"
        ),
        chain=_first_runner,
    ),
    "vllm_v2": _SECOND,
    "vllm_v2_block": replace(_SECOND, chain=partial(_second_runner, block=True)),
}
