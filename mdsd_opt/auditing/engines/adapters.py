"""Adapters of the engines that are known by name; Triton's interpreter runs their kernels.

A Triton kernel makes random numbers for itself: it hashes a seed, a position and a token. Under
Triton's interpreter these hashes are functions of Python that the kernel looks up when it calls
them: others, put in their place, draw from PyTorch, whose draws an audit answers. That the hashes
are independent and uniform is assumed.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from mdsd_opt.auditing.engines.engine import Adapter, Drafted
from mdsd_opt.auditing.subject import TreeVerify
from mdsd_opt.base.arrays import Text
from mdsd_opt.errors import InvalidInput, MissingExtra
from mdsd_opt.trees import Node, Topology

#: Verifier of a chain, in a form that `mdsd_opt.audit_chain` takes: tensors with an axis of one.
Verify = Callable[[Any, Any, Any], Any]


def _transformers(shipped: Adapter) -> Verify:
    """Function of transformers on float32 logits, as `generate` passes them."""
    sample = shipped.load(is_accelerate_available=bool)  # it is not
    return lambda p, q, drafts: sample(drafts, q.log(), drafts.shape[1], p.log())[0]


def _lmdeploy(shipped: Adapter) -> Verify:
    """Function of LMDeploy with draft probabilities; the caller draws the bonus token, as there."""
    forward = shipped.load(PLACEHOLDER_TOKEN_ID=-1)().forward

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        logits, bonus = p[:, :-1].double().log(), p[0, -1:].multinomial(1)[0]
        return forward(logits, drafts, bonus, is_greedy=None, draft_probs=q)[0]

    return verify


def eagle(shipped: Adapter, temperature: float = 1.0) -> TreeVerify:
    """Function of EAGLE with buffers of `generate_tree_buffers`; the caller draws the last token.

    The logits are such that their laws at the temperature are the target's.
    """
    import torch

    utils = shipped.definitions("evaluate_posterior", "generate_tree_buffers")
    known: dict[tuple[tuple[int, ...], ...], Any] = {}

    def verify(root: Node, rng: np.random.Generator) -> Text:
        nodes = sorted(root.walk(), key=lambda node: (node.depth, node.place))
        places = tuple(node.place for node in nodes[1:])
        if places not in known:
            known[places] = utils.generate_tree_buffers([list(p) for p in places], device="cpu")
        buffers = known[places]
        # one row past the end for the index -1, which pads short paths
        tokens = torch.tensor([0, *(node.tokens[-1] for node in nodes[1:]), -1])
        chances, laws = _eagle_draws(nodes)
        paths = buffers["retrieve_indices"]
        with np.errstate(divide="ignore"):
            logits = temperature * np.log(np.stack([node.target for node in nodes]))
        best, accepted, law = utils.evaluate_posterior(
            torch.tensor(logits).float()[paths],
            tokens[paths],
            lambda ids, logits: logits / temperature,
            torch.tensor(chances)[paths],
            [torch.tensor(np.stack(level)).float() for level in laws],
            buffers["p_indices"],
            tokens[None, :-1],
            buffers["b_indices"],
        )
        last = torch.multinomial(law, 1)
        path = tokens[paths][int(best)].tolist()
        return (*path[1 : int(accepted) + 1], int(last))

    return verify


def _eagle_draws(nodes: list[Node]) -> tuple[list[float], list[list[Any]]]:
    """Probability of each draft given those before it, and the laws of the levels.

    In `topK_genrate` of the package, the chance is q divided by what is left of it, no more than 1.
    """
    chance = {nodes[0].place: 1.0}
    laws: list[list[Any]] = [[] for _ in range(nodes[-1].depth)]
    for node in nodes:
        if node.drafts is None:
            continue
        drawn = node.drafts.random_draws
        if drawn is None or drawn.is_replaced:
            raise InvalidInput(
                "eagle verifies drafts without replacement: audit it with "
                "scheme='without_replacement'"
            )
        laws[node.depth].append(drawn.q)
        rest = 1.0
        for rank, token in enumerate(node.draws.tolist()):
            q = float(drawn.q[token])
            chance[(*node.place, rank)] = min(max(q / rest if rest > 0 else 0.0, 0.0), 1.0)
            rest -= q
    return [*(chance[node.place] for node in nodes), 1.0], laws


def _vllm(shipped: Adapter) -> Verify:
    """Sampler of the V1 engine, with draft probabilities; the caller draws the bonus token."""
    import torch

    sample = shipped.load(
        triton_kernel_dispatcher_with_warmup=_launcher, **interpreted_triton(shipped.package)
    )
    requests = SimpleNamespace(
        all_greedy=False, all_random=True, temperature=torch.ones(1), generators={}
    )

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        count, bonus = drafts.shape[1], p[0, -1:].multinomial(1)
        arguments = drafts[0].int(), [count], count, torch.tensor([count], dtype=torch.int32)
        return sample(*arguments, q[0], p[0, :-1].log(), bonus, requests)

    return verify


def _launcher(*, kernel: Any, warmup_inputs: Any) -> Callable[..., Any]:
    """Launch a kernel on the grid and with the constants that the decorated function gives."""

    def decorate(specified: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(specified)

        def launch(*args: Any, **kwargs: Any) -> None:
            grid, constants = specified(*args, **kwargs)
            arguments = signature.bind(*args, **kwargs).arguments
            known = set(kernel.arg_names)
            named = {f"{name}_ptr": value for name, value in arguments.items()} | arguments
            kernel[grid](**{k: v for k, v in named.items() if k in known}, **constants)

        return launch

    return decorate


def _vllm_v2(shipped: Adapter, *, block: bool) -> Verify:
    """Sampler of the second model runner, with draft logits, at temperature 1."""
    import torch

    triton, race = interpreted_triton(shipped.package), RaceUniforms()
    gumbel = shipped.definitions(
        path="vllm/v1/worker/gpu/sample/gumbel.py", murmur3_uniform32=race, **triton
    )
    sample = shipped.load(
        tldevice=SimpleNamespace(log1p=log1p),
        tl_rand32=coin,
        gumbel_block_argmax=gumbel.gumbel_block_argmax,
        spec_step_seed=gumbel.spec_step_seed,
        **triton,
    )

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        slots, race.vocab_size = p.shape[1], p.shape[2]
        zero, zeros = torch.zeros(1, dtype=torch.int64), torch.zeros(slots, dtype=torch.int64)
        tokens, count = sample(
            target_logits=p[0].log(),
            draft_logits=q.log(),
            draft_sampled=_with_root(drafts)[0],
            cu_num_logits=torch.tensor([0, slots]),
            pos=torch.arange(slots),
            idx_mapping=zero,
            expanded_idx_mapping=zeros,
            expanded_local_pos=torch.arange(slots),
            temperature=torch.ones(1),
            seed=zero,
            num_speculative_steps=slots - 1,
            use_block_verification=block,
        )
        return tokens[0, : int(count[0])]

    return verify


def _with_root(drafts: Any) -> Any:
    """Drafts after the token before them, whatever that is."""
    import torch

    return torch.nn.functional.pad(drafts, (1, 0))


def _sglang(shipped: Adapter, *, block: bool) -> Verify:
    """SGLang's kernel for chains; its coins are float32 uniforms drawn before, as in the engine."""
    import torch

    sample = partial(shipped.load(**interpreted_triton(shipped.package)), block_verification=block)

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        slots = p.shape[1]
        predicts, count = (torch.zeros(n, dtype=torch.int32) for n in (slots, 1))
        place = torch.arange(slots, dtype=torch.int32)[None]
        sample(
            predicts, torch.full_like(place, -1), count, _with_root(drafts).int(), place,
            None, None, torch.rand(1, slots), torch.rand(1), p, q, 1.0, 1.0, True,
        )  # fmt: skip
        return predicts[: int(count) + 1]

    return verify


def _dspark(shipped: Adapter) -> Verify:
    """DSpark in PyTorch, whose generator a counter seeds: in the engine it moves on at every step.

    Here each call is a first one: generators ignore seeds, and draw from PyTorch's own.
    """
    import torch

    own = {
        "Generator": lambda device=None: SimpleNamespace(manual_seed=lambda seed: None),
        "rand": lambda *size, generator, **named: torch.rand(*size, **named),
    }
    unseeded = SimpleNamespace(**{**vars(torch), **own})
    triton = interpreted_triton(shipped.package)
    return _at_temperature_one(shipped.load(torch=unseeded, **triton))


def _dspark_kernel(shipped: Adapter) -> Verify:
    """The kernels of DSpark, whose random numbers are drawn from PyTorch."""
    triton, race = interpreted_triton(shipped.package), RaceUniforms()
    language = triton["tl"]
    device = {"libdevice": SimpleNamespace(log1p=log1p), "_murmur3_uniform32": race}
    reject = shipped.load(**triton, **device)

    def racing(**arguments: Any) -> Any:
        race.vocab_size = arguments["target_logits"].shape[-1]
        language.rand, before = coin, language.rand
        try:
            return reject(**arguments)
        finally:
            language.rand = before

    return _at_temperature_one(racing)


def _at_temperature_one(reject: Callable[..., Any]) -> Verify:
    import torch

    one, noise = torch.ones(1), SimpleNamespace(key=0, counter=torch.zeros(1, dtype=torch.int64))

    def verify(p: Any, q: Any, drafts: Any) -> Any:
        return reject(
            candidates=_with_root(drafts),
            target_logits=p[0].log(),
            draft_logits=q.log(),
            target_temperatures=one,
            draft_temperatures=one,
            noise=noise,
        )[:2]

    return verify


def interpreted_triton(package: str) -> dict[str, Any]:
    """Triton and its language by the names that files give them; it interprets kernels.

    Triton reads whether it does when it is imported, for its own functions, and at every kernel.
    """
    if "triton" not in sys.modules:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        raise MissingExtra(f"the kernels of {package} need triton: {error}") from error
    compiles = isinstance(tl.sum, triton.JITFunction)
    if compiles or os.environ.get("TRITON_INTERPRET") != "1":
        raise InvalidInput(
            "triton is imported already, and compiles: set TRITON_INTERPRET=1 before it is"
        )
    return {"triton": triton, "tl": tl}


def _as_tensor(values: Any, scalar: bool = False) -> Any:
    """A row of float32, or one number, as Triton's interpreter passes it on."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    row = np.atleast_1d(np.asarray(values, dtype=np.float32))
    kind = tl.float32 if scalar else tl.block_type(tl.float32, [row.size])
    return tl.tensor(TensorHandle(row, tl.float32), kind)


def coin(*where: Any, **options: Any) -> Any:
    """Draw one uniform."""
    import torch

    return _as_tensor(float(torch.rand(1)), scalar=True)


def log1p(values: Any) -> Any:
    """Elementwise log(1 + x) of a row; on devices it is in a library of their own."""
    with np.errstate(all="ignore"):
        return _as_tensor(np.log1p(values.handle.data))


class RaceUniforms:
    """Uniforms of a race for the first tokens, from which a kernel makes its Gumbel noise.

    They are :math:`u = 1 - e^{-x}` for exponentials x, of which the earliest wins, and of which the
    small ones have all their digits. `vocab_size` is set before each call; other places of a block
    are masked.
    """

    def __init__(self) -> None:
        self.vocab_size = 0

    def __call__(self, seed: Any, position: Any, offset: Any) -> Any:
        import torch

        block = np.full(offset.handle.data.size, 0.5)
        drawn = torch.empty(self.vocab_size).exponential_().double().numpy()
        block[: self.vocab_size] = -np.expm1(-drawn)
        return _as_tensor(block)


def _rows(package: str, *tested: str, **common: Any) -> Callable[..., Adapter]:
    """What makes the adapters of a package, with what all of them have."""

    def adapter(path: str, function: str, made: Any, rebound: str = "", **own: Any) -> Adapter:
        where: Any = {"package": package, "tested": tested, "path": path, "function": function}
        return Adapter(**where, made=made, rebound=rebound, **{**common, **own})

    return adapter


_CHAIN: Any = {"library": "torch", "batch": True}
_VLLM = _rows("vllm", "0.33.0", **_CHAIN)
_SGLANG = _rows("sglang", "0.5.23", **_CHAIN)
_DSPARK = partial(_SGLANG, "sglang/kernels/ops/speculative/dspark/blockwise_rejection.py")

_VLLM_V2 = _VLLM(
    "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
    "rejection_sample",
    partial(_vllm_v2, block=False),
    "tl_rand32 and murmur3_uniform32, which hash a seed: uniforms from PyTorch instead; log1p of "
    "the device",
    takes_long=True,
)
_SGLANG_CHAIN = _SGLANG(
    "sglang/kernels/ops/speculative/reject_sampling.py",
    "chain_speculative_sampling_triton",
    partial(_sglang, block=False),
    "nothing; Triton interprets its kernel",
)

ADAPTERS = {
    "transformers": _rows("transformers", "5.23.0", "5.24.0", **_CHAIN)(
        "transformers/generation/utils.py", "_speculative_sampling", _transformers
    ),
    "lmdeploy": _rows("lmdeploy", "0.18.0", **_CHAIN)(
        "lmdeploy/pytorch/backends/default/rejection_sampling.py",
        "DefaultRejectionSamplingImpl",
        _lmdeploy,
        "its abstract base class, which needs the rest of the package",
    ),
    "eagle": _rows("eagle-llm", "1.2.1")(
        "eagle/model/utils.py",
        "evaluate_posterior",
        eagle,
        drafted=Drafted(Topology({(): 2, (0,): 2}, "2, 2 after the first"), "without_replacement"),
    ),
    "vllm": _VLLM(
        "vllm/v1/sample/rejection_sampler.py",
        "rejection_sample",
        _vllm,
        "the launcher of its kernels, which compiles them beforehand",
    ),
    "vllm_v2": _VLLM_V2,
    "vllm_v2_block": replace(_VLLM_V2, made=partial(_vllm_v2, block=True)),
    "sglang": _SGLANG_CHAIN,
    "sglang_block": replace(_SGLANG_CHAIN, made=partial(_sglang, block=True)),
    "sglang_dspark": _DSPARK(
        "blockwise_rejection_torch",
        _dspark,
        "the generator, seeded by a counter: uniforms from PyTorch instead",
    ),
    "sglang_dspark_kernel": _DSPARK(
        "blockwise_rejection_triton",
        _dspark_kernel,
        "tl.rand and the hash of a seed: uniforms from PyTorch instead; log1p of the device",
        takes_long=True,
    ),
}
