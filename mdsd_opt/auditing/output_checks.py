"""The checks that tokens, or points on [0, 1], are put to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.cells import MIN_EXPECTED, by_rank, by_ratio, merged_cells
from mdsd_opt.auditing.report import Check, TokenDeviation
from mdsd_opt.auditing.subject import Tokens
from mdsd_opt.problem import TransportProblem

Vector = NDArray[np.float64]

#: Tokens that a report lists.
LISTED_TOKENS = 10


def output_checks(
    problem: TransportProblem, tokens: Tokens, rng: np.random.Generator
) -> tuple[Check, ...]:
    """Checks of tokens that are independent draws from the target if all is well."""
    p = problem.target
    by_ratio_cells = merged_cells(p, by_ratio(p, problem.drafts), tokens.size)
    by_rank_cells = merged_cells(p, by_rank(p), tokens.size)
    scores, depths = statistics.split_scores(
        by_ratio_cells.counts(tokens), by_ratio_cells.probabilities, rng
    )
    rank_scores, rank_depths = statistics.split_scores(
        by_rank_cells.counts(tokens), by_rank_cells.probabilities, rng
    )
    coarse = statistics.COARSE_LEVELS
    counts = np.bincount(tokens, minlength=p.size)
    quarters = merged_cells(p, by_ratio(p, problem.drafts), tokens.size, max_cells=4)
    return (
        Check("cells", "any change of the output law", statistics.chi_square(scores)),
        Check(
            "ratio groups",
            "mass moved between tokens drafted too often and too rarely",
            statistics.chi_square(scores[depths < coarse]),
        ),
        Check(
            "rank groups",
            "mass moved between likely tokens and the tail",
            statistics.chi_square(rank_scores[rank_depths < coarse]),
        ),
        Check(
            "single tokens",
            "one token too often or too rare, however unlikely",
            statistics.single_tokens(counts[p > 0], p[p > 0])[0],
        ),
        Check(
            "succession",
            "outputs that depend on the one before",
            statistics.consecutive(quarters.of_token[tokens], quarters.probabilities, rng),
        ),
    )


def deviations(counts: NDArray[np.int64], probabilities: Vector) -> tuple[TokenDeviation, ...]:
    """The tokens that carry a deviation, by its size, with scores from exact binomial p-values."""
    trials = int(counts.sum())
    if trials == 0:
        return ()
    each = statistics.two_sided(counts, trials, probabilities)
    size = np.minimum(stats.norm.isf(each / 2), 40.0)
    expected = trials * probabilities
    scores = np.where(counts >= expected, size, -size)
    return listed_deviations(counts, expected, each, scores)


def listed_deviations(
    counts: NDArray[np.int64], expected: Vector, p_values: Vector, scores: Vector
) -> tuple[TokenDeviation, ...]:
    """Tokens that are odd by themselves, or by three standard deviations of a fair count."""
    trials = counts.sum()
    share = (expected / trials + 1.0 / expected.size) / 2.0
    odd = (p_values / share < 0.01) | ((np.abs(scores) > 3.0) & (expected >= MIN_EXPECTED))
    places = np.flatnonzero(odd)
    largest = np.argsort(-np.abs(counts - expected)[places], kind="stable")[:LISTED_TOKENS]
    return tuple(
        TokenDeviation(i, float(expected[i] / trials), float(counts[i] / trials), float(scores[i]))
        for i in places[largest].tolist()
    )


def num_bins(points: int) -> int:
    """Bins of [0, 1] in which this many points are counted."""
    return int(np.clip(points // 20, 2, 64))


def uniformity_checks(
    points: Vector, rng: np.random.Generator, name: str, looks_for: str
) -> tuple[Check, ...]:
    """Checks of independent points that are uniform on [0, 1] if all is well."""
    bins = num_bins(points.size)
    counts = np.bincount(np.minimum((points * bins).astype(np.int64), bins - 1), minlength=bins)
    scores, depths = statistics.split_scores(counts, np.full(bins, 1.0 / bins), rng)
    coarse = scores[depths < statistics.COARSE_LEVELS]
    return (
        Check(name, looks_for, statistics.chi_square(scores)),
        Check(f"{name}, coarse", looks_for, statistics.chi_square(coarse)),
    )
