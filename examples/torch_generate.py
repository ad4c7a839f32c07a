"""A generation loop with several drafts at each step, verified by the optimal rule: PyTorch alone.

A step costs one pass of the draft model and one of the target, which scores the text with each of
the K drafts behind it. The verifier decides the next token; where that is a draft, the pass has
already told what comes after it, so that a second token follows for free. The text has exactly the
law of the target's own sampling.

    python examples/torch_generate.py TARGET DRAFT "Once upon a time"    # transformers' names

There is no cache here, so that the loop stays in view; `mdsd_opt.decoding` has one, and trees.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_verifiers import optimal

Model = Callable[[Tensor], Any]  # ids [B, T] -> an object with logits [B, T, V]


class Generated(NamedTuple):
    ids: Tensor  # [1, T + new tokens]
    steps: int  # passes of the target
    accepted: int  # steps whose token was a draft


@torch.inference_mode()
def generate(
    target: Model,
    draft: Model,
    ids: Tensor,
    num_drafts: int = 4,
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    replacement: bool = False,
    end: int | None = None,
    generator: torch.Generator | None = None,
) -> Generated:
    """Continue the text `ids`, shape [1, T], until `end` or `max_new_tokens`."""
    text, steps, accepted = ids, 0, 0
    longest = ids.shape[1] + max_new_tokens
    while text.shape[1] < longest and not _has_ended(text[:, ids.shape[1] :], end):
        q = _law(draft(text).logits[:, -1], temperature)
        drafts = torch.multinomial(q, num_drafts, replacement, generator=generator)
        branches = torch.cat([text.expand(num_drafts, -1), drafts.T], 1)
        p = _law(target(branches).logits[:, -2:], temperature)  # before and behind each draft
        verdict = optimal(p[:1, 0], q, drafts, replacement=replacement, generator=generator)
        text = torch.cat([text, verdict.tokens[:, None]], 1)
        steps += 1
        if verdict.accepted:
            accepted += 1
            behind = p[verdict.draft_index, 1]
            if text.shape[1] < longest and int(verdict.tokens) != end:
                text = torch.cat([text, torch.multinomial(behind, 1, generator=generator)], 1)
    return Generated(text, steps, accepted)


def _law(logits: Tensor, temperature: float) -> Tensor:
    return torch.softmax(logits.double() / temperature, -1)


def _has_ended(tokens: Tensor, end: int | None) -> bool:
    return end is not None and bool((tokens == end).any())


def main() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description="Several drafts a step, verified optimally.")
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("prompt")
    parser.add_argument("--num-drafts", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    given = parser.parse_args()
    words = AutoTokenizer.from_pretrained(given.target)
    target, draft = (
        AutoModelForCausalLM.from_pretrained(name).eval() for name in (given.target, given.draft)
    )
    ids = words(given.prompt, return_tensors="pt").input_ids
    found = generate(
        target, draft, ids, given.num_drafts, given.max_new_tokens, end=words.eos_token_id
    )
    print(words.decode(found.ids[0], skip_special_tokens=True))
    new = found.ids.shape[1] - ids.shape[1]
    print(f"\n{new} tokens in {found.steps} passes; {found.accepted} steps ended with a draft")


if __name__ == "__main__":
    main()
