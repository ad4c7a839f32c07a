"""Operators of PyTorch: rates and decisions as parts of graphs that PyTorch traces."""

from __future__ import annotations

import functools
from typing import Any

from mdsd_opt.batch import acceptance_rates, verify_batch
from mdsd_opt.errors import MissingExtra
from mdsd_opt.serving.arguments import TreeArguments
from mdsd_opt.serving.verification import verify_tree

_SAMPLING = (
    "float temperature=1.0, float? draft_temperature=None, int? top_k=None, float? top_p=None, "
    "float? min_p=None"
)

#: Of `verify_tree`: what it writes, and what it reads.
_WRITTEN, _READ = TreeArguments._fields[:3], TreeArguments._fields[3:11]

_SCHEMAS = {
    "acceptance_rates": (
        "(Tensor target_logits, Tensor draft_logits, int[] num_drafts, *, "
        f'str drafts="with_replacement", str verifier="optimal", {_SAMPLING}) -> Tensor'
    ),
    "verify_batch": (
        "(Tensor target_logits, Tensor draft_logits, Tensor drafts, Tensor? uniforms=None, *, "
        f'str scheme="with_replacement", str verifier="optimal", {_SAMPLING}, int seed=0, '
        "int step=0) -> (Tensor, Tensor)"
    ),
    "verify_tree": (
        f"({', '.join(f'Tensor(a{i}!) {name}' for i, name in enumerate(_WRITTEN))}, "
        f"{', '.join(f'Tensor {name}' for name in _READ)}, float threshold_single=1.0, "
        "float threshold_acc=1.0, bool deterministic=True, Tensor? draft_rows=None, "
        "int num_drawn=1) -> ()"
    ),
}


@functools.cache
def register_operators() -> None:
    """Register ``torch.ops.mdsd_opt.acceptance_rates``, ``verify_batch`` and ``verify_tree``.

    Rates are ``acceptance_rates(target_logits, draft_logits, num_drafts, *, ...)``, of shape
    (..., len(num_drafts)) for a list `num_drafts`; decisions
    ``verify_batch(target_logits, draft_logits, drafts, uniforms=None, *, ...)``, a pair of tokens
    and places of drafts; options are those of `mdsd_opt.acceptance_rates` and
    `mdsd_opt.batch.verify_batch` for temperature, filters, scheme and verifier, and seed and step.
    Logits are taken for such without a look at their numbers. ``verify_tree`` takes what
    `mdsd_opt.serving.verify_tree` does, and writes in place. Each has a fake implementation, which
    tells shapes and types alone, so that `torch.compile` and `torch.export` trace through.

    Seed and step are constants of a graph: give `uniforms`, a tensor (..., 4), where the graph is
    run more than once. They are brought to the host.

    Raises
    ------
    MissingExtra
        There is no PyTorch.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra.of("torch", "serving", "operators of PyTorch") from error

    def rates(target: Any, draft: Any, num_drafts: list[int], **options: Any) -> Any:
        return acceptance_rates(target, draft, num_drafts, kind="logits", **options)

    def rates_alike(target: Any, draft: Any, num_drafts: list[int], **options: Any) -> Any:
        shape = torch.broadcast_shapes(target.shape[:-1], draft.shape[:-1])
        return target.new_empty((*shape, len(num_drafts)), dtype=torch.float64)

    def decisions(
        target: Any, draft: Any, drafts: Any, uniforms: Any = None, **options: Any
    ) -> Any:
        options |= {"kind": "logits", "uniforms": uniforms, "rng": options.pop("seed", 0)}
        verdict = verify_batch(target, draft, drafts, **options)
        return verdict.tokens, verdict.draft_index

    def decisions_alike(
        target: Any, draft: Any, drafts: Any, uniforms: Any = None, **options: Any
    ) -> Any:
        return tuple(target.new_empty(drafts.shape[:-1], dtype=torch.int64) for _ in range(2))

    for name, function, alike, written in (
        ("acceptance_rates", rates, rates_alike, ()),
        ("verify_batch", decisions, decisions_alike, ()),
        ("verify_tree", verify_tree, lambda *tensors, **options: None, _WRITTEN),
    ):
        operator = torch.library.custom_op(
            f"mdsd_opt::{name}", function, mutates_args=written, schema=_SCHEMAS[name]
        )
        operator.register_fake(alike)
