r"""Recorded steps that give several tokens: accepted drafts of a chain or a tree, and one more.

What a lossless step gives, completed by the target to a fixed length, follows the target's law of
texts. A token that the completion adds would be transformed to a uniform of its own, whatever its
law is: so the transformed tokens of a step, filled up with noise, are independent and uniform on
[0, 1], and no law is needed beyond the last token that came. The tokens alone are not: that a place
is reached at all depends on what came before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.draft_audit import draft_checks
from mdsd_opt.auditing.draft_transform import transform
from mdsd_opt.auditing.output_checks import neighbour_checks, place_checks
from mdsd_opt.auditing.report import ACCEPTANCE_WEIGHT, Check
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.trace_input import SeveralTokens
from mdsd_opt.auditing.trace_rows import point_of, ratios_of

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]

#: Cells of [0, 1]^L in which whole steps are counted, at most.
_MAX_CELLS = 64


@dataclass(frozen=True, slots=True, eq=False)
class StepRows:
    """The tokens after the first, transformed.

    Attributes
    ----------
    by_rank, by_ratio : ndarray, shape (N, L - 1)
        As of `TraceRows`; uniform noise in the places that a step did not reach.
    lengths : ndarray of int, shape (N,)
        Tokens of each step.
    overlaps : ndarray, shape (N,), or None
        An unbiased estimate of the drafts that the optimum accepts at each step; None where the
        optimum is not known.
    draft_uniforms : ndarray, shape (N, J), or None
        Transformed drafts below the root, with noise where a step drew none; None if their law is
        not known.
    """

    by_rank: Vector
    by_ratio: Vector
    lengths: Tokens
    overlaps: Vector | None
    draft_uniforms: Vector | None


def transform_steps(
    recorded: SeveralTokens,
    rng: np.random.Generator,
    wrong_tokens: ViolationLog,
    wrong_drafts: ViolationLog,
) -> StepRows:
    """Validate and transform what comes after the first tokens."""
    tree, drafts, tokens = recorded.tree, recorded.drafts, recorded.tokens
    size, depth = tokens.shape[0], tree.depth
    lengths = (tokens >= 0).sum(axis=1)
    points = rng.random((2, size, depth))
    is_chain = recorded.draft_law is not None and max(map(len, tree.children)) == 1
    overlaps = np.zeros(size)
    drafted: dict[int, Vector] = {}
    for n in range(size):
        row = tokens[n, : lengths[n]].tolist()
        path = tree.path(drafts[n], row[:-1]) if drafts.shape[1] else list(range(len(row)))
        if path is None:
            message = f"step {n}: {tuple(row[:-1])} was accepted, which is no path of its drafts"
            wrong_tokens.add("not a path", drafts[n], message)
            points[:, n] = np.nan
            continue
        for place, (node, token) in enumerate(zip(path[1:], row[1:], strict=True)):
            p, scheme = recorded.law(n, node), recorded.scheme(n, node)
            if p[token] <= 0:
                message = f"step {n}: token {token} came out in place {place + 1}, whose target "
                wrong_tokens.add("impossible token", drafts[n], f"{message}probability is zero")
                points[:, n] = np.nan
                break
            noise = points[:, n, place].copy()
            points[0, n, place] = point_of(-p, p, token, noise[0])
            order = -p if scheme is None else ratios_of(p, scheme)
            points[1, n, place] = point_of(order, p, token, noise[1])
        if recorded.draft_law is not None:
            _add_drafted(recorded, n, drafted, rng, wrong_drafts)
        if is_chain:
            overlaps[n] = _overlap(recorded, n)
    return StepRows(
        by_rank=points[0],
        by_ratio=points[1],
        lengths=lengths,
        overlaps=overlaps if is_chain else None,
        draft_uniforms=np.hstack(list(drafted.values())) if drafted else None,
    )


def _add_drafted(
    recorded: SeveralTokens,
    n: int,
    drafted: dict[int, Vector],
    rng: np.random.Generator,
    wrong_drafts: ViolationLog,
) -> None:
    """Transform the drafts of a step below the root, into rows (N, J) for each node."""
    for node in range(1, len(recorded.tree.children)):
        scheme = recorded.scheme(n, node)
        if scheme is None:
            continue
        row = recorded.tree.drafts_after(node, recorded.drafts[n])
        moved = transform(scheme, row[None], rng)
        if node not in drafted:
            drafted[node] = rng.random((len(recorded.tokens), moved.uniforms.shape[1]))
        drafted[node][n] = moved.uniforms[0]
        if not moved.possible[0]:
            message = f"step {n}: drafts {row.tolist()} after node {node} cannot be drawn under "
            wrong_drafts.add("impossible drafts", row, f"{message}{scheme!r}")


def _overlap(recorded: SeveralTokens, n: int) -> float:
    r"""Sum over the levels of a chain of :math:`r_i = \min(1, r_{i-1} p_i(x_i) / q_i(x_i))`.

    Its mean over chains is what block verification accepts, and no lossless rule accepts more
    (arXiv 2403.10444).
    """
    total, ratio, node = 0.0, 1.0, 0
    while (scheme := recorded.scheme(n, node)) is not None:
        child = recorded.tree.children[node][0]
        token = int(recorded.drafts[n, child - 1])
        q = float(scheme.next_law(np.empty(0, dtype=np.int64))[token])
        p = float(recorded.law(n, node)[token])
        ratio = min(1.0, ratio * p / q) if q > 0 else 1.0
        total += ratio
        node = child
    return total


def whole_steps(first: Vector, later: Vector) -> tuple[Tokens, int]:
    """Cells of [0, 1]^L into which the steps fall, by their first places, and their number."""
    points = np.column_stack([first, later])[:, : int(math.log2(_MAX_CELLS))]
    places = points.shape[1]
    side = max(2, int(_MAX_CELLS ** (1 / places) + 1e-9))
    bins = np.minimum((points[~np.isnan(points).any(axis=1)] * side).astype(np.int64), side - 1)
    return bins @ side ** np.arange(places)[::-1], side**places


def step_checks(
    steps: StepRows, first: Vector, with_drafts: bool, rng: np.random.Generator
) -> list[Check]:
    """Checks of the tokens after the first, of whole steps, and of what was accepted."""
    ratio, rank = (rows[~np.isnan(rows).any(axis=1)] for rows in (steps.by_ratio, steps.by_rank))
    what = "tokens after the first that do not follow their laws"
    checks = place_checks(rank, rng, "later tokens, by rank", what)
    main = steps.by_rank
    if with_drafts:
        main = steps.by_ratio
        checks += place_checks(ratio, rng, "later tokens, by ratio", what)
    joint = np.column_stack([first, main])
    joint = joint[~np.isnan(joint).any(axis=1)]
    what = "tokens of a step that depend on each other"
    checks += neighbour_checks(joint, rng, "neighbouring tokens", what)
    outcomes, num_cells = whole_steps(first, main)
    counts = np.bincount(outcomes, minlength=num_cells)
    scores, _ = statistics.split_scores(counts, np.full(num_cells, 1 / num_cells), rng)
    what = "any change of the law of what a step gives"
    checks.append(Check("whole steps", what, statistics.chi_square(scores)))
    if steps.overlaps is not None:
        excess = (steps.lengths - 1 - steps.overlaps).mean() / steps.by_rank.shape[1]
        p_value = math.exp(-0.5 * len(steps.lengths) * max(float(excess), 0.0) ** 2)  # Hoeffding
        what = "more than any lossless rule accepts"
        checks.append(Check("accept length", what, p_value, weight=ACCEPTANCE_WEIGHT))
    if steps.draft_uniforms is not None:
        checks += [
            Check(f"{check.name} (later)", check.looks_for, check.p_value, of_drafts=True)
            for check in draft_checks(steps.draft_uniforms, rng)
        ]
    return checks
