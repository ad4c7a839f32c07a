r"""Polynomial subset selection [Hu25]: the best prefix in order of the ratio.

It works in floating point and in exact arithmetic, and is the reference for every other number.

For draws from different models, which have no such order, a search finds a good subset, nearly
always the best. With x = (q_r(H)) and Q(H) = f(x) (`ProductForm`), an optimal H holds the tokens
with :math:`p_i < \nabla f(x) \cdot q_i`. So start with the best prefix of the tokens by
:math:`p_i / \nabla f(1) \cdot q_i`, in buckets, and replace H by the threshold set of its point
while P(H) - Q(H) falls. Heavy tokens may keep that from ending at an optimum; so then flip the
single token that gains most, and go on. Nothing is proven about the end, but 1 + P(H) - Q(H) bounds
the optimum for every H.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import fsum
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers, Vector
from mdsd_opt.drafts import PrefixDraftScheme, ProductForm
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.prefix_search import FEW_TOKENS, RandomDraws, saves_sorting
from mdsd_opt.problem import Found, Status, TransportProblem, checked_problem, running_sums
from mdsd_opt.solvers.method import Method


def solve(problem: TransportProblem) -> Found:
    r"""Find the optimum :math:`1 + \min_j [P(H_j) - Q(H_j)]` over the prefixes H_j of one order.

    The method of choice wherever a prefix order exists: any V, any K. Drafts with replacement, and
    up to 32 without, take O(V): tokens are collected in buckets of the ratio, and only buckets that
    may hold a prefix better by more than 1e-15 are opened. Others take a sort and one pass,
    O(V log V), and without replacement about 30 K V operations more. Gives the subset, not a plan.
    Not valid for different draft models or explicit set laws.

    Returns
    -------
    Found
        The shortest optimal prefix as subset; ties in the ratio keep ascending token ids, so the
        result is deterministic.

    Raises
    ------
    UnsupportedScheme
        The scheme has no prefix order.
    """
    drafts, draws = problem.drafts.prefix_form, problem.drafts.random_draws
    if drafts is None:
        raise UnsupportedScheme(
            "subset_selection needs a draft scheme with a prefix order, which "
            f"{problem.drafts.scheme!r} has not: use method='submodular', 'full_lp' or 'max_flow'"
        )
    if saves_sorting(draws):
        return by_search(problem.target, draws)
    return by_sorting(problem.target, drafts)


def by_search(p: Floats, draws: RandomDraws) -> Found:
    """Best prefix, found without a sort."""
    from mdsd_opt.prefix_search import best_cut

    cut = best_cut(p, draws)
    message = "searched the prefixes in order of the target/draft ratio"
    return _found(cut.difference, cut.subset(), draws.support_size, message)


def by_sorting(p: Floats, drafts: PrefixDraftScheme) -> Found:
    """Best prefix, found by comparing all, one after another."""
    order, _, length, difference = best_prefix(p, drafts)
    subset = np.zeros(p.size, dtype=np.bool_)
    subset[order[:length]] = True
    message = "sorted by target/draft ratio, scanned every prefix"
    return _found(difference, subset, order.size, message)


def _found(difference: float, subset: Flags, num_tokens: int, message: str) -> Found:
    value = 1.0 + difference
    return Found(
        acceptance_rate=value,
        lower_bound=value,
        upper_bound=value,
        status=Status.OPTIMAL,
        subset=subset,
        message=message,
        stats={"prefixes": num_tokens + 1, "subset_size": int(np.count_nonzero(subset))},
    )


METHOD = Method(
    name="subset_selection",
    purpose="exact optimum and subset at any vocabulary size [Hu25]",
    cost="O(V) with and without replacement, else O(V log V)",
    needs="a scheme with a prefix order: with or without replacement, greedy, top-K",
    exact=True,
    solve=solve,
)


def exact_optimum(problem: TransportProblem) -> tuple[Fraction, Flags]:
    """Optimum alpha* as a Fraction, and the shortest optimal prefix.

    Takes the given numbers as exact rationals divided by their sum. Feasible for V up to some
    thousands (without replacement the cost grows like V**(K-1)).

    Raises
    ------
    UnsupportedScheme
        The scheme has no prefix order.
    """
    drafts = checked_problem(problem).drafts.prefix_form
    if drafts is None:
        raise UnsupportedScheme(f"draft scheme {problem.drafts.scheme!r} has no prefix order")
    order, _, length, difference = best_prefix(problem.law(exact=True).target, drafts)
    subset = np.zeros(problem.vocab_size, dtype=np.bool_)
    subset[order[:length]] = True
    return 1 + difference, subset


def best_prefix(masses: Numbers, drafts: PrefixDraftScheme) -> tuple[Integers, Numbers, int, Any]:
    """Prefix order, Q of every prefix, length of the shortest best prefix, and P - Q there.

    The masses, shape (V,), in float64 or in Fractions, may sum to less than one.
    """
    order, contained = drafts.ordered(masses)
    return order, contained, *best_length(masses[order], contained)


def best_length(masses: Numbers, contained: Numbers) -> tuple[int, Any]:
    """Length of the shortest prefix for which P - Q is least, and P - Q there.

    The masses, shape (n,), and Q of every prefix, shape (n + 1,), are along one order.
    """
    if masses.dtype == object:
        differences = running_sums(masses[None])[0] - contained
        length = int(differences.argmin())
        return length, differences[length]
    if masses.size <= FEW_TOKENS:
        differences = np.array([fsum(masses[:j]) for j in range(masses.size + 1)]) - contained
        length = int(differences.argmin())
        return length, float(differences[length])
    from mdsd_opt.solvers.scan_kernels import smallest_prefix_difference

    difference, length = smallest_prefix_difference(masses, contained)
    return length, difference


_MAX_PASSES = 40

#: Gains below this are attributed to rounding.
_LEAST_GAIN = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdSubset:
    """Subset H with its point q_r(H), shape (R,), and its value P(H) - Q(H)."""

    subset: Flags
    point: Vector
    value: float


def threshold_subset(p: Vector, form: ProductForm) -> ThresholdSubset:
    """Search for the subset of least P(H) - Q(H); p may be sub-normalised, Q is in float64."""
    best = _settled(p, form, _best_prefix(p, form))
    for _ in range(_MAX_PASSES):
        flipped = _flipped(p, form, best)
        if flipped is None:
            break
        best = _settled(p, form, flipped)
    return best


def subset_of(p: Vector, form: ProductForm, subset: Flags) -> ThresholdSubset:
    """Subset of a threshold, with its sums."""
    point = form.q[:, subset].sum(axis=1)
    return ThresholdSubset(subset, point, float(p[subset].sum() - form.value(point)))


def _best_prefix(p: Vector, form: ProductForm) -> ThresholdSubset:
    """Threshold set of the best prefix of buckets."""
    from mdsd_opt.solvers.scan_kernels import NUM_BUCKETS, sum_ratio_buckets

    num_rows = len(form.q)
    sums = np.empty((NUM_BUCKETS + 1, num_rows + 1))
    sum_ratio_buckets(p, form.q, form.gradient(np.ones(num_rows)), sums)
    ends = np.cumsum(sums[:-1], axis=0)
    points, masses = ends[:, :-1], ends[:, -1]
    best = int(np.argmin(masses - form.values(points)))
    return _threshold_set(p, form, points[best])


def _settled(p: Vector, form: ProductForm, start: ThresholdSubset) -> ThresholdSubset:
    """Last threshold set of a sequence, each set of the point before it, that still gains."""
    best = start
    for _ in range(_MAX_PASSES):
        candidate = _threshold_set(p, form, best.point)
        if not candidate.value < best.value - _LEAST_GAIN:
            break
        best = candidate
    return best


def _threshold_set(p: Vector, form: ProductForm, point: Vector) -> ThresholdSubset:
    from mdsd_opt.solvers.scan_kernels import below_threshold

    subset, sums = np.empty(p.size, dtype=np.bool_), np.empty(len(form.q) + 1)
    below_threshold(p, form.q, form.gradient(point), subset, sums)
    return ThresholdSubset(subset, sums[:-1], float(sums[-1] - form.value(sums[:-1])))


def _flipped(p: Vector, form: ProductForm, start: ThresholdSubset) -> ThresholdSubset | None:
    """Subset with one token added or removed that gains most; None if none gains.

    A token may gain only if its distance from the threshold is below the curvature of f over it.
    """
    from mdsd_opt.solvers.scan_kernels import near_threshold

    second = form.weights @ (form.powers * form.powers.max(axis=1, keepdims=True))  # derivatives
    tokens = np.empty(p.size, dtype=np.int64)
    slopes = form.gradient(start.point)
    count = near_threshold(p, form.q, slopes, float(second.max()) / 2, tokens)
    near = tokens[:count]
    sign = np.where(start.subset[near], -1.0, 1.0)
    points = np.maximum(start.point + (sign * form.q[:, near]).T, 0.0)
    gains = form.values(points) - form.value(start.point) - sign * p[near]
    if not gains.max(initial=0.0) > _LEAST_GAIN:
        return None
    best = int(np.argmax(gains))
    subset = start.subset.copy()
    subset[near[best]] ^= True
    return ThresholdSubset(subset, points[best], start.value - float(gains[best]))
