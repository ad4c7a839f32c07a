"""Hooks around functions of SGLang's EAGLE workers that greedy drafts need.

SGLang drafts a level with ``fast_topk``, prunes by products of scores, and hands zeros to the tree
operation in place of draft probabilities. Here the last child of each node is drawn, its law goes
with the tree, and the operation decides by it; all else is SGLang's. Where a law is missing, its
child counts as certain, which is lossless too.

Each hook takes the function that it stands around first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from mdsd_opt.serving.drafting import Draw, greedy_drafts, rows_of_children
from mdsd_opt.serving.verification import verify_tree

logger = logging.getLogger(__name__)

#: Attribute of a verify input that holds `DrawnChildren`.
_ATTRIBUTE = "mdsd_opt_drawn_children"


@dataclass(frozen=True, slots=True, eq=False)
class DrawnChildren:
    """Laws [bs R, V] of drawn children, and the row of each node of the trees, [bs, N]."""

    laws: Any
    rows: Any


@dataclass(slots=True, eq=False)
class GreedyHooks:
    """Hooks of one process, in which drafting and verification alternate.

    Attributes
    ----------
    draw : callable
        A token of each law.
    """

    draw: Draw
    _may_sample: Any = None
    _laws: list[Any] = field(default_factory=list)
    _drawn: DrawnChildren | None = None

    def renorm_draft_probs(
        self, original: Callable[..., Any], logits: Any, sampling_info: Any, is_chain: bool
    ) -> Any:
        """Law q at the temperatures of the requests, as rejection sampling of chains has it."""
        self._may_sample = None
        each, left_over = divmod(logits.shape[0], max(len(sampling_info.temperatures), 1))
        if is_chain or each == 0 or left_over:
            return original(logits, sampling_info, is_chain)
        self._may_sample = _top_ks(sampling_info).gt(1).repeat_interleave(each)
        temperatures = sampling_info.temperatures.repeat_interleave(each, dim=0)
        return original(logits, SimpleNamespace(temperatures=temperatures), True)

    def fast_topk(self, original: Callable[..., Any], values: Any, topk: int, dim: int) -> Any:
        """Scores and tokens of the children; of a chain, the likeliest."""
        if topk == 1 or self._may_sample is None:
            return original(values, topk, dim)
        drafts = greedy_drafts(values, topk, self.draw, may_sample=self._may_sample)
        self._laws.append(drafts.laws)
        return drafts.scores, drafts.tokens

    def draft_extend_for_prefill(
        self, original: Callable[..., Any], worker: Any, *args: Any, **named: Any
    ) -> Any:
        """Draft the first level of a new request; its laws go where those of chains would go."""
        self._laws.clear()
        draft_input = original(worker, *args, **named)
        self._hand_on(draft_input)
        return draft_input

    def draft_extend_for_decode(
        self,
        original: Callable[..., Any],
        worker: Any,
        batch: Any,
        batch_result: Any,
        **named: Any,
    ) -> None:
        """Draft the first level after a step."""
        self._laws.clear()
        original(worker, batch, batch_result, **named)
        self._hand_on(batch_result.next_draft_input)

    def _hand_on(self, draft_input: Any) -> None:
        """Pass on laws of the first level, each followed by its scores, [bs, V + K].

        The engine keeps them by request; requests whose first level was made elsewhere have none,
        and those of the request before may be found in their place. The scores tell.
        """
        import torch

        if self._laws:
            (laws,) = self._laws
            draft_input.draft_probs = torch.cat([laws, draft_input.topk_p], 1)

    def draft_forward(
        self, original: Callable[..., Any], worker: Any, forward_batch: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Draft the levels below: their laws are the fourth result, [bs, (depth - 1) K, V]."""
        import torch

        self._laws.clear()
        parents, kept, tokens, probs = original(worker, forward_batch)
        if self._laws:
            levels = [law.view(len(tokens), -1, law.shape[-1]) for law in self._laws]
            probs = torch.cat(levels, 1)
        return parents, kept, tokens, probs

    def draft(
        self,
        original: Callable[..., Any],
        worker: Any,
        batch: Any,
        *,
        with_topology: bool = False,
    ) -> Any:
        """Tree with the laws of its drawn children."""
        draft_input = batch.spec_info
        verify_input, parents, kept = original(worker, batch, with_topology=True)
        if worker.topk > 1 and kept is not None:
            drawn = _drawn_children(draft_input, verify_input.draft_probs, kept, worker)
            setattr(verify_input, _ATTRIBUTE, drawn)
        return (verify_input, parents, kept) if with_topology else verify_input

    def eagle_sample(
        self, original: Callable[..., Any], verify_input: Any, *args: Any, **named: Any
    ) -> Any:
        """Run all steps around the tree operation: penalties, temperature, top-k, top-p."""
        self._drawn = getattr(verify_input, _ATTRIBUTE, None)
        try:
            return original(verify_input, *args, **named)
        finally:
            self._drawn = None

    def tree_operation(self, original: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Run `verify_tree` for trees with drawn children, else SGLang's operation."""
        if self._drawn is None:
            original(*args, **named)
            return
        laws, vocab_size = self._drawn.laws, named["target_probs"].shape[-1]
        if laws.shape[-1] != vocab_size:
            _warn_of_vocabularies(laws.shape[-1], vocab_size)
            original(*args, **named)
            return
        verify_tree(*args, **{**named, "draft_probs": laws, "draft_rows": self._drawn.rows})

    def execute(self, runner: Any, forward_batch: Any) -> None:
        """Copy the requests' settings before a captured drafting pass, see `_top_ks`."""
        info = forward_batch.sampling_info
        if info is not None:
            num_requests = len(info.temperatures)
            runner.temperatures[:num_requests].copy_(info.temperatures)
            runner.top_ks[:num_requests].copy_(_top_ks(info))


def _top_ks(sampling_info: Any) -> Any:
    """Top-k of the requests, 1 where nothing is to be drawn: at temperature 0, or with a seed."""
    import torch

    if sampling_info.sampling_seed is not None:
        return torch.ones_like(sampling_info.top_ks)
    return sampling_info.top_ks


def _drawn_children(draft_input: Any, below: Any, kept: Any, worker: Any) -> DrawnChildren | None:
    """Laws of the first level and of those below, in the target's vocabulary."""
    import torch

    first = _first_level(draft_input, len(kept), worker.topk)
    if first is None and below is None:
        return None
    if first is None:
        first = torch.zeros_like(below[:, :1])
    laws = first if below is None else torch.cat([first, below], 1)
    rows = rows_of_children(kept, worker.topk, laws.shape[1])
    laws = laws.flatten(0, 1)
    if worker.hot_token_id is not None:  # the draft knows some of the target's tokens
        wide = laws.new_zeros(len(laws), worker.target_worker.model_config.vocab_size)
        laws = wide.index_copy_(1, worker.hot_token_id, laws)
    return DrawnChildren(laws, rows)


def _first_level(draft_input: Any, num_requests: int, topk: int) -> Any | None:
    """Laws [bs, 1, V], zeros where they belong to other drafts; None if there are none."""
    import torch

    handed, scores = draft_input.draft_probs, draft_input.topk_p
    if handed is None or len(handed) != num_requests:
        return None
    laws, made_with = handed[:, :-topk], handed[:, -topk:]
    belongs = (made_with == scores).all(1, keepdim=True)
    return torch.where(belongs, laws, 0.0)[:, None]


@cache
def _warn_of_vocabularies(draft: int, target: int) -> None:
    logger.warning(
        "mdsd_opt: draft laws of %d tokens for a target of %d; trees are verified by SGLang's own "
        "operation, which accepts fewer drawn drafts. Unset MDSD_OPT_SGLANG for these models.",
        draft,
        target,
    )
