"""Comparison of four losses that train a draft, from the same weights, on the same positions.

The draft of `examples/train_draft.py` is begun by cross-entropy, and trained further by each loss
with several seeds. The rates of one, two and four drafts after texts that were kept aside are
exact, at temperature 1. Differences from cross-entropy are taken position by position.

    PYTHONPATH=examples python benchmarks/draft_losses.py --draft build/draft
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acceptance_losses import rejection
from draft_layer import OneLayer
from draft_texts import Texts, save, tell
from safetensors.torch import load_file
from torch import Tensor
from train_draft import TARGET, begun, laws_and_logits, note, optimisers_of, steps

from mdsd_opt.decoding.loading import load_model
from mdsd_opt.evidence.intervals import mean_interval

NUM_DRAFTS = (1, 2, 4)
BY_NAME = {
    "cross_entropy": "cross-entropy",
    "rejection1": "1 - alpha_1",
    "rejection2": "1 - alpha_2",
    "rejection4": "1 - alpha_4",
}
BEGINNING = "at the start"


def rates(model: OneLayer, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """Exact rates of independent drafts after held-out texts, [positions, K], and text numbers."""
    found, numbers = [], []
    for at in range(0, len(texts.aside), 16):
        part = texts.get(texts.aside[at : at + 16])
        with torch.no_grad():
            p, logits = next(laws_and_logits(model, part, 1))
            here = [1.0 - rejection(p, logits, k) for k in NUM_DRAFTS]
        found.append(torch.stack(here, -1))
        numbers.append(at + part["normaliser"][:, 1:].isfinite().nonzero()[:, 0])
    return torch.cat(found).double().numpy(), torch.cat(numbers).numpy()


@dataclass
class StepBudget:
    """Budget of steps, not of seconds, so that slower losses do not read fewer texts."""

    steps: int
    taken: int = 0
    positions: int = 0  # that were learned from

    @property
    def share(self) -> float:
        return self.taken / self.steps if self.steps else 1.0

    def counted(self, batches: Iterator[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        for batch in batches:
            self.positions += int(batch["normaliser"][:, 1:].isfinite().sum())
            yield batch


def trained(
    model: OneLayer, texts: Texts, options: argparse.Namespace, loss: str, budget: StepBudget
) -> float:
    """Train until the budget is spent; return the CPU seconds."""
    began = time.process_time()
    options = argparse.Namespace(**{**vars(options), "loss": loss})
    batches = budget.counted(texts.batches(options.rows, options.seed))
    for _ in steps(model, optimisers_of(model), batches, budget, options):
        budget.taken += 1
    return time.process_time() - began


def measure(options: argparse.Namespace) -> None:
    """Write a line of JSON for each loss and seed, and rates by position to a file beside it."""
    loaded, done = load_model(TARGET), {(x["loss"], x["seed"]) for x in lines(options)}
    texts = Texts(options.draft / "texts", options.aside)
    beginning = options.out / "beginning.safetensors"
    if not beginning.exists():
        model = begun(loaded, texts, options.seed)
        trained(model, texts, options, "cross_entropy", StepBudget(options.beginning))
        save(model.state_dict(), beginning)
    weights = load_file(beginning)
    for loss, seed in [(BEGINNING, 0), *((x, n) for n in range(options.seeds) for x in BY_NAME)]:
        if (loss, seed) in done:
            continue
        model = OneLayer(loaded, weights["token_ids"], weights["table"])
        model.load_state_dict(weights, strict=False)
        budget = StepBudget(0 if loss == BEGINNING else options.steps)
        settings = argparse.Namespace(**{**vars(options), "seed": seed + 1})
        seconds = trained(model, texts, settings, loss, budget)
        found, numbers = rates(model, texts)
        np.savez_compressed(options.out / f"{loss}-{seed}.npz", rates=found, texts=numbers)
        line = {"loss": loss, "seed": seed, "learned": budget.positions, "seconds": seconds}
        note(options.out, {**line, "rates": found.mean(0).round(5).tolist()})
        tell(f"{loss}, seed {seed}, {seconds:.0f} CPU s: {found.mean(0).round(4).tolist()}")


def lines(options: argparse.Namespace) -> list[dict[str, Any]]:
    path = options.out / "measured.jsonl"
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def report(options: argparse.Namespace) -> None:
    """Print means over seeds, and differences from cross-entropy, as Markdown."""
    found: dict[str, list[np.ndarray]] = {}
    for line in lines(options):
        with np.load(options.out / f"{line['loss']}-{line['seed']}.npz") as kept:
            found.setdefault(line["loss"], []).append(kept["rates"])
            groups = kept["texts"]
    print(f"{len(groups):,} positions of {len(set(groups.tolist()))} texts\n")
    print(f"| loss | seeds | {' | '.join(f'K = {k}' for k in NUM_DRAFTS)} |")
    print("|---|---|---|---|---|")
    for name, runs in found.items():
        cells = [mean_interval(column, groups) for column in np.mean(runs, 0).T]
        shown = " | ".join(f"{x.mean:.4f} ± {x.half_width:.4f}" for x in cells)
        print(f"| {BY_NAME.get(name, name)} | {len(runs)} | {shown} |")
    usual = found.pop("cross_entropy", [])
    for name in [x for x in BY_NAME if x in found]:
        pairs = list(zip(found[name], usual, strict=False))
        cells = [mean_interval(x, groups) for x in np.mean([a - b for a, b in pairs], 0).T]
        shown = " | ".join(f"{x.mean:+.4f} ± {x.half_width:.4f}" for x in cells)
        print(f"| {BY_NAME[name]}, less cross-entropy | {len(pairs)} | {shown} |")
        each = [(a - b).mean(0) for a, b in pairs]
        print(
            f"| the same by seed | | {' | '.join(seeds_of(x) for x in zip(*each, strict=True))} |"
        )


def seeds_of(values: Any) -> str:
    return ", ".join(f"{x:+.4f}" for x in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draft", type=Path, required=True, help="where make draft has put it")
    parser.add_argument("--out", type=Path, default=Path("build/draft-losses"))
    parser.add_argument("--report", action="store_true", help="print what is there, and end")
    parser.add_argument("--beginning", type=int, default=250, help="steps of cross-entropy")
    parser.add_argument("--steps", type=int, default=100, help="steps of each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8, help="texts in a training step")
    parser.add_argument("--rate", type=float, default=1e-3, help="the largest learning rate")
    parser.add_argument("--aside", type=int, default=800, help="texts to measure on")
    parser.add_argument("--seed", type=int, default=0, help="of the beginning")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        torch.set_num_threads(1)
        measure(options)
    report(options)


if __name__ == "__main__":
    main()
