"""Engines of toys: a target and a draft that see one token back, and steps that are right or wrong.

A step is `engine(pair, state, rng) -> (tokens, drafted, accepted)`. `RIGHT` are lossless; `WRONG`
were known when the bets of the audit were chosen; `HELD_OUT` were written, and tried, afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from support.text_sessions import after_block, block_chances, block_ratios, last_passed


class Pair:
    """Random laws of a target and a draft after each of `size` tokens."""

    def __init__(self, size=40, seed=0, sharp=1.6, noise=1.1, kept=None):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(size, size)) * sharp
        self.size = size
        self.p = self.whole = _softmax(logits)
        if kept is not None:  # the likeliest alone
            self.p = np.where(self.p >= np.sort(self.p)[:, -kept, None], self.p, 0.0)
            self.p /= self.p.sum(1, keepdims=True)
        self.q = _softmax(logits + noise * rng.normal(size=logits.shape))
        self.p_sums, self.q_sums = self.p.cumsum(1), self.q.cumsum(1)

    def of_target(self, state, rng):
        return drawn(self.p_sums[state], rng.random())

    def of_draft(self, state, rng):
        return drawn(self.q_sums[state], rng.random())


def _softmax(logits):
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def drawn(sums, uniform):
    return min(int(np.searchsorted(sums, uniform * sums[-1], side="right")), len(sums) - 1)


def plain(pair, state, rng):
    return [pair.of_target(state, rng)], 0, 0


@dataclass(frozen=True)
class Chain:
    """A chain of drafts; each field is a place where it can be wrong."""

    depth: int = 4
    accepts: Callable | None = None  # (p, q, x, u, before) -> bool
    residual: Callable | None = None  # (p, q, x, previous p) -> weights
    bonus: str = "target"
    drafts: str = "sampled"
    uniforms: str = "fresh"

    def __call__(self, pair, state, rng):
        states = [state]
        for _ in range(self.depth):
            here = states[-1]
            best = self.drafts == "greedy"
            states.append(int(pair.q[here].argmax()) if best else pair.of_draft(here, rng))
        once, ratio = rng.random(), 1.0
        tokens = []
        for k, x in enumerate(states[1:]):
            p, q = pair.p[states[k]], pair.q[states[k]]
            u = once if self.uniforms == "once" else rng.random()
            ratio *= p[x] / q[x]
            if self.accepts is None:
                accepted = u * q[x] < p[x]
            else:
                accepted = self.accepts(p, q, x, u, ratio)
            if accepted:
                tokens.append(x)
                continue
            previous = pair.p[states[max(k - 1, 0)]]
            left = (
                np.maximum(p - q, 0) if self.residual is None else self.residual(p, q, x, previous)
            )
            left = left if left.sum() > 0 else p
            v = u if self.uniforms == "reused" else rng.random()
            return [*tokens, drawn(left.cumsum(), v)], self.depth, len(tokens)
        last = states[-1]
        if self.bonus == "likeliest":
            tokens.append(int(pair.p[last].argmax()))
        elif self.bonus == "draft":
            tokens.append(pair.of_draft(last, rng))
        elif self.bonus == "row before":
            tokens.append(pair.of_target(states[-2], rng))
        else:
            tokens.append(pair.of_target(last, rng))
        return tokens, self.depth, self.depth


def exact_match(pair, state, rng, depth=4, greedy=False):
    """The target draws each token, and goes on while it is the draft, drawn or the likeliest."""
    tokens = []
    for _ in range(depth):
        draft = int(pair.q[state].argmax()) if greedy else pair.of_draft(state, rng)
        tokens.append(pair.of_target(state, rng))
        if tokens[-1] != draft:
            return tokens, depth, len(tokens) - 1
        state = draft
    return [*tokens, pair.of_target(state, rng)], depth, depth


def block(pair, state, rng, depth=4, wrong=None):
    """Block verification (Sun et al., 2025)."""
    states = [state]
    for _ in range(depth):
        states.append(pair.of_draft(states[-1], rng))
    p, q, drafts = pair.p[states], pair.q[states[:-1]], states[1:]
    r = block_ratios(p, q, drafts)
    kept = last_passed(block_chances(p, q, r), rng.random)
    left = after_block(p, q, [1.0] * len(r) if wrong == "residual" else r, kept)
    return [*drafts[:kept], drawn(left.cumsum(), rng.random())], depth, kept


def tree(pair, state, rng, width=3, depth=2, kind="with", wrong=None):
    """Several drafts of each token, one after another against what is left of the target."""
    tokens = []
    for level in range(depth):
        p, q = pair.p[state], pair.q[state].copy()
        left, found = p.copy(), None
        fixed = np.argsort(-q)[:width]
        for n in range(width):
            x = int(fixed[n]) if wrong == "fixed drafts" else drawn(q.cumsum(), rng.random())
            against = p if wrong == "whole target" else left
            if rng.random() * q[x] < against[x]:
                found = x
                break
            if wrong == "one residual" and n:
                continue
            left = np.maximum(left - q, 0)
            left = left / left.sum() if left.sum() > 0 else p
            if kind == "without":
                if wrong != "old draft law":
                    q[x] = 0.0
                    q /= q.sum()
                else:
                    q = pair.q[state].copy()
                    q[x] = 0.0
        if found is None:
            return [*tokens, drawn(left.cumsum(), rng.random())], width * depth, level
        tokens.append(found)
        state = found
    return [*tokens, pair.of_target(state, rng)], width * depth, depth


def fixed_tree(pair, state, rng, width=3, depth=2):
    """The draft's likeliest tokens, of which the target's own token is one or not."""
    tokens = []
    for _ in range(depth + 1):
        token = pair.of_target(state, rng)
        tokens.append(token)
        if token not in np.argsort(-pair.q[state])[:width]:
            break
        state = token
    return tokens, width * depth, min(len(tokens) - 1, depth)


def _of_law(change, share=1.0):
    """Tokens of a changed target, as if drafts were held against it, in a share of the steps."""

    def step(pair, state, rng):
        if share < 1.0 and rng.random() >= share:
            return [pair.of_target(state, rng)], 1, 0
        return [drawn(change(pair.p[state], pair, state).cumsum(), rng.random())], 1, 1

    return step


def _one_hot(p, pair=None, state=None):
    return np.eye(p.size)[p.argmax()]


def _biased(p, pair, state):
    """A token of bias plus two in every law."""
    biased = p.copy()
    biased[:3] *= np.exp(2.0)
    return biased


def _typical(p, q, x, u, ratio):
    return p[x] > min(0.09, 0.3 * np.exp((p * np.log(p)).sum()))


def short_drafts_cleared(pair, state, rng, least=2, floor=0.2):
    """A draft ends before a token of low probability; one that is too short is not verified."""
    states = [state]
    for _ in range(4):
        x = pair.of_draft(states[-1], rng)
        if pair.q[states[-1]][x] < floor:
            break
        states.append(x)
    if len(states) - 1 < least:
        return [pair.of_target(state, rng)], 0, 0
    tokens = []
    for here, x in pairwise(states):
        p, q = pair.p[here], pair.q[here]
        if rng.random() * q[x] >= p[x]:
            left = np.maximum(p - q, 0)
            return [*tokens, drawn(left.cumsum(), rng.random())], len(states) - 1, len(tokens)
        tokens.append(x)
    return [*tokens, pair.of_target(states[-1], rng)], len(states) - 1, len(tokens)


def _masked(p, q, x, previous):
    left = p.copy()
    left[x] = 0.0
    return left


def _colder(q, power):
    changed = q**power
    return changed / changed.sum()


RIGHT = {
    "chain of 4": Chain(),
    "chain of 1": Chain(depth=1),
    "block verification": block,
    "exact match": exact_match,
    "greedy drafts": partial(exact_match, greedy=True),
    "tree with replacement": tree,
    "tree without replacement": partial(tree, kind="without"),
    "fixed tree": fixed_tree,
}

WRONG = {
    "residual is p": Chain(residual=lambda p, q, x, previous: p),
    "residual is p without the draft": Chain(residual=_masked),
    "residual: the likeliest": Chain(
        residual=lambda p, q, x, previous: _one_hot(np.maximum(p - q, 0))
    ),
    "residual of the row before": Chain(
        residual=lambda p, q, x, previous: np.maximum(previous - q, 0)
    ),
    "accepts 1.6 times as often": Chain(accepts=lambda p, q, x, u, r: u * q[x] < 1.6 * p[x]),
    "typical acceptance": Chain(accepts=_typical),
    "match, then the residual": Chain(accepts=lambda p, q, x, u, r: drawn(p.cumsum(), u) == x),
    "extra token: the likeliest": Chain(depth=1, bonus="likeliest"),
    "extra token of the draft": Chain(depth=1, bonus="draft"),
    "one uniform for a step": Chain(depth=6, uniforms="once"),
    "residual reuses the uniform": Chain(uniforms="reused"),
    "greedy drafts, ratio p/q": Chain(drafts="greedy"),
    "q of another temperature": Chain(
        accepts=lambda p, q, x, u, r: u * _colder(q, 0.5)[x] < p[x],
        residual=lambda p, q, x, previous: np.maximum(p - _colder(q, 0.5), 0),
    ),
    "tree: each against the whole p": partial(tree, wrong="whole target"),
    "tree: fixed drafts as if drawn": partial(tree, wrong="fixed drafts"),
    "temperature 0.7 for 1": _of_law(lambda p, *rest: p ** (1 / 0.7)),
    "temperature 1.4 for 1": _of_law(lambda p, *rest: p ** (1 / 1.4)),
    "one in five is the likeliest": _of_law(_one_hot, 0.2),
    "a bias of logits is lost": _of_law(_biased),
    "a filter is lost": _of_law(lambda p, pair, state: pair.whole[state]),
}

#: What pairs of some engines are made of.
PAIRS = {"a filter is lost": {"kept": 8}}

#: Known when the bets were chosen, but nearer to the target than .1.
SMALL = {
    "short drafts are cleared": short_drafts_cleared,
    "one uniform for a step of 3": Chain(depth=3, uniforms="once"),
    "temperature 0.9 for 1": _of_law(lambda p, *rest: p ** (1 / 0.9)),
    "one in twenty is the likeliest": _of_law(_one_hot, 0.05),
}


def _swapped(p, pair, state):
    """The two likeliest change places."""
    changed, order = p.copy(), np.argsort(-p)
    changed[order[:2]] = p[order[1::-1]]
    return changed


def _flattened(p, pair, state):
    """As if logits had two bits after the point."""
    logs = np.log(p)
    return np.exp(np.round(logs * 1.5) / 1.5)


def _next_ids(p, pair, state):
    """Ids are off by one in a tenth."""
    return 0.9 * p + 0.1 * np.roll(p, 1)


def _of_another_text(pair, state, rng):
    """The extra token is drawn from a row of the request beside it."""
    tokens, drafted, accepted = Chain(depth=1)(pair, state, rng)
    if accepted:
        tokens[-1] = pair.of_target(int(rng.integers(pair.size)), rng)
    return tokens, drafted, accepted


def _draft_twice(pair, state, rng):
    """A second draft is tried after a refusal, against the same residual as the first."""
    p, q = pair.p[state], pair.q[state]
    for _ in range(2):
        x = pair.of_draft(state, rng)
        if rng.random() * q[x] < p[x]:
            return [x, pair.of_target(x, rng)], 2, 1
    left = np.maximum(p - q, 0)
    return [drawn(left.cumsum(), rng.random())], 2, 0


def _stale(pair, state, rng):
    """After a refusal the cache keeps the refused token for one more row."""
    x = pair.of_draft(state, rng)
    p, q = pair.p[state], pair.q[state]
    if rng.random() * q[x] < p[x]:
        return [x, pair.of_target(x, rng)], 1, 1
    left = np.maximum(p - q, 0)
    token = drawn(left.cumsum(), rng.random())
    return [token, pair.of_target(x, rng)], 1, 0


#: Written after the bets were chosen, which were not changed for them.
HELD_OUT = {
    "ratio turned round: q/p": Chain(accepts=lambda p, q, x, u, r: u * p[x] < q[x]),
    "residual is |p - q|": Chain(residual=lambda p, q, x, previous: np.abs(p - q)),
    "residual is max(q - p, 0)": Chain(residual=lambda p, q, x, previous: np.maximum(q - p, 0)),
    "residual is uniform on p > q": Chain(residual=lambda p, q, x, previous: (p > q).astype(float)),
    "joint ratio, never cut": Chain(accepts=lambda p, q, x, u, r: u < r),
    "accepts where p > 0.3 max p": Chain(accepts=lambda p, q, x, u, r: p[x] > 0.3 * p.max()),
    "accepts half of what it should": Chain(accepts=lambda p, q, x, u, r: u * q[x] < 0.5 * p[x]),
    "extra token of the row before": Chain(depth=1, bonus="row before"),
    "block: residual not scaled": partial(block, wrong="residual"),
    "tree: one residual for all": partial(tree, wrong="one residual"),
    "tree: old draft law": partial(tree, kind="without", wrong="old draft law"),
    "tree without: fixed drafts": partial(tree, kind="without", wrong="fixed drafts"),
    "extra token of another text": _of_another_text,
    "a second draft, same residual": _draft_twice,
    "a refused token stays in the cache": _stale,
    "the two likeliest are swapped": _of_law(_swapped),
    "logits of few bits": _of_law(_flattened),
    "ids off by one in a tenth": _of_law(_next_ids),
}
