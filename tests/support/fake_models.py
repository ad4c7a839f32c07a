"""Language models for the command line that are rows of noise: no weights, no PyTorch."""

from __future__ import annotations

import numpy as np

import mdsd_opt.decoding
import mdsd_opt.decoding.tree_pass


class FakeTokenizer:
    def decode(self, tokens, skip_special_tokens=False, clean_up_tokenization_spaces=None):
        return "".join(f" t{token}" for token in tokens)


class FakeModel:
    """Loaded model and tree model in one; `calls` notes whom the target was asked for."""

    def __init__(self, vocab_size, seed, on_call=lambda: None):
        rng = np.random.default_rng(0)
        rows = 2.0 * rng.standard_normal((5, vocab_size))
        noise = np.random.default_rng(seed).standard_normal(rows.shape)
        self.rows, self.vocab_size, self.on_call = (rows + noise).astype("f4"), vocab_size, on_call
        self.tokenizer = FakeTokenizer()

    def encode(self, text):
        return [len(word) for word in text.split()]

    def end_tokens(self):
        return set()

    def tree_logits(self, ids, continuations):
        self.on_call()
        return np.stack([self.rows[(sum(ids) + sum(tokens)) % 5] for tokens in continuations])


def install(monkeypatch, vocab_size=60, on_call=lambda: None):
    """Let mdsd-opt decode load these; `on_call` is called whenever the target is asked."""
    pair = FakeModel(vocab_size, 1, on_call), FakeModel(vocab_size, 2)
    monkeypatch.setattr(mdsd_opt.decoding, "load_pair", lambda *_, **__: pair)
    for face in (mdsd_opt.decoding.tree_pass, mdsd_opt.decoding):
        monkeypatch.setattr(face, "TreeModel", lambda model, **_: model)
