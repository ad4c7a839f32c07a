"""Sessions that draft, verify and go on by themselves, and the mistakes that are made in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

#: Source of uniforms: called, it gives one.
Uniform = Callable[[], float]

TOKENS = 5


def softmax(logits: Any) -> Any:
    """Of each row."""
    logits = np.asarray(logits, dtype=np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def pick(weights: Any, uniform: float) -> int:
    """By an inverse CDF; a token of weight zero never."""
    reached = weights.cumsum()
    place = int(reached.searchsorted(uniform * reached[-1], side="right"))
    # the product may round up to the total
    return place if place < reached.size else int(np.flatnonzero(weights)[-1])


def by_alias(weights: Any, uniform: float) -> int:
    """Walker's table, by one number for column and coin."""
    size = weights.size
    share, other = weights / weights.sum() * size, list(range(size))
    small = [i for i in range(size) if share[i] < 1]
    large = [i for i in range(size) if share[i] >= 1]
    while small and large:
        i, j = small.pop(), large[-1]
        other[i] = j
        share[j] -= 1 - share[i]
        if share[j] < 1:
            small.append(large.pop())
    column = min(int(uniform * size), size - 1)
    return column if uniform * size - column < share[column] or column in small else other[column]


def by_halves(weights: Any, uniform: float) -> int:
    """Which half of the tokens, then which half of that, by one number."""
    low, high, rest = 0, weights.size, uniform * weights.sum()
    while high - low > 1:
        middle = (low + high) // 2
        mass = weights[low:middle].sum()
        if rest < mass or weights[middle:high].sum() <= 0:
            high = middle
        else:
            low, rest = middle, rest - mass
    return low


def of_numpy() -> Uniform:
    return np.random.random


class Rows:
    """The laws after every beginning of a text, asked for once."""

    def __init__(self, target: Any, draft: Any, text: list[int]) -> None:
        self.p = list(softmax(target(text)))
        self.q = list(softmax(draft(text)))


def chain(
    uniforms: Callable[[], Uniform] = of_numpy,
    *,
    gamma: int = 2,
    fault: str = "",
    tokens: int = TOKENS,
) -> Callable[[Any, Any], list[int]]:
    """Rejection along a chain of drafts, in as many rounds as it takes."""

    def generate(target: Any, draft: Any) -> list[int]:
        uniform = uniforms()
        text: list[int] = []
        once = [uniform() for _ in range(gamma)] if fault == "uniforms reused" else []
        while len(text) < tokens:
            before = len(text)
            drafts = _drafted(draft, text, gamma, uniform, fault)
            rows = Rows(target, draft, text + drafts)
            p, q = rows.p[before:], rows.q[before:]
            for n, x in enumerate(drafts):
                u = once[n] if once else uniform()
                if u * q[n][x] < p[n][x]:
                    text.append(x)
                    continue
                left = p[n] if fault == "target resampled" else np.maximum(p[n] - q[n], 0)
                text.append(pick(left, uniform()))
                break
            else:
                row = -2 if fault == "bonus from the wrong row" else -1
                text.append(pick(p[row], uniform()))
                if fault == "overwritten before gathered" and len(drafts) > 1:
                    # the extra token is written where the last draft stands, then that is read
                    text[-2] = text[-1]
        return text

    return generate


def _drafted(draft: Any, text: list[int], gamma: int, uniform: Uniform, fault: str) -> list[int]:
    """Drafts; their number may be cut by how sure the draft model is."""
    drafts: list[int] = []
    while len(drafts) < gamma:
        q = softmax(draft(text + drafts)[-1])
        if fault == "cut before the token" and drafts and q.max() < 0.6:
            break
        x = pick(q, uniform())
        if fault == "cut at the token" and drafts and q[x] < 0.4:
            break  # the token itself says whether it is drafted
        drafts.append(x)
    return drafts


def block_ratios(p: Any, q: Any, drafts: Any, *, capped: bool = True) -> list[float]:
    """p/q of the beginnings of a chain of drafts, from rows of laws; capped at 1 along the way."""
    r = [1.0]
    for n, x in enumerate(drafts):
        ratio = r[-1] * p[n][x] / q[n][x]
        r.append(min(1.0, ratio) if capped else ratio)
    return r


def block_chances(p: Any, q: Any, r: list[float]) -> list[float]:
    """That block verification (Sun et al., 2025) keeps so many drafts where it keeps no more."""
    chances = [min(1.0, ratio) for ratio in r[1:]]
    for i in range(1, len(chances)):
        left = np.maximum(r[i] * p[i] - q[i], 0.0).sum()
        chances[i - 1] = left / (left + 1 - r[i]) if left + 1 - r[i] > 0 else 1.0
    return chances


def last_passed(chances: list[float], uniform: Uniform) -> int:
    kept = 0
    for i, chance in enumerate(chances, start=1):
        if uniform() < chance:
            kept = i
    return kept


def after_block(p: Any, q: Any, r: list[float], kept: int) -> Any:
    """Weights of the token behind so many drafts of a block."""
    if kept == len(r) - 1:
        return p[kept]
    left = np.maximum(r[kept] * p[kept] - q[kept], 0.0)
    return left if left.sum() > 0 else p[kept]


def block(
    uniforms: Callable[[], Uniform] = of_numpy,
    *,
    gamma: int = 2,
    capped: bool = True,
    tokens: int = TOKENS,
) -> Callable[[Any, Any], list[int]]:
    """Block verification; without the cap the last draft is accepted at its own ratio."""

    def generate(target: Any, draft: Any) -> list[int]:
        uniform = uniforms()
        text: list[int] = []
        while len(text) < tokens:
            drafts = _drafted(draft, text, gamma, uniform, "")
            rows = Rows(target, draft, text + drafts)
            p, q = rows.p[len(text) :], rows.q[len(text) :]
            r = block_ratios(p, q, drafts)
            if not capped:
                r[-1] = p[gamma - 1][drafts[-1]] / q[gamma - 1][drafts[-1]]
            kept = last_passed(block_chances(p, q, r), uniform)
            text += [*drafts[:kept], pick(after_block(p, q, r, kept), uniform())]
        return text

    return generate


def naive_target(uniforms: Callable[[], Uniform] = of_numpy, *, gamma: int = 2) -> Any:
    """The target draws each token, and a draft counts if it is that one."""

    def generate(target: Any, draft: Any) -> list[int]:
        uniform = uniforms()
        text: list[int] = []
        while len(text) < TOKENS:
            drafts = _drafted(draft, text, gamma, uniform, "")
            p = Rows(target, draft, text + drafts).p[len(text) :]
            for n, row in enumerate(p):
                text.append(pick(row, uniform()))
                if n >= gamma or text[-1] != drafts[n]:
                    break
        return text

    return generate


def siblings(uniforms: Callable[[], Uniform] = of_numpy, *, num_drafts: int = 2) -> Any:
    """Trees of depth one: several drafts of the next token, recursive rejection, an extra token."""

    def generate(target: Any, draft: Any) -> list[int]:
        uniform = uniforms()
        text: list[int] = []
        while len(text) < TOKENS:
            q = softmax(draft(text)[-1])
            drafts = [pick(q, uniform()) for _ in range(num_drafts)]
            left = softmax(target(text)[-1])
            for x in drafts:
                if uniform() * q[x] < left[x]:
                    text.append(x)
                    text.append(pick(softmax(target(text)[-1]), uniform()))
                    break
                left = np.maximum(left - q, 0)
                left = left / left.sum()
            else:
                text.append(pick(left, uniform()))
        return text

    return generate


def restarted(seed: int = 0) -> Callable[[], Uniform]:
    """A generator of NumPy's that is made anew from one seed in every call."""
    return lambda: np.random.default_rng(seed).random


def unseeded() -> Uniform:
    return np.random.default_rng().random


def of_python() -> Uniform:
    return random.random


def of_a_python_generator() -> Uniform:
    return random.Random().random


CORRECT: dict[str, Callable[[Any, Any], list[int]]] = {
    "chain": chain(),
    "chain of three": chain(gamma=3),
    "chain, drawn by random": chain(of_python),
    "chain, a generator made inside": chain(unseeded),
    "chain, a random.Random made inside": chain(of_a_python_generator),
    "cut before the token": chain(fault="cut before the token"),
    "one step": chain(tokens=1),
    "block verification": block(),
    "naive target": naive_target(),
    "siblings": siblings(),
}

WRONG: dict[str, Callable[[Any, Any], list[int]]] = {
    "uniforms reused": chain(fault="uniforms reused"),
    "overwritten before gathered": chain(fault="overwritten before gathered"),
    "cut at the token": chain(fault="cut at the token"),
    "seeds restarted": chain(restarted()),
    "last ratio not capped": block(capped=False),
    "bonus from the wrong row": chain(fault="bonus from the wrong row"),
    "target resampled": chain(fault="target resampled"),
}
