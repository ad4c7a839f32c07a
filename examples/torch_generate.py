"""Trees of drafts in `generate` of the transformers library, in one more line.

    python examples/torch_generate.py TARGET DRAFT "Once upon a time"    # transformers' names

The text has exactly the law of `generate` without that line: with all logits processors, stopping
criteria and streamers that it is given. The two models share a tokenizer.
"""

from __future__ import annotations

import argparse
from typing import Any

from mdsd_opt.decoding import custom_generate


def continued(model: Any, draft: Any, inputs: Any, tree: str = "4x3", **options: Any) -> Any:
    """Texts with their continuations, as `generate` returns them."""
    return model.generate(
        **inputs, do_sample=True, **options,
        custom_generate=custom_generate, draft_model=draft, tree=tree,
    )  # fmt: skip


def main() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

    parser = argparse.ArgumentParser(description="generate with trees of drafts.")
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("prompt")
    parser.add_argument("--tree", default="4x3")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=1.0)
    given = parser.parse_args()
    words = AutoTokenizer.from_pretrained(given.target)
    target, draft = (
        AutoModelForCausalLM.from_pretrained(name).eval() for name in (given.target, given.draft)
    )
    continued(
        target, draft, words(given.prompt, return_tensors="pt"), given.tree,
        max_new_tokens=given.max_new_tokens, temperature=given.temperature,
        streamer=TextStreamer(words),
    )  # fmt: skip


if __name__ == "__main__":
    main()
