"""Lists from one race beside other rules on the bundled logits, and what to keep of q.

    python benchmarks/race_lists.py [--samples 200] [--temperatures 1,.6,.3] [--kept]

Rates of the race, of list sampling and of exact matching with drafts of their own are simulated,
each row with `--samples` draws; the others are exact. With --kept, the optimum where drafts are
drawn from what is kept of q: its likeliest tokens, or its probabilities rounded to 8 bits. Prints
Markdown.
"""

from __future__ import annotations

import argparse

import numpy as np

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.data import sample_logits_path

COUNTS = (1, 2, 3, 4, 8)
KEPT = (1, 8, 64, 512, 4096)
LEVELS = 255


def simulated(name: str, p: np.ndarray, q: np.ndarray, k: int, samples: int) -> np.ndarray:
    """Share of hits of each row, by draws of the rule itself."""
    kind = mo.WithoutReplacement if name == "race" else mo.WithReplacement
    shares = []
    for row, (target, draft) in enumerate(zip(p, q, strict=True)):
        problem = mo.TransportProblem(target, kind(draft, k))
        rng = np.random.default_rng([row, k])
        drafts, tokens = verifiers.get(name).simulate(problem, rng, samples)  # type: ignore[attr-defined]
        shares.append((drafts == tokens[:, None]).any(axis=1).mean())
    return np.array(shares)


def races(temperature: float, samples: int) -> None:
    """Print a table of rates by K at one temperature."""
    sample = np.load(sample_logits_path())
    logits = sample["target"], sample["draft"]
    p, q = (mo.softmax(side, temperature=temperature) for side in logits)

    def rate(k: int, drafts: str, verifier: str = "optimal") -> str:
        rates = mo.acceptance_rates(
            *logits, k, drafts=drafts, verifier=verifier, temperature=temperature
        )
        return f"{rates.mean():.3f}"

    print(f"\ntemperature {temperature:g}\n")
    print("| K | optimum, with | without | rrs, with | without | K-SEQ | race | M_K | GLS "
          "| top K, matched | drawn, matched |")  # fmt: skip
    print("|---" * 11 + "|")
    for k in COUNTS:
        cells = [
            rate(k, "with_replacement"),
            rate(k, "without_replacement"),
            rate(k, "with_replacement", "rrs"),
            rate(k, "without_replacement", "rrs"),
            rate(k, "with_replacement", "kseq"),
        ]
        for name in ("race", "gumbel"):
            hits = simulated(name, p, q, k, samples)
            error = np.sqrt((hits * (1 - hits) / samples).sum()) / len(hits)
            cells.append(f"{hits.mean():.3f} ± {error:.3f}")
            if name == "race":
                cells.append(rate(k, "without_replacement", "race"))
        cells.append(rate(k, "top_k", "naive_target"))
        cells.append(rate(k, "without_replacement", "naive_target"))
        print(f"| {k} | {' | '.join(cells)} |", flush=True)


def kept(temperature: float) -> None:
    """Print the optimum where both drafting and verifying use what is kept of q."""
    sample = np.load(sample_logits_path())
    p, q = (mo.softmax(sample[side], temperature=temperature) for side in ("target", "draft"))
    laws = {"the row": q}
    for k in reversed(KEPT):
        threshold = np.sort(q, axis=1)[:, -k][:, None]
        best = np.where(q >= threshold, q, 0)
        laws[f"the {k} likeliest tokens"] = best / best.sum(axis=1, keepdims=True)
    bits = np.round(q / q.max(axis=1, keepdims=True) * LEVELS)
    laws["8 bits of q / max q"] = bits / bits.sum(axis=1, keepdims=True)
    logs = np.maximum(np.log(np.maximum(q, 1e-300) / q.max(axis=1, keepdims=True)), -16)
    coarse = np.exp(np.round(logs / 16 * LEVELS) / LEVELS * 16) * (logs > -16)
    laws["8 bits of log q"] = coarse / coarse.sum(axis=1, keepdims=True)
    print(
        f"\ntemperature {temperature:g}\n\n| kept of q | K = 1 | 2 | 3 | 4 |\n|---|---|---|---|---|"
    )
    for name, law in laws.items():
        rates = [mo.acceptance_rates(p, law, k, kind="probs").mean() for k in (1, 2, 3, 4)]
        print(f"| {name} | {' | '.join(f'{rate:.3f}' for rate in rates)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--temperatures", default="1,.6,.3")
    parser.add_argument("--kept", action="store_true")
    options = parser.parse_args()
    for text in options.temperatures.split(","):
        if options.kept:
            kept(float(text))
        else:
            races(float(text), options.samples)


if __name__ == "__main__":
    main()
