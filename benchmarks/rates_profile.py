"""Time of the parts of an acceptance rate, in units of two softmaxes: python rates_profile.py.

Passes over the vocabulary are added one at a time, with replacement, K = 3, float32 logits, one
thread; the rest is what opening buckets takes, and the search among them. PyTorch is needed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import mdsd_opt as mo
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import even_keys
from mdsd_opt.prefix_search.sum_kernels import BLOCK, add_to_columns
from mdsd_opt.prefix_search.weigh_kernels import largest_logit, weigh_single

PASSES = ("the largest logits", "powers of two", "buckets of p/q", "sums over buckets")


@kernel
def passes(p_row, q_row, count, scale, steps, block, keys, lanes, run):
    """Run the first so many of the passes over a row."""
    p_largest = largest_logit(p_row, lanes)
    q_largest = largest_logit(q_row, lanes)
    if count == 1:
        return p_largest + q_largest
    p, q = block[0], block[1]
    for start in range(0, keys.size, BLOCK):
        here = keys[start : start + BLOCK]
        weigh_single(p_row[start : start + BLOCK], p_largest, scale, p)
        weigh_single(q_row[start : start + BLOCK], q_largest, scale, q)
        if count > 2:
            even_keys(p, q, steps, here)
        if count > 3:
            for i in range(here.size):
                add_to_columns(run, here[i], p[i], q[i])
    return p_largest


def profile(vocab_size: int, rounds: int) -> list[float]:
    """CPU seconds of a row: two softmaxes, the passes one after another, and the whole rate."""
    rng = np.random.default_rng(0)
    rows = max(2, (1 << 20) // vocab_size)
    draft = (2.5 * rng.normal(size=(rows, vocab_size))).astype(np.float32)
    target = draft + (0.7 * rng.normal(size=draft.shape)).astype(np.float32)
    tensors = torch.from_numpy(target), torch.from_numpy(draft)
    buckets = int(min(1024.0, max(64.0, 6.0 * np.sqrt(vocab_size))))
    steps = np.array([2.0, buckets, buckets - 1, 0.0], np.float32)
    room = np.empty((2, BLOCK), np.float32), np.empty(vocab_size, np.uint16), np.empty(vocab_size)
    run = np.zeros((buckets, 2))

    def some(count: int) -> None:
        for p_row, q_row in zip(target, draft, strict=True):
            passes(p_row, q_row, count, np.log2(np.e), steps, *room, run)

    routes = [
        lambda: [torch.softmax(logits, -1) for logits in tensors],
        *(lambda count=count: some(count) for count in range(1, len(PASSES) + 1)),
        lambda: mo.acceptance_rates(target, draft, num_drafts=3, num_threads=1),
    ]
    seconds = np.empty((rounds + 1, len(routes)))  # the first round warms up
    for round_number in range(rounds + 1):
        for place, route in enumerate(routes):
            began = time.process_time()
            route()
            seconds[round_number, place] = time.process_time() - began
    return (np.median(seconds[1:], axis=0) / rows).tolist()


def main() -> None:
    """Print a table for each vocabulary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("| V | two softmaxes, ms |", " | ".join(PASSES), "| open and search | all |")
    print("|---" * (len(PASSES) + 4) + "|")
    for vocab_size in (32_768, 131_072, 262_144):
        unit, *times = profile(vocab_size, rounds)
        shares = [f"{x / unit:.2f}" for x in np.diff([0.0, *times])]
        print(f"| {vocab_size:,} | {1e3 * unit:.3f} |", " | ".join(shares), end=" ")
        print(f"| {times[-1] / unit:.2f} |")


if __name__ == "__main__":
    main()
