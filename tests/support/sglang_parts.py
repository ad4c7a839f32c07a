"""SGLang's EAGLE drafting and verification on a CPU: its own files, and stand-ins for the rest.

What is loaded as installed: the registry of hooks, `fast_topk`, and all files of `REAL`. Everything
else that they import stands in by name, and a drafting and a target model answer from tables.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch

_SPECULATIVE = "sglang.srt.speculative"
REAL = (
    "sglang.srt.plugins",
    "sglang.srt.plugins.hook_registry",
    "sglang.kernels.ops.sampling",
    "sglang.kernels.ops.speculative.spec_tree",
    *(f"{_SPECULATIVE}.{name}" for name in ("eagle_info", "eagle_utils", "eagle_worker_common")),
    *(f"{_SPECULATIVE}.{name}" for name in ("eagle_worker_v2", "spec_utils")),
    f"{_SPECULATIVE}.eagle_draft_cuda_graph_runner",
)

Text = tuple[int, ...]
Law = Callable[[Text], Any]


class _Names(type):
    """Classes with the values that enumerations have."""

    def __getattr__(cls, name: str) -> Any:
        if not name.isupper():
            raise AttributeError(name)
        return MagicMock(name=name)


class _StandIn(ModuleType):
    """A module with whatever is asked for: classes, platforms that are not there, and mocks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = MagicMock(name=name)
        if name.startswith("is_"):
            made = lambda *given: False  # noqa: E731
        elif name[0].isupper() and not name.isupper():
            made = _Names(name, (), {"__init__": lambda self, *given, **named: None})
        setattr(self, name, made)
        return made


class _Finder:
    """Finds the real files where SGLang is installed, and stand-ins for all else of it."""

    def __init__(self) -> None:
        self._files = metadata.distribution("sglang")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "sglang":
            return None
        if name in REAL:
            file = Path(str(self._files.locate_file(name.replace(".", "/") + ".py")))
            if file.is_file():
                return importlib.util.spec_from_file_location(name, file)
            folder = file.with_suffix("")
            return importlib.util.spec_from_file_location(
                name, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "sglang.srt.utils.common":
            vars(module)["fast_topk"] = self.function("srt/utils/common.py", "fast_topk")

    def function(self, path: str, name: str) -> Any:
        """One function of a file that imports too much, compiled alone."""
        file = Path(str(self._files.locate_file(f"sglang/{path}")))
        found = [
            node
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(ast.Module(found, []), str(file), "exec"), scope)
        return scope[name]


def device_operation(*given: Any, **named: Any) -> None:
    """Where the operation for CUDA devices would be."""
    raise AssertionError("the operation of a device was called")


@contextmanager
def sglang_parts(tree_operation: Any = device_operation) -> Iterator[SimpleNamespace]:
    """The real modules, imported under their own names and gone again at the end."""
    before = {name: sys.modules.pop(name) for name in _loaded()}
    finder, compiled = _Finder(), torch.compile
    sys.meta_path.insert(0, finder)
    torch.compile = lambda **options: lambda function: function
    try:
        _prepare(tree_operation)
        yield SimpleNamespace(
            **{name.rpartition(".")[2]: importlib.import_module(name) for name in REAL}
        )
    finally:
        torch.compile = compiled
        sys.meta_path.remove(finder)
        for name in _loaded():
            del sys.modules[name]
        sys.modules |= before


def _loaded() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "sglang"]


def _prepare(tree_operation: Any) -> None:
    """What the files ask of their stand-ins beyond being there."""
    stand_in = importlib.import_module
    kernels = "sglang.kernels.ops.speculative"
    vars(stand_in("sglang.kernels.spec"))["CapabilityRequirement"] = MagicMock()
    shared = stand_in("sglang.srt.layers.attention.index_topk_share")
    vars(shared)["IndexTopKShareState"] = MagicMock()
    vars(stand_in("sglang.kernels.cake_kernels.sampling"))["supports_softmax"] = lambda x: False
    # The kernel for this takes the first of the largest, as PyTorch does.
    vars(stand_in(f"{kernels}.row_argmax"))["row_argmax"] = lambda x: x.argmax(-1)
    vars(stand_in(f"{kernels}.verify_sampling")).update(
        tree_speculative_sampling_target_only=tree_operation, chain_speculative_sampling_triton=None
    )
    envs = stand_in("sglang.srt.environ").envs
    envs.SGLANG_PLUGINS.get.return_value = envs.SGLANG_PLATFORM.get.return_value = None
    envs.SGLANG_OPT_USE_GUMBEL_SAMPLE.get.return_value = True
    envs.SGLANG_SIMULATE_ACC_LEN.get.return_value = -1.0
    spec = SimpleNamespace(
        speculative_use_rejection_sampling=False,
        speculative_use_block_verification=False,
        speculative_accept_threshold_single=1.0,
        speculative_accept_threshold_acc=1.0,
    )
    alone = SimpleNamespace(tp_group=SimpleNamespace(world_size=1))
    vars(stand_in("sglang.srt.runtime_context")).update(
        get_spec=lambda: spec, get_parallel=lambda: alone
    )


class Engine:
    """One request at a time through SGLang's own worker, from drafting to accepted tokens.

    The hidden state of a node is a number that stands for its text: what the engine does with
    hidden states is what routes the texts.
    """

    def __init__(
        self, parts: SimpleNamespace, topk: int, num_steps: int, num_nodes: int, **sampling: Any
    ) -> None:
        self.parts, self.num_nodes = parts, num_nodes
        self._texts: list[Text] = []
        worker = object.__new__(parts.eagle_worker_v2.EagleDraftWorker)
        vars(worker).update(
            topk=topk,
            speculative_num_steps=num_steps,
            speculative_num_draft_tokens=num_nodes,
            hot_token_id=None,
            cuda_graph_runner=None,
            cuda_graph_runner_for_draft_extend=None,
            draft_attn_backend=MagicMock(),
            index_share_for_mtp_iteration=False,
            seed_dsa_topk_from_draft_extend=False,
            plan_stream=None,
            plan_stream_ctx=MagicMock(),
            device="cpu",
            req_to_token_pool=None,
            speculative_algorithm=MagicMock(),
            tree_mask_mode=parts.spec_tree.TreeMaskMode.QLEN_ONLY,
            _topk1_parents_prealloc=torch.zeros(0, 1),
            target_worker=MagicMock(),
            draft_runner=MagicMock(canary_manager=None, forward=self._drafted),
        )
        worker.target_worker.model_runner.attn_backend.verify_mask = None
        worker.draft_runner.model_config.model_is_mrope = False
        self.worker = worker
        self.sampling = SimpleNamespace(
            temperatures=torch.ones(1, 1),
            top_ks=torch.full((1,), 1 << 30),
            sampling_seed=None,
            acc_additive_penalties=None,
            acc_scaling_penalties=None,
            logit_bias=None,
            is_all_greedy=False,
            need_top_k_sampling=False,
            need_top_p_sampling=False,
            has_watermark_candidates=False,
            **sampling,
        )
        module = parts.eagle_worker_v2
        module.prepare_for_draft = lambda draft_input, pool, batch, *rest, **more: (
            self._forward_batch(draft_input, num_steps),
            False,
            None,
        )
        module.prepare_for_draft_extend = lambda *given, **named: SimpleNamespace(
            input_ids=torch.zeros(num_nodes)
        )
        module.ForwardBatch.init_new = lambda *given, **named: MagicMock()
        parts.eagle_utils._verify_uses_greedy = lambda **asked: asked["is_all_greedy"]
        parts.spec_tree._is_xpu = True  # the form of the tree's construction that is in Triton
        build = parts.spec_tree.sgl_build_tree_kernel_triton
        parts.spec_tree.sgl_build_tree_kernel_triton = remembered(build)

    def _forward_batch(self, draft_input: Any, num_steps: int) -> Any:
        """What a drafting pass reads."""
        return SimpleNamespace(
            spec_info=draft_input,
            forward_mode=SimpleNamespace(is_idle=lambda: False),
            out_cache_loc=torch.zeros(self.worker.topk * num_steps),
            batch_size=1,
            sampling_info=self.sampling,
            positions=torch.zeros(1, dtype=torch.int64),
            mark_forward_metadata_ready=lambda: None,
        )

    def _drafted(self, forward_batch: Any) -> Any:
        """Logits and hidden states after the tokens of a level, or after a whole text."""
        hidden = getattr(forward_batch, "spec_info", None)
        if isinstance(forward_batch, MagicMock) or hidden is None:
            texts = [self._text] * self.num_nodes  # of which the engine picks one
        else:
            parents = [self._texts[int(n)] for n in hidden.hidden_states[:, 0]]
            tokens = forward_batch.input_ids.tolist()
            texts = [(*p, t) for p, t in zip(parents, tokens, strict=True)]
        first = len(self._texts)
        self._texts += texts
        hidden = torch.arange(first, first + len(texts), dtype=torch.float64)[:, None]
        logits = torch.stack([self._logits(self._draft, text) for text in texts])
        output = SimpleNamespace(next_token_logits=logits, hidden_states=hidden)
        return SimpleNamespace(logits_output=output)

    @staticmethod
    def _logits(law: Law, text: Text) -> Any:
        return torch.as_tensor(law(text)).log().float()

    def first_drafts(self, draft: Law) -> Any:
        """The draft input of a prompt's end."""
        self._draft, self._text, self._texts = draft, (), []
        batch = MagicMock()
        batch.forward_mode.is_idle.return_value = False
        batch.input_ids, batch.extend_lens = torch.zeros(1, dtype=torch.int64), [1]
        batch.sampling_info, batch.seq_lens = self.sampling, torch.ones(1, dtype=torch.int64)
        batch.chunked_req_next_prompt_token = None
        worker = self.worker
        before, self.num_nodes = self.num_nodes, 1
        found = worker._draft_extend_for_prefill(batch, None, torch.zeros(1, dtype=torch.int64))
        self.num_nodes = before
        return found

    def batch(self, draft_input: Any) -> Any:
        """The batch of one request that a worker is given."""
        return SimpleNamespace(
            spec_info=draft_input,
            forward_mode=SimpleNamespace(is_idle=lambda: False),
            seq_lens=torch.ones(1, dtype=torch.int64),
            seq_lens_sum=1,
            device="cpu",
            sampling_info=self.sampling,
        )

    def step(self, draft_input: Any, target: Law) -> tuple[Text, Any]:
        """Tokens of one step and the draft input of the next."""
        batch = self.batch(draft_input)
        verify_input = self.worker.draft(batch)
        texts = self.texts_of(verify_input)
        logits = torch.stack([self._logits(target, (*self._text, *text)) for text in texts])
        predict, lengths, places = self.parts.eagle_utils.eagle_sample(
            verify_input, batch, SimpleNamespace(next_token_logits=logits)
        )
        tokens = tuple(int(predict[place]) for place in places[0, : int(lengths[0])])
        self._text = (*self._text, *tokens)
        result = SimpleNamespace(
            prepared_draft_extend_inputs=None,
            accept_lens=lengths.long(),
            next_token_ids=predict,
            logits_output=SimpleNamespace(hidden_states=None),
            next_draft_input=SimpleNamespace(draft_probs=None),
            new_seq_lens=None,
        )
        self.worker._draft_extend_for_decode(batch, result)
        result.next_draft_input.bonus_tokens = torch.tensor([tokens[-1]])
        return tokens, result.next_draft_input

    def texts_of(self, verify_input: Any) -> list[Text]:
        """The drafts on the way to each node."""
        tokens = verify_input.draft_token.tolist()
        texts: dict[int, Text] = {0: ()}
        order = [0]
        for node in order:
            child = int(verify_input.retrieve_next_token[0, node])
            while child >= 0:
                texts[child] = (*texts[node], tokens[child])
                order.append(child)
                child = int(verify_input.retrieve_next_sibling[0, child])
        return [texts[node] for node in range(len(tokens))]


def remembered(build: Callable[..., None]) -> Callable[..., None]:
    """The construction of a tree, interpreted once for each choice of nodes."""
    known: dict[Any, list[Any]] = {}

    def call(parents: Any, kept: Any, lengths: Any, *rest: Any) -> None:
        written = rest[:5]
        key = (str(parents.tolist()), str(kept.tolist()), rest[5:])
        if key not in known:
            build(parents, kept, lengths, *rest)
            known[key] = [tensor.clone() for tensor in written]
        for tensor, value in zip(written, known[key], strict=True):
            tensor.copy_(value)

    return call
