r"""Recorded steps, transformed for the checks row by row, with one row in memory at a time.

What a lossless step gives, completed by the target to a fixed length, follows the target's law of
texts. A token that the completion adds would be transformed to a uniform of its own, whatever its
law is: so the transformed tokens of a step, filled up with noise, are independent and uniform on
[0, 1], and no law is needed beyond the last token that came. The tokens alone are not: that a place
is reached at all depends on what came before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from mdsd_opt.auditing.draft_audit import transform
from mdsd_opt.auditing.output_checks import mass_before, optimum, ratios
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.trace_input import RecordedSteps
from mdsd_opt.base.array_types import Flags, Tokens, Vector
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.problem import TransportProblem

#: Bounds of the groups of tokens by rank under the target: 1st, 2nd to 10th, ...
RANK_GROUPS = (1, 10, 100, 1_000)

#: Bounds of the groups of tokens by target / draft ratio.
RATIO_GROUPS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, eq=False)
class FirstTokens:
    """First token of each of N steps, transformed.

    Transformed is the emitted token, randomised, under the target, with the tokens ordered by
    probability, and by target / draft ratio where draft laws are known; NaN for impossible tokens.
    Drafts are not where they make a different number of random choices at some steps.
    """

    by_rank: Vector  # (N,)
    by_ratio: Vector  # (N,)
    rank_law: Vector  # probability of each group of tokens at each step, (N, g)
    ratio_law: Vector
    rank_group: Tokens  # of the emitted token, (N,)
    ratio_group: Tokens
    expected: Vector  # sums over the steps of the probability of each token, (V,)
    spread: Vector  # of its variance
    observed: Tokens  # how often it came
    accepted: Flags  # (N,)
    optima: Vector  # alpha* of each step; NaN where unknown
    draft_uniforms: Vector | None  # (N, J)
    wrong_tokens: ViolationLog  # those that the laws of their steps rule out
    wrong_drafts: ViolationLog


@dataclass(frozen=True, slots=True, eq=False)
class LaterTokens:
    """Tokens after the first, transformed like the first ones, of shape (N, L - 1).

    Places that a step did not reach hold uniform noise, and so do drafts that it did not draw.
    `lengths` (N,) are the tokens of each step. `overlaps` (N,) estimate without bias the drafts
    that the optimum accepts at each step; None where the optimum is not known. `spread` is the sum
    of p (1 - p) of the tokens that came.
    """

    by_rank: Vector
    by_ratio: Vector
    lengths: Tokens
    overlaps: Vector | None
    draft_uniforms: Vector | None
    spread: float


def first_tokens(steps: RecordedSteps, rng: np.random.Generator) -> FirstTokens:
    """Validate and transform the first token of each step."""
    wrong_tokens, wrong_drafts = ViolationLog(), ViolationLog()
    size, vocab_size = len(steps.tokens), int(steps.target.shape[-1])
    tokens, drafts = steps.tokens[:, 0], steps.tree.drafts_after(0, steps.drafts)
    points = np.empty((2, size))
    rank_law = np.zeros((size, len(RANK_GROUPS) + 1))
    ratio_law = np.zeros((size, len(RATIO_GROUPS) + 1))
    groups = np.zeros((2, size), dtype=np.int64)
    expected, spread = np.zeros(vocab_size), np.zeros(vocab_size)
    optima = np.full(size, np.nan)
    noise = rng.random((2, size))
    uniforms: list[Vector] = []
    for n in range(size):
        p, scheme, token = steps.law(n), steps.scheme(n), int(tokens[n])
        expected += p
        spread += p * (1 - p)
        rank_law[n], groups[0, n] = _rank_groups(p, token)
        ratio = None if scheme is None else ratios(p, scheme.propensity())
        points[:, n] = _points(p, ratio, token, noise[:, n])
        if scheme is not None and ratio is not None:
            member = np.searchsorted(RATIO_GROUPS, ratio, side="right")
            ratio_law[n] = np.bincount(member, weights=p, minlength=ratio_law.shape[1])
            groups[1, n] = member[token]
            best = optimum(TransportProblem(p, scheme))
            optima[n] = np.nan if best is None else best
            uniforms.append(_drafted(steps, n, 0, scheme, rng, wrong_drafts))
        if p[token] <= 0:
            points[:, n] = np.nan
            message = f"step {n}: token {token} came out, whose target probability is zero"
            wrong_tokens.add("impossible token", drafts[n], message)
    same_length = len({row.size for row in uniforms}) == 1
    return FirstTokens(
        by_rank=points[0],
        by_ratio=points[1],
        rank_law=rank_law,
        ratio_law=ratio_law,
        rank_group=groups[0],
        ratio_group=groups[1],
        expected=expected,
        spread=spread,
        observed=np.bincount(tokens, minlength=vocab_size),
        accepted=(drafts == tokens[:, None]).any(axis=1),
        optima=optima,
        draft_uniforms=np.stack(uniforms) if same_length else None,
        wrong_tokens=wrong_tokens,
        wrong_drafts=wrong_drafts,
    )


def later_tokens(
    steps: RecordedSteps,
    rng: np.random.Generator,
    wrong_tokens: ViolationLog,
    wrong_drafts: ViolationLog,
) -> LaterTokens:
    """Validate and transform the later tokens of each step."""
    tree, drafts, tokens = steps.tree, steps.drafts, steps.tokens
    size = len(tokens)
    lengths = (tokens >= 0).sum(axis=1)
    points = rng.random((2, size, tree.depth))
    is_chain = steps.draft_law is not None and max(map(len, tree.children)) == 1
    overlaps, spread = np.zeros(size), 0.0
    drafted: dict[int, Vector] = {}
    for n in range(size):
        law, scheme_after = cache(partial(steps.law, n)), cache(partial(steps.scheme, n))
        row = tokens[n, : lengths[n]].tolist()
        path = tree.path(drafts[n], row[:-1]) if drafts.shape[1] else list(range(len(row)))
        if path is None:
            message = f"step {n}: {tuple(row[:-1])} was accepted, which is no path of its drafts"
            wrong_tokens.add("not a path", drafts[n], message)
            points[:, n] = np.nan
            continue
        for place, (node, token) in enumerate(zip(path[1:], row[1:], strict=True)):
            p, scheme = law(node), scheme_after(node)
            if p[token] <= 0:
                message = f"step {n}: token {token} came out in place {place + 1}, whose target "
                wrong_tokens.add("impossible token", drafts[n], f"{message}probability is zero")
                points[:, n] = np.nan
                break
            spread += float(p[token] * (1 - p[token]))
            ratio = None if scheme is None else ratios(p, scheme.propensity())
            points[:, n, place] = _points(p, ratio, token, points[:, n, place])
        for node in range(1, len(tree.children)):
            scheme = scheme_after(node)
            if scheme is not None:
                uniforms = _drafted(steps, n, node, scheme, rng, wrong_drafts)
                if node not in drafted:
                    drafted[node] = rng.random((size, uniforms.size))
                drafted[node][n] = uniforms
        if is_chain:
            overlaps[n] = _overlap(drafts[n].tolist(), law, scheme_after)
    return LaterTokens(
        by_rank=points[0],
        by_ratio=points[1],
        lengths=lengths,
        overlaps=overlaps if is_chain else None,
        draft_uniforms=np.hstack(list(drafted.values())) if drafted else None,
        spread=spread,
    )


def _points(p: Vector, ratio: Vector | None, token: int, noise: Vector) -> Vector:
    """Mass before the token, ordered by probability and by ratio, plus noise times p."""
    ahead = mass_before(-p, p, token)
    below = np.array([ahead, ahead if ratio is None else mass_before(ratio, p, token)])
    return np.minimum(below + noise * p[token], 1.0)


def _drafted(
    steps: RecordedSteps,
    n: int,
    node: int,
    scheme: DraftScheme,
    rng: np.random.Generator,
    wrong: ViolationLog,
) -> Vector:
    """Drafts after a node of a step, transformed, shape (J,)."""
    row = steps.drafts_after(n, node)
    points, possible = transform(scheme, row[None], rng)
    if not possible[0]:
        where = f" after node {node}" if node else ""
        message = f"step {n}: drafts {row.tolist()}{where} cannot be drawn under {scheme!r}"
        wrong.add("impossible drafts", row, message)
    return points[0]


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


def _overlap(
    chain: list[int],
    law: Callable[[int], Vector],
    scheme_after: Callable[[int], DraftScheme | None],
) -> float:
    r"""Sum over the levels of a chain of :math:`r_i = \min(1, r_{i-1} p_i(x_i) / q_i(x_i))`.

    Its mean over chains is what block verification accepts, and no lossless rule accepts more
    (arXiv 2403.10444).
    """
    total, ratio = 0.0, 1.0
    for node, token in enumerate(chain):  # node by node
        scheme = scheme_after(node)
        if token < 0 or scheme is None:
            break
        q = float(scheme.next_law(np.empty(0, dtype=np.int64))[token])
        p = float(law(node)[token])
        ratio = min(1.0, ratio * p / q) if q > 0 else 1.0
        total += ratio
    return total
