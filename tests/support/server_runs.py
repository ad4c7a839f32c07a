"""Runs of toy engines as audits of servers see them, without HTTP."""

from __future__ import annotations

import numpy as np
from support.toy_engines import PAIRS, Pair, plain

import mdsd_opt as mo
from mdsd_opt.servers import Law


class Toy:
    """A pair of laws, and what audits take of it."""

    def __init__(self, **options):
        self.pair = Pair(**options)
        self.laws = [Law.of(row) for row in self.pair.p]
        self.drafts = [Law.of(row) for row in self.pair.q]

    @classmethod
    def of(cls, name):
        return cls(**PAIRS.get(name, {}))

    def texts(self, engine, num_tokens, seed, length=8, num_prompts=8):
        """Prompts and texts with so many tokens after the first ones; drafted and accepted."""
        rng = np.random.default_rng(seed)
        prompts, texts, drafted, accepted = [], [], 0, 0
        while len(texts) * (length - 1) < num_tokens:
            state = len(texts) % num_prompts
            text = [self.pair.of_target(state, rng)]
            while len(text) < length:
                step, drafts, hits = engine(self.pair, text[-1], rng)
                text += step
                drafted, accepted = drafted + drafts, accepted + hits
            prompts.append([state])
            texts.append(text[:length])
        return prompts, texts, drafted, accepted

    def along(self, rows, prompts, texts):
        """A row for each token of each text, by the token before it."""
        return [
            [rows[before] for before in (*prompt, *text[:-1])]
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def audit(self, engine, num_tokens, seed, with_draft=True, with_control=True, **options):
        prompts, texts, drafted, accepted = self.texts(engine, num_tokens, seed)
        control = None
        if with_control:
            begun, plainly, _, _ = self.texts(plain, num_tokens, seed + 10_000)
            control = self.along(self.laws, begun, plainly), plainly
        return mo.audit_tokens(
            self.along(self.laws, prompts, texts),
            texts,
            draft=self.along(self.drafts, prompts, texts) if with_draft else None,
            control=control,
            prompts=prompts,
            drafted=drafted,
            accepted=accepted,
            rng=seed,
            **options,
        )


def true_distance(pair, engine, num_tokens=60_000, seed=7):
    """Mean total variation of a token from its law given the one before, without sampling noise."""
    rng = np.random.default_rng(seed)
    counts, state, met = np.zeros_like(pair.p), 0, 0
    while met < num_tokens:
        for token in engine(pair, state, rng)[0]:
            counts[state, token] += 1
            state, met = token, met + 1
    totals = counts.sum(1)
    shares = totals / totals.sum()
    seen = counts / np.maximum(totals, 1)[:, None]
    noise = np.array(
        [
            np.abs(rng.multinomial(int(n), p) / max(n, 1) - p).sum() / 2
            for n, p in zip(totals, pair.p, strict=True)
        ]
    )
    found, chance = shares @ np.abs(seen - pair.p).sum(1) / 2, shares @ noise
    return float(max(found**2 - chance**2, 0.0) ** 0.5)
