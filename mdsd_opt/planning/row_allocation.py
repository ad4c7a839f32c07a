r"""A budget of target rows, shared out over the requests of a batch.

With replacement :math:`\alpha^*_K = \min_H [1 + P(H) - q(H)^K]` is concave in K, a minimum of
concave functions, so that giving row after row to the request that gains most is optimal. Without
replacement it need not be concave: p = (0, 0, 1), q = (.50, .49, .01) has .01, .03, 1. So the exact
allocation is by dynamic programming, which costs O(n B K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers
from mdsd_opt.base.checked import checked_integer, floats
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.errors import InvalidInput, ProblemTooLarge

#: Most additions of the dynamic programme.
_MAX_STEPS = 10**10

#: Fall from one number of drafts to the next that is put down to rounding of the rates.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class RowAllocation(Result):
    """Numbers of drafts for each request that accept most within a budget.

    Attributes
    ----------
    num_drafts : ndarray of int64, shape (n,)
        Drafts of each request; 0 where none are worth a row.
    accepted : float
        Expected number of accepted drafts of the whole batch in a step.
    acceptance_rate : float
        The same divided by the number of requests.
    uniform_rate : float
        Rate if all requests had the same number of drafts, the largest that fits the budget.
    """

    num_drafts: Integers
    accepted: float
    acceptance_rate: float
    uniform_rate: float

    columns: ClassVar = (
        Column("num_drafts", of=lambda found: found.num_drafts.tolist(), holds=list[int]),
        "accepted", "acceptance_rate", "uniform_rate",
    )  # fmt: skip


def allocate_rows(rates: Any, budget: int) -> RowAllocation:
    r"""Share a budget of drafts out over the requests of a batch, exactly.

    Maximises :math:`\sum_i \alpha_i(K_i)` subject to :math:`\sum_i K_i \le B`.

    Parameters
    ----------
    rates : array_like, shape (n, K)
        ``rates[i, k - 1]``: acceptance rate of request i with k drafts, as
        `mdsd_opt.acceptance_rates` gives them for each K. It must not fall along a row, but for
        1e-5 by rounding.
    budget : int
        B, drafts in all: rows of the target's pass beside the one that each request needs anyway.

    Returns
    -------
    RowAllocation

    Raises
    ------
    InvalidInput
        Rates that are no probabilities or fall with more drafts, or a negative budget.
    ProblemTooLarge
        More than 10^10 additions, n B K.
    """
    table = floats(rates, "rates")
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidInput(
            f"rates has shape {table.shape}: give a row for each request and a column for each "
            "number of drafts from 1 on"
        )
    if not ((table >= 0) & (table <= 1)).all():
        raise InvalidInput("rates has values that are not from 0 to 1: give acceptance rates")
    falls = np.argwhere(np.diff(table, axis=1) < -_ROUNDING)
    if falls.size:
        row, column = falls[0].tolist()
        raise InvalidInput(
            f"rates[{row}] falls from {table[row, column]:g} at {column + 1} drafts to "
            f"{table[row, column + 1]:g} at one more: of more drafts none can accept less"
        )
    budget = checked_integer(budget, "budget", 0)
    table = np.maximum.accumulate(table, axis=1)
    n, most = table.shape
    gains = np.diff(table, axis=1, prepend=0.0)
    spent = min(budget, n * most)
    if (np.diff(gains, axis=1) <= 0).all():  # those of a row come in order
        order = np.argsort(-gains, axis=None, kind="stable")[:spent]
        chosen = np.bincount(order[gains.ravel()[order] > 0] // most, minlength=n)
    else:
        chosen = _by_programme(table, spent)
    values = np.pad(table, ((0, 0), (1, 0)))
    accepted = float(values[np.arange(n), chosen].sum())
    uniform = float(values[:, min(budget // n, most)].mean())
    return RowAllocation(chosen, accepted, accepted / n, uniform)


def _by_programme(table: Floats, budget: int) -> Integers:
    """The best value of every budget, request after request, and the choices that lead there."""
    n, most = table.shape
    if n * (budget + 1) * most > _MAX_STEPS:
        raise ProblemTooLarge(
            f"{n} requests with up to {most} drafts and a budget of {budget} take more than "
            f"{_MAX_STEPS:.0e} additions, as these rates are not concave: split the batch"
        )
    best = np.zeros(budget + 1)
    choices = np.zeros((n, budget + 1), dtype=np.int64)
    for row, rates in enumerate(table):
        before = best.copy()
        for k in range(1, min(most, budget) + 1):
            value = before[: budget + 1 - k] + rates[k - 1]
            better = value > best[k:]
            best[k:][better] = value[better]
            choices[row, k:][better] = k
    chosen = np.zeros(n, dtype=np.int64)
    rest = budget
    for row in reversed(range(n)):
        chosen[row] = choices[row, rest]
        rest -= chosen[row]
    return chosen
