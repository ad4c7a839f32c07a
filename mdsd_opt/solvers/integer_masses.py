r"""Target and draft-set masses as integers with one common total, for flows without rounding.

Rational masses keep their exact values if their common denominator D is small enough; all others
become multiples of :math:`2^{-60}` by largest remainder. Changing masses from (p, W) to (p', W')
changes the maximum flow by at most

.. math:: -\sum (p - p')_+ - \sum (W - W')_+ \;\le\; \alpha' - \alpha \;\le\;
          \sum (p' - p)_+ + \sum (W' - W)_+ .
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import TransportProblem

Integers = NDArray[np.int64]

#: Total mass of rounded problems. The sum of the target and of all set masses fits into int64.
SCALE = 2**60

#: Beyond these sizes nobody looks for a common denominator: Fractions would take seconds.
_EXACT_MAX_ENTRIES = 20_000
_EXACT_MAX_TUPLES = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class IntegerMasses:
    """p and W in units of 1 / total.

    Attributes
    ----------
    target : ndarray of int64, shape (V,)
    supports : ndarray of int64, shape (num_supports,)
    total : int
        Sum of the target, and of the supports.
    exact : bool
        Whether these are the given numbers, not rounded ones.
    added, removed : float
        How much mass rounding added to some entries and took from others: alpha* of the integers
        exceeds alpha* by at most `added`, and falls below it by at most `removed`.
    """

    target: Integers
    supports: Integers
    total: int
    exact: bool
    added: float = 0.0
    removed: float = 0.0


def integer_masses(problem: TransportProblem, law: SupportLaw) -> IntegerMasses:
    """Exact masses over a common denominator if there is a small one, else rounded to 2^-60."""
    return _common_denominator(problem, law) or _rounded(problem, law)


def _common_denominator(problem: TransportProblem, law: SupportLaw) -> IntegerMasses | None:
    if (
        problem.vocab_size + law.num_arcs > _EXACT_MAX_ENTRIES
        or problem.drafts.count_tuples() > _EXACT_MAX_TUPLES
    ):
        return None
    total = 1
    for x in problem.exact_target:  # floats are exact dyadics and leave the loop early
        total = lcm(total, x.denominator)
        if total > SCALE:
            return None
    exact_law = problem.drafts.exact_support_law()
    if len(exact_law) != law.num_supports:
        return None
    supports = [exact_law[members] for members in law.sets()]
    for x in supports:
        total = lcm(total, x.denominator)
        if total > SCALE:
            return None
    return IntegerMasses(
        target=np.array([int(x * total) for x in problem.exact_target], dtype=np.int64),
        supports=np.array([int(x * total) for x in supports], dtype=np.int64),
        total=total,
        exact=True,
    )


def _rounded(problem: TransportProblem, law: SupportLaw) -> IntegerMasses:
    target, target_added, target_removed = largest_remainder(problem.target)
    supports, added, removed = largest_remainder(law.mass)
    return IntegerMasses(
        target=target,
        supports=supports,
        total=SCALE,
        exact=False,
        added=target_added + added,
        removed=target_removed + removed,
    )


def largest_remainder(masses: NDArray[np.float64]) -> tuple[Integers, float, float]:
    """Integers that sum to 2^60, each next to its mass times 2^60; the remainders decide which.

    Parameters
    ----------
    masses : ndarray, shape (n,)
        Non-negative, in sum one up to rounding; what the sum lacks is spread in proportion.

    Returns
    -------
    integers : ndarray of int64, shape (n,)
        Of equal remainders the first is rounded up.
    added, removed : float
        Sum of the changes upwards and downwards, as masses.
    """
    scaled = masses * float(SCALE)  # exact: only the exponent changes
    integers = scaled.astype(np.int64)
    scaled -= integers  # the fractional part, exact as well
    fraction = scaled
    lacking = SCALE - int(integers.sum()) - float(fraction.sum())
    share = lacking * masses
    share += fraction
    floor = np.floor(share)
    integers += floor.astype(np.int64)
    share -= floor

    missing = SCALE - int(integers.sum())
    integers[_largest(share, missing)] += 1

    change = (integers - (masses * float(SCALE)).astype(np.int64)) - fraction
    added = float(change[change > 0].sum()) / SCALE
    removed = -float(change[change < 0].sum()) / SCALE
    return integers, added, removed


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest values, the first of equal ones; no sort."""
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    threshold = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > threshold)
    tied = np.flatnonzero(values == threshold)[: count - above.size]
    return np.concatenate([above, tied])
