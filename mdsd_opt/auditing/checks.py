r"""Statistical checks of tokens and of points on [0, 1].

Sight of a sample: which biases its checks find, between classes or in any direction.

Chi-square sees what moves between cells, and over a wide vocabulary nothing within one. A bet sees
every direction: before each part of a sample it is placed on the law

.. math:: b_i \propto p_i \frac{X_i + \tau_i}{n p_i + \tau_i}, \qquad
          \tau_i = \frac{N p_i}{R_i}, \quad R_i = s p_i^{1/3} \Big/ \sqrt{\sum_j p_j^{2/3} / 2},

X the counts of the n outcomes so far, of N. If they follow p, the product of the ratios b/p has
mean one: it exceeds 1/alpha with probability alpha at most, exactly. The bet is the mean of laws
whose ratios to p are gamma variables of parameter tau, given the counts; with these parameters no
direction is favoured (Valiant and Valiant, "An automatic inequality prover and instance optimal
identity testing", 2017, weigh squared differences by the same power of p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Integers, Tokens, Vector, frozen
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.evidence import (
    ACCEPTANCE_WEIGHT,
    ANY,
    LARGEST_Z,
    Check,
    TokenDeviation,
    detectable_bias,
    statistics,
    unseen_bias,
)
from mdsd_opt.problem import TransportProblem

#: Number of parts of a sample, in each of which the bet stays as it is.
_PARTS = 64

#: s, the stake, and the share of a bet's mean that pays for its scatter: within 2 % of the best at
#: levels of 1e-6 to 1e-10, for flat laws of four tokens and long tails alike.
_STAKE, _SHARE = 6.5, 0.3


def _strengths(law: Vector) -> Vector:
    """R of the possible tokens."""
    p = law[law > 0]
    strengths: Vector = _STAKE * np.cbrt(p) / math.sqrt(float(np.cbrt(p) @ np.cbrt(p)) / 2)
    return strengths


def direction_check(law: Vector, outcomes: Integers, name: str = "any direction") -> Check:
    """Check of independent outcomes (N,) that sees every direction; its p-value is a bound."""
    possible, log_e, seen = law > 0, 0.0, 0
    p, place = law[possible], np.cumsum(possible) - 1
    trust, counts = outcomes.size * p / _strengths(law), np.zeros(p.size)
    for part in np.array_split(place[outcomes], _PARTS):
        ratio = (counts + trust) / (seen * p + trust) if seen else np.ones(p.size)
        log_e += float(np.log(ratio[part]).sum()) - part.size * math.log(float(p @ ratio))
        counts += np.bincount(part, minlength=p.size)
        seen += part.size
    looks_for = "any change of the law, however it is spread"
    return Check(name, looks_for, math.exp(-max(log_e, 0.0)))


def any_bias(law: Vector, num_trials: int, level: float, power: float) -> float:
    r"""Smallest total variation that `direction_check` finds with the power, in any direction.

    With :math:`h = R / (1 + R)` the logarithm of the bet is about :math:`\frac12 \sum (h \chi^2 -
    \log(1 + R))`, of noncentralities :math:`N d_i^2 / p_i`. A share :math:`\lambda` of its mean
    pays for the scatter, and by Cauchy and Schwarz

    .. math:: \sum \frac{N d^2}{p} h (1 - \lambda h)
              \ge \frac{4 N \delta^2}{\sum p / (h (1 - \lambda h))}.
    """
    from scipy import special

    if not num_trials:
        return 1.0
    spread, z = _strengths(law), max(float(special.ndtri(power)), 0.0)
    h = spread / (1.0 + spread)
    needed = float((np.log1p(spread) - h).sum()) - 2.0 * math.log(level)
    needed += _SHARE / 2 * float(h @ h) + z * z / _SHARE
    square = needed * float((law[law > 0] / h / (1.0 - _SHARE * h)).sum())
    return min(math.sqrt(square / (4 * num_trials * (1.0 - 1.0 / _PARTS))), 1.0)


class Hidden(NamedTuple):
    """Bias that could have stayed hidden: the fields of a `Report` about it."""

    detectable_bias: float = 1.0
    direction: str = ANY
    class_bias: float | None = None
    classes: str = ""

    @classmethod
    def largest(cls, parts: Sequence[Any]) -> Hidden:
        """The largest bias, in any direction and between classes, of several parts or reports."""
        worst = max(parts, key=lambda part: part.detectable_bias)
        within = max(parts, key=lambda part: part.class_bias or 0.0)
        return cls(worst.detectable_bias, worst.direction, within.class_bias, within.classes)


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What the checks of a sample can see.

    The finest chi-square test compares so many `outcomes` in `cells`: `classes` in words, such as
    "between classes by p/q", where they are not single outcomes. Of the `laws` (V,) with a
    `direction_check` the largest bias counts, and `direction` says of what it is one; without any,
    directions that the cells do not show are not known.
    """

    outcomes: int
    cells: int
    classes: str = ""
    laws: Sequence[Vector] = ()
    direction: str = ANY

    def hidden(self, level: float, power: float) -> Hidden:
        """Bias that could have stayed hidden: checks of this level find a larger one."""
        if self.cells == 1 and not self.classes:  # one outcome alone is possible
            return Hidden(unseen_bias(self.outcomes, power))
        between = detectable_bias(self.outcomes, self.cells, level, power)
        if not (self.classes and self.laws):
            return Hidden(between, self.classes or ANY)
        anywhere = max(any_bias(law, self.outcomes, level, power) for law in self.laws)
        finer = (between, self.classes) if between < anywhere else ()
        return Hidden(anywhere, self.direction, *finer)


#: Number of tokens that a report lists.
LISTED_TOKENS = 10

#: Number of bins on each side of the grid on which neighbours are compared.
_GRID = 8

#: Smallest expected count of a cell.
MIN_EXPECTED = 5.0

#: Most cells of a test: more would only dilute it.
MAX_CELLS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A partition of the possible tokens."""

    of_token: Integers  # cell of each token, shape (V,); -1 for tokens of probability zero
    probabilities: Vector  # of the cells, shape (k,)

    def counts(self, tokens: Integers) -> Integers:
        """Number of outcomes in each cell; no token may be impossible."""
        return np.bincount(self.of_token[tokens], minlength=self.probabilities.size)

    def scores(self, tokens: Integers, rng: np.random.Generator) -> tuple[Vector, Integers]:
        """Normal scores of the counts, and their depths, see `statistics.split_scores`."""
        return statistics.split_scores(self.counts(tokens), self.probabilities, rng)


def merged_cells(
    probabilities: Vector,
    order: Integers,
    num_trials: int,
    max_cells: int = MAX_CELLS,
) -> Cells:
    """Cells of likely tokens alone, and of neighbours in `order`, shape (V,), merged if unlikely.

    Cells are numbered in that order, and every cell expects at least five of the trials (unless all
    tokens together do not).
    """
    support = order[probabilities[order] > 0]
    p = probabilities[support]
    smallest = max(MIN_EXPECTED / max(num_trials, 1), 1.0 / max_cells)
    light = p < smallest
    # Steps of twice the smallest mass: a light token may reach into the next step, never past it.
    before = np.cumsum(np.where(light, p, 0.0)) - p
    steps = np.floor(before[light] / (2 * smallest)).astype(np.int64)
    if steps.size:
        last = np.flatnonzero(steps == steps[-1])
        if p[light][last].sum() < smallest:
            steps[last] = max(steps[-1] - 1, 0)
    label = np.empty(support.size, dtype=np.int64)
    label[light] = steps
    label[~light] = np.arange(int((~light).sum())) + (steps.max() + 1 if steps.size else 0)
    return _cells(probabilities, support, label)


def tail_cells(probabilities: Vector, num_trials: int) -> Cells:
    """Cells of neighbours by rank, each about a quarter of what it and all lighter ones have.

    What is cut off at whatever rank leaves cells empty, as long as a few were expected there.
    """
    support = by_rank(probabilities)[: int((probabilities > 0).sum())]
    behind = np.cumsum(probabilities[support][::-1])[::-1]
    least = 4 * MIN_EXPECTED / max(num_trials, 1)
    label = np.floor(np.log(np.clip(behind, least, 1.0)) / math.log(0.75)).astype(np.int64)
    return _cells(probabilities, support, label)


def _cells(probabilities: Vector, support: Integers, label: Integers) -> Cells:
    """Cells of the tokens `support` that have the same label, in the order of their first ones."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    of_token = np.full(probabilities.size, -1, dtype=np.int64)
    of_token[support] = rank[inverse]
    mass = np.bincount(of_token[support], weights=probabilities[support], minlength=first.size)
    return Cells(frozen(of_token), frozen(mass))


def ratios(target: Vector, q: Vector) -> Vector:
    """Target / draft ratio of every token; infinite for tokens that are never drafted."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(q > 0, target / q, np.inf)


def by_ratio(target: Vector, drafts: DraftScheme) -> Integers:
    """Tokens by target / draft ratio, ascending: verifiers move mass along this order."""
    return law_ratio_order(target, drafts.propensity())


def law_ratio_order(target: Vector, q: Vector) -> Integers:
    """Tokens by p / q, ascending."""
    return np.argsort(ratios(target, q), kind="stable")


def by_rank(target: Vector) -> Integers:
    """Tokens by probability, descending."""
    return np.argsort(-target, kind="stable")


class Words(NamedTuple):
    """Cells of one kind of outcome in words; names of its checks, with what they look for."""

    classes: str
    cells: tuple[str, str]
    groups: tuple[str, str]
    ranks: tuple[str, str]
    single: tuple[str, str]
    succession: tuple[str, str]


TOKENS = Words(
    "between classes of tokens by p/q",
    ("cells", "any change of the output law"),
    ("ratio groups", "mass moved between tokens drafted too often and too rarely"),
    ("rank groups", "mass moved between likely tokens and the tail"),
    ("single tokens", "one token too often or too rare, however unlikely"),
    ("succession", "outputs that depend on earlier ones"),
)

TEXTS = Words(
    "between groups of texts that begin alike",
    ("texts", "any change of the law of the texts"),
    ("beginnings", "a change after some beginning"),
    ("likely texts", "mass moved between likely texts and others"),
    ("single texts", "one text too often or too rare"),
    ("succession", "texts that depend on earlier ones"),
)


def output_checks(
    problem: TransportProblem, tokens: Tokens, rng: np.random.Generator
) -> tuple[tuple[Check, ...], Sight]:
    """Checks of tokens that are independent draws from the target if all is well."""
    p = problem.target
    return law_checks(p, by_ratio(p, problem.drafts), tokens, rng, TOKENS)


def sight_of(law: Vector, cells: Cells, num_trials: int, classes: str) -> Sight:
    """What so many outcomes show of a law: all of it by the cells, if these hold one each."""
    size = cells.probabilities.size
    alone = size == np.count_nonzero(law > 0)
    return Sight(num_trials, size) if alone else Sight(num_trials, size, classes, [law])


def law_checks(
    law: Vector,
    order: Integers,
    outcomes: Tokens,
    rng: np.random.Generator,
    words: Words,
) -> tuple[tuple[Check, ...], Sight]:
    """Checks of independent outcomes: all cells, groups in an order and by rank, single ones.

    Where a few cells hold one outcome each, groups of them see nothing that the cells do not see:
    such checks are left out, for each costs the others a share of the false-alarm rate.
    """
    cells = merged_cells(law, order, outcomes.size)
    sight = sight_of(law, cells, outcomes.size, words.classes)
    scores, depths = cells.scores(outcomes, rng)
    ranked = merged_cells(law, by_rank(law), outcomes.size)
    rank_scores, rank_depths = ranked.scores(outcomes, rng)
    coarse = statistics.COARSE_LEVELS
    checks = [Check(*words.cells, statistics.chi_square(scores))]
    checks += [direction_check(law, outcomes) for law in sight.laws]
    if (depths >= coarse).any():
        p_value = statistics.chi_square(scores[depths < coarse])
        checks.append(Check(*words.groups, p_value))
    if sight.laws or (rank_depths >= coarse).any():
        p_value = statistics.chi_square(rank_scores[rank_depths < coarse])
        checks.append(Check(*words.ranks, p_value))
    if np.count_nonzero(law) > 2:
        p_value = statistics.single_tokens(np.bincount(outcomes, minlength=law.size), law)
        checks.append(Check(*words.single, p_value))
    return (*checks, outcome_succession(law, order, outcomes, rng, words)), sight


def outcome_succession(
    law: Vector, order: Integers, outcomes: Tokens, rng: np.random.Generator, words: Words
) -> Check:
    """Check that outcomes do not depend on earlier ones, as groups in an order and as points."""
    quarters = merged_cells(law, order, outcomes.size, max_cells=4)
    after = statistics.consecutive(quarters.of_token[outcomes], quarters.probabilities, rng)
    below = np.empty(law.size)
    below[order] = np.cumsum(law[order]) - law[order]
    points = below[outcomes] + rng.random(outcomes.size) * law[outcomes]
    return succession_check(after, points, rng, *words.succession)


def mass_before(order_by: Vector, p: Vector, token: int) -> float:
    """Mass before the token in the order of `order_by` (ties by token id)."""
    key = order_by[token]
    tied = np.flatnonzero(order_by == key)
    return float(p[order_by < key].sum() + p[tied[tied < token]].sum())


def succession_check(
    after: float, points: Vector, rng: np.random.Generator, name: str, looks_for: str
) -> Check:
    """Check of independence: by one p-value, and of points from all earlier ones."""
    return Check(name, looks_for, min(1.0, 2.0 * min(after, statistics.recurrence(points, rng))))


def deviations(counts: Integers, probabilities: Vector) -> tuple[TokenDeviation, ...]:
    """Tokens that carry a deviation, largest first, with scores from exact binomial p-values."""
    from scipy import special

    trials = int(counts.sum())
    if trials == 0:
        return ()
    each = statistics.two_sided(counts, trials, probabilities)
    bounds = statistics.least_scores(counts, trials, probabilities)
    size = np.where(each > 1e-300, -special.ndtri(each / 2), bounds)
    size = np.minimum(size, LARGEST_Z)
    expected = trials * probabilities
    scores = np.where(counts >= expected, size, -size)
    return listed_deviations(counts, expected, each, scores)


def listed_deviations(
    counts: Integers, expected: Vector, p_values: Vector, scores: Vector
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
    """Number of bins of [0, 1] in which this many points are counted."""
    return int(np.clip(points // 20, 2, 64))


def uniformity_checks(
    points: Vector, rng: np.random.Generator, name: str, looks_for: str
) -> tuple[Check, ...]:
    """Checks of independent points that are uniform on [0, 1] if all is well."""
    bins = num_bins(points.size)
    counts = np.bincount(statistics.bins_of(points, bins), minlength=bins)
    scores, depths = statistics.split_scores(counts, np.full(bins, 1.0 / bins), rng)
    checks = [Check(name, looks_for, statistics.chi_square(scores))]
    if (depths >= statistics.COARSE_LEVELS).any():
        coarse = scores[depths < statistics.COARSE_LEVELS]
        checks.append(Check(f"{name}, coarse", looks_for, statistics.chi_square(coarse)))
    return tuple(checks)


def place_checks(
    uniforms: Vector, rng: np.random.Generator, name: str, looks_for: str
) -> list[Check]:
    """Checks of points (N, J) that are uniform in every place, by Bonferroni over the places."""
    if 0 in uniforms.shape:
        return []
    each = [uniformity_checks(column, rng, name, looks_for) for column in uniforms.T]
    return [_smallest(checks) for checks in zip(*each, strict=True)]


def neighbour_checks(
    uniforms: Vector, rng: np.random.Generator, name: str, looks_for: str
) -> list[Check]:
    """Check that each place of points (N, J) does not depend on the one before."""
    if len(uniforms) == 0 or uniforms.shape[1] < 2:
        return []
    column = statistics.bins_of(uniforms, _GRID)
    grid = np.full(_GRID * _GRID, 1.0 / _GRID**2)
    checks = []
    for left, right in pairwise(column.T):
        counts = np.bincount(left * _GRID + right, minlength=grid.size)
        p_value = statistics.chi_square(statistics.split_scores(counts, grid, rng)[0])
        checks.append(Check(name, looks_for, p_value))
    return [_smallest(checks)]


def recurrence_checks(
    uniforms: Vector, rng: np.random.Generator, name: str, looks_for: str
) -> list[Check]:
    """Check that no place of points (N, J) depends on its value in earlier rows."""
    if 0 in uniforms.shape:
        return []
    held = uniforms[: statistics.MAX_OUTCOMES // uniforms.shape[1]]
    return [
        _smallest([Check(name, looks_for, statistics.recurrence(points, rng)) for points in held.T])
    ]


def _smallest(checks: Sequence[Check]) -> Check:
    """Oddest of some checks of one name, corrected for their number."""
    worst = min(checks, key=lambda check: check.p_value)
    return replace(worst, p_value=min(1.0, len(checks) * worst.p_value))


def optimum(problem: TransportProblem) -> float | None:
    """Optimum alpha*, or None if no solver here can tell."""
    from mdsd_opt.solvers import solve

    try:
        return float(solve(problem).upper_bound)
    except (ProblemTooLarge, MemoryError):
        return None


def acceptance_check(p_value: float) -> Check:
    """Check, from a p-value, that no more is accepted than the optimum."""
    looks_for = "acceptance above the optimum"
    return Check("acceptance", looks_for, p_value, weight=ACCEPTANCE_WEIGHT)


def length_check(excess: float, width: float, trials: int) -> Check:
    """Check, by Hoeffding's bound, that steps give no more tokens than a lossless rule can.

    `excess` is the mean over the trials of what may lie above the optimum, `width` that of the
    range of one trial.
    """
    p_value = math.exp(-2.0 * trials * (max(excess, 0.0) / width) ** 2)
    looks_for = "more than any lossless rule accepts"
    return Check("accept length", looks_for, p_value, weight=ACCEPTANCE_WEIGHT)
