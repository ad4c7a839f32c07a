"""Adapters of the engines that are known by name; Triton's interpreter runs their kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from mdsd_opt.auditing.engines.engine import Adapter, Drafted
from mdsd_opt.auditing.engines.interpreted_triton import Race, coin, interpreted_triton, log1p
from mdsd_opt.auditing.subject import TreeVerify
from mdsd_opt.base.array_types import Integers, Matrix, Text
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Node, Topology

#: Verifier of a chain, in a form that `mdsd_opt.audit_chain` takes.
Verify = Callable[..., Any]


def _single(laws: Any) -> Any:
    import torch

    return torch.tensor(laws).float().contiguous()


def _logits(laws: Any, scale: float = 1.0) -> Any:
    """Logits of laws, in float32, of which the laws at a temperature of `scale` are these."""
    with np.errstate(divide="ignore"):
        return _single(scale * np.log(laws))


def _kept(tokens: Any) -> Text:
    return tuple(token for token in tokens.tolist() if token >= 0)


def _transformers(shipped: Adapter) -> Verify:
    """Function of transformers on float32 logits, as `generate` passes them."""
    import torch

    sample = shipped.load()

    def verify(p: Matrix, q: Matrix, drafts: Integers) -> Any:
        logits = _logits(q)[None], len(drafts), _logits(p)[None]
        return sample(torch.from_numpy(drafts)[None], *logits)[0]

    return verify


def _lmdeploy(shipped: Adapter) -> Verify:
    """Function of LMDeploy with draft probabilities; the caller draws the bonus token, as there."""
    import torch

    sampler = shipped.load(PLACEHOLDER_TOKEN_ID=-1, RejectionSamplingImpl=object)()

    def verify(p: Matrix, q: Matrix, drafts: Integers) -> Text:
        bonus = torch.multinomial(torch.tensor(p[-1:]), 1)[0]
        with np.errstate(divide="ignore"):
            logits = torch.from_numpy(np.log(p[:-1]))[None]
        arguments = torch.from_numpy(drafts)[None], bonus
        tokens = sampler.forward(logits, *arguments, is_greedy=None, draft_probs=_single(q)[None])
        return _kept(tokens[0][0])

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
        best, accepted, law = utils.evaluate_posterior(
            _logits(np.stack([node.target for node in nodes]), temperature)[paths],
            tokens[paths],
            lambda ids, logits: logits / temperature,
            _single(chances)[paths],
            [_single(np.stack(level)) for level in laws],
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

    uncalled = (
        *("TritonWarmupTensor", "WarmupChoices", "compute_fly_entropy"),
        *("apply_fly_greedy_acceptance_kernel", "apply_fly_random_acceptance_kernel"),
    )
    sample = shipped.load(
        triton_kernel_dispatcher_with_warmup=_launcher,
        **interpreted_triton(shipped.package),
        **dict.fromkeys(uncalled),
    )
    requests = SimpleNamespace(
        all_greedy=False, all_random=True, temperature=torch.ones(1), generators={}
    )

    def verify(p: Matrix, q: Matrix, drafts: Integers) -> Text:
        bonus = torch.multinomial(_single(p[-1:]), 1)
        count = len(drafts)
        arguments = torch.tensor(drafts, dtype=torch.int32), [count], count
        counts = torch.tensor([count], dtype=torch.int32)
        return _kept(sample(*arguments, counts, _single(q), _logits(p[:-1]), bonus, requests)[0])

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

    triton, race = interpreted_triton(shipped.package), Race()
    hashes = {"tl_rand32": coin, "murmur3_uniform32": race}
    names = "gumbel_block_argmax", "spec_step_seed"
    gumbel = shipped.definitions(
        *names, path="vllm/v1/worker/gpu/sample/gumbel.py", **triton, **hashes
    )
    sample = shipped.load(
        tldevice=SimpleNamespace(log1p=log1p),
        tl_rand32=coin,
        **triton,
        **{name: getattr(gumbel, name) for name in names},
        **dict.fromkeys(("compute_fly_entropy", "philox_gumbel_block_argmax")),
    )

    def verify(p: Matrix, q: Matrix, drafts: Integers) -> Text:
        slots = len(drafts) + 1
        race.vocab_size = p.shape[1]
        tokens, count = sample(
            target_logits=_logits(p),
            draft_logits=_logits(q)[None],
            draft_sampled=torch.tensor([0, *drafts.tolist()]),
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


def _sglang(shipped: Adapter, *, block: bool) -> Verify:
    """SGLang's kernel for chains; its coins are float32 uniforms drawn before, as in the engine."""
    import torch

    sample = partial(shipped.load(**interpreted_triton(shipped.package)), block_verification=block)

    def verify(p: Matrix, q: Matrix, drafts: Integers) -> Text:
        slots = len(drafts) + 1

        def integers(*values: int) -> Any:
            return torch.tensor([values], dtype=torch.int32)

        predicts, count = (torch.zeros(n, dtype=torch.int32) for n in (slots, 1))
        coins, last = torch.rand(1, slots), torch.rand(1)
        sample(
            predicts, integers(*[-1] * slots), count, integers(0, *drafts.tolist()),
            integers(*range(slots)), None, None, coins, last,
            _single(p)[None], _single(q)[None], 1.0, 1.0, True,
        )  # fmt: skip
        return tuple(predicts[: int(count) + 1].tolist())

    return verify


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


def _dspark(shipped: Adapter) -> Verify:
    """DSpark in PyTorch; its generator is seeded by a counter."""
    triton = interpreted_triton(shipped.package)
    return _at_temperature_one(shipped.load(torch=_WithoutSeeds("torch"), **triton))


def _dspark_kernel(shipped: Adapter) -> Verify:
    """The kernels of DSpark, whose random numbers are drawn from PyTorch."""
    triton, race = interpreted_triton(shipped.package), Race()
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

    one = torch.ones(1)

    def verify(p: Matrix, q: Matrix, drafts: Integers) -> Text:
        accepted, last, _ = reject(
            candidates=torch.tensor([[0, *drafts.tolist()]]),
            target_logits=_logits(p),
            draft_logits=_logits(q)[None],
            target_temperatures=one,
            draft_temperatures=one,
            noise=SimpleNamespace(key=0, counter=torch.zeros(1, dtype=torch.int64)),
        )
        return (*drafts[: int(accepted[0])].tolist(), int(last[0]))

    return verify


_VLLM = partial(Adapter, package="vllm", tested=("0.33.0",), function="rejection_sample")
_SGLANG = partial(Adapter, package="sglang", tested=("0.5.23",))
_DSPARK = partial(_SGLANG, path="sglang/kernels/ops/speculative/dspark/blockwise_rejection.py")

_VLLM_V2 = _VLLM(
    path="vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
    made=partial(_vllm_v2, block=False),
    rebound="tl_rand32 and murmur3_uniform32, which hash a seed: uniforms from PyTorch instead; "
    "log1p of the device; what it imports of the package and does not call",
    takes_long=True,
)
_SGLANG_CHAIN = _SGLANG(
    path="sglang/kernels/ops/speculative/reject_sampling.py",
    function="chain_speculative_sampling_triton",
    made=partial(_sglang, block=False),
    rebound="nothing; Triton interprets its kernel",
)

ADAPTERS = {
    "transformers": Adapter(
        package="transformers",
        tested=("5.23.0", "5.24.0"),
        path="transformers/generation/utils.py",
        function="_speculative_sampling",
        made=_transformers,
    ),
    "lmdeploy": Adapter(
        package="lmdeploy",
        tested=("0.18.0",),
        path="lmdeploy/pytorch/backends/default/rejection_sampling.py",
        function="DefaultRejectionSamplingImpl",
        made=_lmdeploy,
        rebound="its abstract base class, which needs the rest of the package",
    ),
    "eagle": Adapter(
        package="eagle-llm",
        tested=("1.2.1",),
        path="eagle/model/utils.py",
        function="evaluate_posterior",
        made=eagle,
        drafted=Drafted(Topology({(): 2, (0,): 2}, "2, 2 after the first"), "without_replacement"),
    ),
    "vllm": _VLLM(
        path="vllm/v1/sample/rejection_sampler.py",
        made=_vllm,
        rebound="the launcher of its kernels, which compiles them beforehand; what it imports of "
        "the package and does not call",
    ),
    "vllm_v2": _VLLM_V2,
    "vllm_v2_block": replace(_VLLM_V2, made=partial(_vllm_v2, block=True)),
    "sglang": _SGLANG_CHAIN,
    "sglang_block": replace(_SGLANG_CHAIN, made=partial(_sglang, block=True)),
    "sglang_dspark": _DSPARK(
        function="blockwise_rejection_torch",
        made=_dspark,
        rebound="the generator, seeded by a counter: uniforms from PyTorch instead",
    ),
    "sglang_dspark_kernel": _DSPARK(
        function="blockwise_rejection_triton",
        made=_dspark_kernel,
        rebound="tl.rand and the hash of a seed: uniforms from PyTorch instead; log1p of the "
        "device",
        takes_long=True,
    ),
}
