"""Language models small enough to know everything of: the next token depends on the last one."""

from __future__ import annotations

import time

import numpy as np

from mdsd_opt.corpora.capture import continue_by_logits


class MarkovModel:
    """Logits are a row of a matrix; `calls` counts passes, `pause` makes each one slow."""

    def __init__(self, vocab_size=12, seed=0, pause=0.0):
        self.table = np.random.default_rng(seed).standard_normal((vocab_size, vocab_size))
        self.vocab_size = vocab_size
        self.pause = pause
        self.calls = 0

    def logits(self, ids, rows):
        self.calls += 1
        time.sleep(self.pause)
        return self.table[np.asarray(ids)[list(rows)]].astype(np.float32)

    def continuation(self, ids, count, choose):
        return continue_by_logits(self, ids, count, choose)


def prompts(count=7, vocab_size=12, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab_size, rng.integers(1, 5)).tolist() for _ in range(count)]
