"""Texts that a target writes by itself, with its hidden states, to train a draft on."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from draft_layer import Layer, attend, causal, feature_layers, rotary_of
from draft_prompts import prompts_for
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from mdsd_opt.decoding.loading import LoadedModel

TEMPERATURES, SHARES = (1.0, 0.6, 0.0), (0.6, 0.28, 0.12)  # of the texts
BLOCKS = 256  # of tokens; a power of two that divides the size of many vocabularies


class Reader:
    """The target on many texts of one length at once, with memory for keys that is taken once."""

    def __init__(self, loaded: LoadedModel, batch: int, length: int) -> None:
        inner, config = loaded.model.model, loaded.model.config
        self.layers = [Layer(layer, config) for layer in inner.layers]
        self.embedding, self.norm = inner.embed_tokens.weight, inner.norm
        self.features = feature_layers(loaded)[:-1]
        self.rotary = rotary_of(loaded, loaded.model.dtype)
        shape = (len(self.layers), 2, batch, config.num_key_value_heads, length)
        self.kept = torch.zeros((*shape, self.rotary.shape[-1]), dtype=loaded.model.dtype)

    def read(self, tokens: Tensor, start: int) -> Tensor:
        """Features of tokens [B, T] that stand at `start` and further on, [B, T, F]."""
        batch, length = tokens.shape
        x, end, states = self.embedding[tokens], start + length, []
        mask = causal(length, start, x)
        for n, layer in enumerate(self.layers):
            states += [x] * self.features.count(n)
            queries, keys, values = layer.project(x, self.rotary[:, start:end])
            self.kept[n, 0, :batch, :, start:end] = keys
            self.kept[n, 1, :batch, :, start:end] = values
            known = self.kept[n, :, :batch, :, :end]
            x = layer.finish(x, attend(queries, known[0], known[1], mask))
        return torch.cat([*states, self.norm(x)], -1)


def chosen(weights: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """One token per row by its temperature, [B], of weights at temperature 1, [B, V].

    By where a uniform falls in the cumulated weights: first among blocks of tokens, then in one.
    """
    tokens = torch.empty(len(weights), dtype=torch.long)
    for temperature in temperatures.unique():
        rows = temperatures == temperature
        some = weights if rows.all() else weights[rows]
        if temperature == 0:
            tokens[rows] = some.argmax(-1)
            continue
        some = some if temperature == 1 else some ** (1.0 / float(temperature))
        blocks = some.unflatten(-1, (math.gcd(some.shape[-1], BLOCKS), -1))
        sums = blocks.sum(-1).cumsum(-1)
        uniform = torch.rand(len(some), 1, generator=generator) * sums[:, -1:]
        at = place(sums, uniform)
        before = functional.pad(sums, (1, 0)).gather(1, at)
        within = blocks[torch.arange(len(some)), at[:, 0]].cumsum(-1)
        tokens[rows] = (at * within.shape[-1] + place(within, uniform - before))[:, 0]
    return tokens


def place(cumulated: Tensor, points: Tensor) -> Tensor:
    """First of the sums in each row that is larger than its point, else the last; [B, 1]."""
    found = torch.searchsorted(cumulated, points, right=True)
    return found.clamp_max(cumulated.shape[-1] - 1)


def written(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    temperatures: Tensor,
    length: int,
    seed: int,
) -> dict[str, Tensor]:
    """Texts of `length` + 1 tokens that the target writes, with the states a draft learns from.

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
        top, free = logits.amax(-1, keepdim=True), tokens[:, n] < 0
        weights = logits.sub_(top).exp_()
        normaliser[free, n - 1] = (weights.sum(-1).log() + top[:, 0])[free]
        weights[:, ends] = 0.0
        tokens[free, n] = chosen(weights, temperatures, generator)[free]
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
        return self.spent / self.seconds if self.seconds else 1.0


def tell(what: str) -> None:
    """Print a line of progress; on a terminal in place of the one before."""
    ends = "\r" if sys.stderr.isatty() else "\n"
    print(f"{what:<78}", end=ends, file=sys.stderr, flush=True)


def write_texts(loaded: LoadedModel, options: argparse.Namespace) -> None:
    """Write texts to train on, batch by batch until the budget is spent, into files of a folder."""
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
        temperatures = torch.tensor(rng.choice(TEMPERATURES, options.batch, p=SHARES))
        with torch.inference_mode():
            texts = written(
                loaded,
                [x[-longest:] for x in prompts],
                temperatures.float(),
                options.length,
                number,
            )
        took = time.process_time() - began
        save(texts, folder / f"{number:04}.safetensors", {"seconds": f"{took:.3f}"})
        number += 1
        tell(f"texts: {number * options.batch:,}, {budget.spent:.0f} of {budget.seconds:.0f} CPU s")


def open_texts(path: Path) -> Any:
    """Open file of texts, of which only the requested parts are read."""
    return safe_open(path, "pt")


def table_of_tokens(loaded: LoadedModel, batch: int = 512) -> Tensor:
    """Last state of the target after each token of the vocabulary alone, behind token 0; [V, D]."""
    reader, size = Reader(loaded, batch, 2), loaded.model.config.hidden_size
    with torch.inference_mode():
        reader.read(torch.zeros(batch, 1, dtype=torch.long), 0)
        tokens = torch.arange(loaded.vocab_size).split(batch)
        return torch.cat([reader.read(x[:, None], 1)[:, 0, -size:] for x in tokens])


class Texts:
    """Rows of the files of a folder, which stay on the disk; the first ones are kept aside."""

    def __init__(self, folder: Path, aside: int = 16) -> None:
        self.files = [open_texts(path) for path in sorted(folder.glob("*.safetensors"))]
        rows = [
            (n, row)
            for n, file in enumerate(self.files)
            for row in range(file.get_slice("tokens").get_shape()[0])
        ]
        self.aside, self.rows = rows[:aside], rows[aside:]

    def get(self, rows: Sequence[tuple[int, int]]) -> dict[str, Tensor]:
        found = {}
        for name in ("tokens", "features", "normaliser"):
            parts = [self.files[n].get_slice(name)[row : row + 1] for n, row in rows]
            found[name] = torch.cat(parts)
        return found

    def batches(self, size: int, seed: int) -> Iterator[dict[str, Tensor]]:
        """Batches of all rows in an order by chance, again and again."""
        rng = np.random.default_rng(seed)
        while True:
            order = rng.permutation(len(self.rows))
            for at in range(0, len(order) - size + 1, size):
                yield self.get([self.rows[n] for n in order[at : at + size]])


def likeliest_tokens(loaded: LoadedModel, texts: dict[str, Tensor], count: int) -> Tensor:
    """Tokens to which the target gives most probability in these texts, the likeliest first."""
    output = loaded.model.get_output_embeddings().weight
    last = texts["features"][..., -output.shape[1] :][texts["normaliser"].isfinite()]
    with torch.inference_mode():
        mass = sum((x @ output.T).float().softmax(-1).sum(0) for x in last.split(256))
    return mass.topk(min(count, len(mass))).indices
