"""Polynomial subset selection [Hu25]: the best prefix in order of the ratio.

It works in floating point and in exact arithmetic, and is the reference for every other number.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Flags, Floats, Integers, Numbers
from mdsd_opt.drafts import PrefixDraftScheme
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
