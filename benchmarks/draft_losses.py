"""Which loss should train a draft? Three of them from the same weights, for the same CPU time.

The draft of `examples/train_draft.py` is trained further by cross-entropy, by total variation and
by what two independent drafts are rejected at best; each with several seeds. The rates of one, two
and four drafts on prompts that it has not seen are exact. Differences from cross-entropy are taken
position by position.

    PYTHONPATH=examples python benchmarks/draft_losses.py --draft build/draft
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acceptance_losses import rejection
from draft_layer import OneLayer
from draft_texts import Budget, Texts, tell
from safetensors.torch import load_file
from torch import Tensor
from train_draft import TARGET, laws_and_logits, note, optimiser_of, steps, unseen_texts

from mdsd_opt.corpora.intervals import mean_interval
from mdsd_opt.decoding.models.loading import LoadedModel, load_model

NUM_DRAFTS = (1, 2, 4)
BY_NAME = {
    "cross_entropy": "cross-entropy",
    "rejection1": "1 - alpha_1",
    "rejection2": "1 - alpha_2",
}


def rates(model: OneLayer, texts: dict[str, Tensor]) -> np.ndarray:
    """Exact rates of independent drafts at temperature 1 after each text, [positions, K]."""
    with torch.no_grad():
        p, logits = next(laws_and_logits(model, texts, 1))
        found = [1.0 - rejection(p.double(), logits.double(), k) for k in NUM_DRAFTS]
    return torch.stack(found, -1).numpy()


def prompts_of(texts: dict[str, Tensor]) -> np.ndarray:
    """The prompt of each of these positions."""
    return texts["normaliser"][:, 1:].isfinite().nonzero()[:, 0].numpy()


def trained(
    loaded: LoadedModel, weights: dict[str, Tensor], texts: Texts, options: argparse.Namespace
) -> OneLayer:
    model = OneLayer(loaded, weights["token_ids"], weights["table"])
    model.load_state_dict(weights, strict=False)
    batches, budget = texts.batches(options.rows, options.seed), Budget(options.seconds)
    for _ in steps(model, optimiser_of(model), batches, budget, options):
        pass
    return model


def measure(options: argparse.Namespace) -> None:
    """A line of JSON for each loss and seed, with rates by position."""
    loaded, done = load_model(TARGET), {(x["loss"], x["seed"]) for x in lines(options)}
    texts, weights = Texts(options.draft / "texts"), load_file(options.draft / "draft.safetensors")
    unseen = unseen_texts(loaded, options, 1.0)
    groups = prompts_of(unseen).tolist()
    runs = [("at the start", 0), *((x, n) for n in range(options.seeds) for x in BY_NAME)]
    for loss, seed in runs:
        if (loss, seed) in done:
            continue
        settings: dict[str, Any] = {"loss": loss, "seed": seed}
        if loss == "at the start":
            settings["seconds"] = 0.0
        model = trained(loaded, weights, texts, argparse.Namespace(**{**vars(options), **settings}))
        found = rates(model, unseen)
        note(options.out, {**settings, "prompts": groups, "rates": found.round(5).tolist()})
        tell(f"{loss}, seed {seed}: {found.mean(0).round(4).tolist()}")


def lines(options: argparse.Namespace) -> list[dict[str, Any]]:
    path = options.out / "measured.jsonl"
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def report(options: argparse.Namespace) -> None:
    """As Markdown: means over seeds, and differences from cross-entropy, by prompt."""
    found: dict[str, list[np.ndarray]] = {}
    for line in lines(options):
        found.setdefault(line["loss"], []).append(np.array(line["rates"]))
        groups = np.array(line["prompts"])
    print(f"| loss | seeds | {' | '.join(f'K = {k}' for k in NUM_DRAFTS)} |")
    print("|---|---|---|---|---|")
    for name, runs in found.items():
        cells = [mean_interval(column, groups) for column in np.mean(runs, 0).T]
        shown = " | ".join(f"{x.mean:.4f} ± {x.half_width:.4f}" for x in cells)
        print(f"| {BY_NAME.get(name, name)} | {len(runs)} | {shown} |")
    usual = found["cross_entropy"]
    for name in ("rejection1", "rejection2"):
        pairs = list(zip(found.get(name, []), usual, strict=False))
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
    parser.add_argument("--seconds", type=float, default=20.0, help="of CPU time, for each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8, help="texts in a training step")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="the largest learning rate")
    parser.add_argument("--prompts", type=int, default=40, help="unseen ones to measure on")
    parser.add_argument("--seed", type=int, default=0, help="of the unseen texts")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        torch.set_num_threads(1)
        measure(options)
    report(options)


if __name__ == "__main__":
    main()
