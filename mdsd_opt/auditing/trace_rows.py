"""One pass over recorded steps: everything the checks need, row by row, in memory for one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.draft_transform import transform
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.drafts.by_name import scheme_maker
from mdsd_opt.errors import InvalidInput, MdsdError, ProblemTooLarge
from mdsd_opt.problem import TransportProblem

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]
ToProbabilities = Callable[[Any], Any]

#: Groups of tokens by rank under the target: 1st, 2nd to 10th, ...
RANK_GROUPS = (1, 10, 100, 1_000)

#: Groups of tokens by target / draft ratio.
RATIO_GROUPS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, eq=False)
class TraceRows:
    """Recorded steps, transformed.

    Attributes
    ----------
    by_rank, by_ratio : ndarray, shape (N,)
        Randomised integral transform of the emitted token under the target, with the tokens ordered
        by probability, and by target / draft ratio; NaN for impossible tokens.
    rank_law, ratio_law : ndarray, shape (N, g)
        Probability of each group of tokens at each step.
    rank_group, ratio_group : ndarray of int, shape (N,)
        Group of the emitted token.
    expected, spread, observed : ndarray, shape (V,)
        Sums over the steps: probability and variance of each token, and how often it came.
    accepted : ndarray of bool, shape (N,)
    optima : ndarray, shape (N,)
        alpha* of each step; NaN where unknown.
    draft_uniforms : ndarray, shape (N, J), or None
        Transformed drafts; None if they make a different number of random choices at some steps.
    wrong_tokens, wrong_drafts : ViolationLog
        Tokens and drafts that the laws of their steps rule out.
    """

    by_rank: Vector
    by_ratio: Vector
    rank_law: Vector
    ratio_law: Vector
    rank_group: Tokens
    ratio_group: Tokens
    expected: Vector
    spread: Vector
    observed: Tokens
    accepted: NDArray[np.bool_]
    optima: Vector
    draft_uniforms: Vector | None
    wrong_tokens: ViolationLog
    wrong_drafts: ViolationLog


def transform_rows(
    target: Any,
    schemes: Iterator[DraftScheme] | None,
    drafts: Tokens,
    tokens: Tokens,
    to_probabilities: ToProbabilities,
    rng: np.random.Generator,
) -> TraceRows:
    """Validate and transform every step."""
    wrong_tokens, wrong_drafts = ViolationLog(), ViolationLog()
    size, vocab_size = len(tokens), int(target.shape[1])
    points = np.full((2, size), np.nan)
    laws = np.zeros((2, size, len(RATIO_GROUPS) + 1))
    rank_law = np.zeros((size, len(RANK_GROUPS) + 1))
    groups = np.zeros((2, size), dtype=np.int64)
    expected, spread = np.zeros(vocab_size), np.zeros(vocab_size)
    optima = np.full(size, np.nan)
    noise = rng.random((2, size))
    draft_rows: list[Vector] = []
    for n in range(size):
        p = probabilities_of(target[n], to_probabilities, f"target row {n}")
        scheme = None if schemes is None else next(schemes)
        token, row = int(tokens[n]), drafts[n]
        expected += p
        spread += p * (1 - p)
        rank_law[n], groups[0, n] = _rank_groups(p, token)
        points[0, n] = point_of(-p, p, token, noise[0, n])
        if scheme is not None:
            ratio = ratios_of(p, scheme)
            member = np.searchsorted(RATIO_GROUPS, ratio, side="right")
            laws[1, n] = np.bincount(member, weights=p, minlength=laws.shape[2])
            groups[1, n] = member[token]
            points[1, n] = point_of(ratio, p, token, noise[1, n])
            optima[n] = _optimum(p, scheme)
            moved = transform(scheme, row[None], rng)
            draft_rows.append(moved.uniforms[0])
            if not moved.possible[0]:
                message = f"step {n}: drafts {row.tolist()} cannot be drawn under {scheme!r}"
                wrong_drafts.add("impossible drafts", row, message)
        if p[token] <= 0:
            points[:, n] = np.nan
            message = f"step {n}: token {token} came out, whose target probability is zero"
            wrong_tokens.add("impossible token", row, message)
    same_length = len({row.size for row in draft_rows}) == 1
    return TraceRows(
        by_rank=points[0],
        by_ratio=points[1],
        rank_law=rank_law,
        ratio_law=laws[1],
        rank_group=groups[0],
        ratio_group=groups[1],
        expected=expected,
        spread=spread,
        observed=np.bincount(tokens, minlength=vocab_size),
        accepted=(drafts == tokens[:, None]).any(axis=1),
        optima=optima,
        draft_uniforms=np.stack(draft_rows) if same_length else None,
        wrong_tokens=wrong_tokens,
        wrong_drafts=wrong_drafts,
    )


def probabilities_of(row: Any, to_probabilities: ToProbabilities, name: str) -> Vector:
    try:
        return Distribution.of(to_probabilities(row), name).values
    except MdsdError as error:
        text = str(error)
        raise type(error)(text if name in text else f"{name}: {text}") from error


def point_of(order_by: Vector, p: Vector, token: int, noise: float) -> float:
    """Mass before the token in the order of `order_by` (ties: by token id), plus noise times p."""
    key = order_by[token]
    ahead = order_by < key
    tied = np.flatnonzero(order_by == key)
    below = p[ahead].sum() + p[tied[tied < token]].sum()
    return float(min(below + noise * p[token], 1.0))


def _rank_groups(p: Vector, token: int) -> tuple[Vector, int]:
    """Mass of each group of ranks, and the group of the token (ties share the better rank)."""
    law = np.zeros(len(RANK_GROUPS) + 1)
    last = [end - 1 for end in RANK_GROUPS if end < p.size]
    floors = (-np.partition(-p, last)[last]).tolist() if last else []
    above = np.inf
    for g, floor in enumerate([*floors, -1.0]):
        law[g] = p[(p >= floor) & (p < above)].sum()
        above = floor
    group = next((g for g, floor in enumerate(floors) if p[token] >= floor), len(floors))
    return np.clip(law, 0.0, 1.0), group


def ratios_of(p: Vector, scheme: DraftScheme) -> Vector:
    q = scheme.propensity()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(q > 0, p / q, np.inf)


def _optimum(p: Vector, scheme: DraftScheme) -> float:
    from mdsd_opt.solvers import solve

    try:
        return float(solve(TransportProblem(p, scheme)).upper_bound)
    except ProblemTooLarge:
        return np.nan


def schemes_of(
    draft_law: Any,
    scheme: str,
    num_steps: int,
    num_drafts: int,
    vocab_size: int,
    to_probabilities: ToProbabilities,
) -> Iterator[DraftScheme] | None:
    """The draft law of each step, from probabilities (N, V) or a sequence of schemes."""
    if draft_law is None:
        return None
    # schemes or probabilities may be given
    if isinstance(draft_law, Sequence) and all(isinstance(s, DraftScheme) for s in draft_law):
        if len(draft_law) != num_steps:
            raise InvalidInput(f"{len(draft_law)} draft schemes given for {num_steps} steps")
        for n, given in enumerate(draft_law):
            if (given.vocab_size, given.num_drafts) != (vocab_size, num_drafts):
                raise InvalidInput(
                    f"step {n}: {given!r} does not fit {vocab_size} tokens and {num_drafts} drafts"
                )
        return iter(draft_law)
    make = scheme_maker(scheme)
    rows = draft_law if hasattr(draft_law, "shape") else to_numpy(draft_law, "draft_law")
    if tuple(rows.shape) != (num_steps, vocab_size):
        raise InvalidInput(
            f"draft_law has shape {tuple(rows.shape)}: give ({num_steps}, {vocab_size}) like the "
            "target, or one draft scheme for each step"
        )
    return (
        make(probabilities_of(rows[n], to_probabilities, f"draft row {n}"), num_drafts)
        for n in range(num_steps)
    )
