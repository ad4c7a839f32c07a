"""Subset selection in exact arithmetic, the reference every other number is held against."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from mdsd_opt.base.arrays import Flags
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.problem import TransportProblem


def exact_optimum(problem: TransportProblem) -> tuple[Fraction, Flags]:
    """alpha* as a Fraction, and the shortest optimal prefix.

    Takes the given numbers as exact rationals divided by their sum. Feasible for V up to some
    thousands (without replacement the cost grows like V**(K-1)).

    Raises
    ------
    UnsupportedScheme
        The scheme has no prefix order.
    """
    drafts = problem.drafts.prefix_form
    if drafts is None:
        raise UnsupportedScheme(f"draft scheme {problem.drafts.scheme!r} has no prefix order")
    order, contained, length = best_exact_prefix(problem.exact_target, drafts)
    inside = sum((problem.exact_target[i] for i in order[:length]), Fraction(0))
    subset = np.zeros(problem.vocab_size, dtype=np.bool_)
    subset[order[:length]] = True
    return 1 + inside - contained[length], subset


def best_exact_prefix(
    masses: Sequence[Fraction], drafts: PrefixDraftScheme
) -> tuple[list[int], list[Fraction], int]:
    """Prefix order, Q of every prefix, and the length of the shortest best prefix.

    The masses may sum to less than one.
    """
    order = drafts.exact_prefix_order(masses)
    contained = drafts.exact_prefix_containment(order)
    inside = Fraction(0)
    best, length = -contained[0], 0
    for j, i in enumerate(order, start=1):
        inside += masses[i]
        if inside - contained[j] < best:
            best, length = inside - contained[j], j
    return order, contained, length
