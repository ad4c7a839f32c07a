"""Verifiers of chains as packages write them: right ones in many forms, and planted mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from support.text_sessions import after_block, block_chances, block_ratios, last_passed, pick

from mdsd_opt.auditing import chains, on_laws
from mdsd_opt.auditing.laws import standard_laws


def drawn(weights: Any) -> int:
    """A token in proportion to the weights, from NumPy's global generator."""
    return int(np.random.choice(weights.size, p=weights / weights.sum()))  # noqa: NPY002


def residual(p: Any, q: Any) -> Any:
    """The positive part of p - q; p itself where nothing is left."""
    left = np.maximum(p - q, 0.0)
    return left if left.sum() > 0 else p


def standard(p: Any, q: Any, drafts: Any) -> list[int]:
    """Rejection token by token (Leviathan et al., 2023)."""
    for n, x in enumerate(drafts):
        if not random.random() * q[n, x] < p[n, x]:
            return [*map(int, drafts[:n]), drawn(residual(p[n], q[n]))]
    return [*map(int, drafts), drawn(p[len(drafts)])]


def lengths(drafts: Any) -> list[int]:
    """How many drafts each row has, of rows that are padded with -1."""
    return (np.asarray(drafts) >= 0).sum(axis=1).tolist()


def by_rows(*verifies: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Each row up to its own end, by these functions in turn."""

    def rows(p: Any, q: Any, drafts: Any) -> list[Any]:
        return [
            verify(p[row, : n + 1], q[row, :n], drafts[row, :n])
            for row, (n, verify) in enumerate(zip(lengths(drafts), cycle(verifies), strict=False))
        ]

    return rows


def limit_laws(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Audit on the standard laws of these names alone, for what is the same on all the others."""
    for module in (chains, on_laws):
        monkeypatch.setattr(
            module,
            "standard_laws",
            lambda drafts: [one for one in standard_laws(drafts) if one.name in names],
        )


def padded(p: Any, q: Any, drafts: Any) -> Any:
    """Ids with -1 behind them."""
    tokens = standard(p, q, drafts)
    return np.array([*tokens, *[-1] * (len(drafts) + 1 - len(tokens))])


def count_and_last(p: Any, q: Any, drafts: Any) -> tuple[int, int]:
    """How many were accepted, and one more token."""
    tokens = standard(p, q, drafts)
    return len(tokens) - 1, tokens[-1]


def row_of_count_and_last(p: Any, q: Any, drafts: Any) -> Any:
    """The same as an array of one row."""
    return np.array([count_and_last(p, q, drafts)])


def accepted_and_last(p: Any, q: Any, drafts: Any) -> tuple[list[int], int]:
    """The accepted ones, and one more token."""
    tokens = standard(p, q, drafts)
    return tokens[:-1], tokens[-1]


def tokens_and_count(p: Any, q: Any, drafts: Any) -> tuple[Any, int]:
    """A row of full length, and how many of it were accepted drafts."""
    tokens = standard(p, q, drafts)
    row = np.zeros(len(drafts) + 1, dtype=np.int32)
    row[: len(tokens)] = tokens
    return row, len(tokens) - 1


def with_generator(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> list[int]:
    """From a generator that it is given."""
    for n, x in enumerate(drafts):
        if not rng.random() * q[n, x] < p[n, x]:
            left = residual(p[n], q[n])
            return [*map(int, drafts[:n]), int(rng.choice(left.size, p=left / left.sum()))]
    return [*map(int, drafts), int(rng.choice(p.shape[1], p=p[-1]))]


def block(p: Any, q: Any, drafts: Any) -> list[int]:
    """Block verification (Sun et al., 2025)."""
    r = block_ratios(p, q, drafts)
    kept = last_passed(block_chances(p, q, r), random.random)
    return [*map(int, drafts[:kept]), pick(after_block(p, q, r, kept), random.random())]


def hierarchical(p: Any, q: Any, drafts: Any, *, whole_capped: bool = True) -> list[int]:
    """Hierarchical verification (Zhou et al., 2026): all drafts first, then shorter beginnings.

    Every ratio p/q of a beginning is capped at 1 along the way. With that of the whole chain not
    capped, and the others only where they end, it is the rule of the authors' code.
    """
    n, ratio = len(drafts), [1.0]
    for i, x in enumerate(drafts):
        ratio.append(ratio[-1] * p[i, x] / q[i, x])
        if whole_capped:
            ratio[-1] = min(1.0, ratio[-1])
    if random.random() < ratio[n]:
        return [*map(int, drafts), pick(p[n], random.random())]
    for i in range(n - 1, -1, -1):
        r = min(1.0, ratio[i])
        left = np.maximum(r * p[i] - q[i], 0.0)
        stay = left.sum() / (left.sum() + 1 - r) if left.sum() > 0 else 0.0
        if i == 0 or ratio[i + 1] >= 1 or random.random() < stay:
            break
    return [*map(int, drafts[:i]), pick(left if left.sum() > 0 else p[i], random.random())]


def until_it_differs(p: Any, q: Any, drafts: Any) -> list[int]:
    """Draws from the target, and goes on while that is the draft."""
    tokens: list[int] = []
    for n in range(len(drafts) + 1):
        tokens.append(drawn(p[n]))
        if n == len(drafts) or tokens[-1] != drafts[n]:
            break
    return tokens


def certain_drafts(p: Any, q: Any, drafts: Any) -> list[int]:
    """Takes every draft as certain: accepted with p(x), and p without x after a refusal."""
    for n, x in enumerate(drafts):
        if not random.random() < p[n, x]:
            return [*map(int, drafts[:n]), pick(struck_out(p[n], q[n], int(x)), random.random())]
    return [*map(int, drafts), pick(p[len(drafts)], random.random())]


def gumbel(p: Any, q: Any, drafts: Any) -> list[int]:
    """As `standard`, the last token by the largest of p over an exponential."""

    def raced(weights: Any) -> int:
        clocks = np.random.exponential(size=weights.size)  # noqa: NPY002
        return int(np.argmax(weights / np.maximum(clocks, 1e-300)))  # 0 / 0 would win

    for n, x in enumerate(drafts):
        if not np.random.rand() * q[n, x] < p[n, x]:  # noqa: NPY002
            return [*map(int, drafts[:n]), raced(residual(p[n], q[n]))]
    return [*map(int, drafts), raced(p[len(drafts)])]


def uniforms_first(p: Any, q: Any, drafts: Any) -> list[int]:
    """As `standard`, with all its uniforms drawn before anything is compared."""
    u = np.random.rand(len(drafts))  # noqa: NPY002
    accepted = [bool(u[n] * q[n, x] < p[n, x]) for n, x in enumerate(drafts)]
    n = accepted.index(False) if False in accepted else len(drafts)
    row = p[n] if n == len(drafts) else residual(p[n], q[n])
    return [*map(int, drafts[:n]), pick(row, random.random())]


#: Kinds of correct code.
CORRECT: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        standard,
        padded,
        count_and_last,
        row_of_count_and_last,
        accepted_and_last,
        tokens_and_count,
        with_generator,
        block,
        hierarchical,
        until_it_differs,
        certain_drafts,
        gumbel,
        uniforms_first,
    )
}


def mistaken(
    *,
    accept: Callable[[float, float, float], bool] = lambda u, p, q: u * q < p,
    left: Callable[[Any, Any, int], Any] = lambda p, q, x: residual(p, q),
    bonus: Callable[[Any, Any], Any] = lambda p, q: p[-1],
) -> Callable[..., list[int]]:
    """`standard` with one part replaced."""

    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        for n, x in enumerate(drafts):
            if not accept(random.random(), p[n, x], q[n, x]):
                return [*map(int, drafts[:n]), pick(left(p[n], q[n], int(x)), random.random())]
        return [*map(int, drafts), pick(bonus(p, q), random.random())]

    return verify


def cut(p: Any, q: Any, x: int) -> Any:
    """The residual of the ten likeliest tokens alone."""
    row = residual(p, q).copy()
    row[np.argsort(-p)[10:]] = 0.0
    return row if row.sum() > 0 else residual(p, q)


def struck_out(p: Any, q: Any, x: int) -> Any:
    """The target without the token refused."""
    row = p.copy()
    row[x] = 0.0
    return row if row.sum() > 0 else p


#: Planted mistakes, each of which some packages ship.
LOSSY: dict[str, Callable[..., Any]] = {
    "target resampled": mistaken(left=lambda p, q, x: p),
    "token struck out": mistaken(left=struck_out),
    "top ten after a refusal": mistaken(left=cut),
    "bonus from the row before": mistaken(bonus=lambda p, q: p[-2]),
    "everything accepted": mistaken(accept=lambda u, p, q: True),
    "ratio upside down": mistaken(accept=lambda u, p, q: u * p < q),
    "typical acceptance": mistaken(accept=lambda u, p, q: p > 0.09, left=lambda p, q, x: p),
}
