"""Problems of many rows, under relaxed targets where a budget is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.relaxation import checked_relax, relaxed_by


class RelaxedProblems:
    """Makes the problems of rows, relaxed by a budget if there is one, and keeps what that cost.

    Parameters
    ----------
    problem_of : callable
        Makes the problem of a row, given its place.
    num_rows : int
    relax : mapping or None
    """

    def __init__(
        self,
        problem_of: Callable[[int], TransportProblem],
        num_rows: int,
        relax: Mapping[str, float] | None,
    ) -> None:
        self._problem_of = problem_of
        self._budget = None if relax is None else checked_relax(relax)  # before any row
        self._found = np.zeros((3, num_rows))

    def __call__(self, n: int) -> TransportProblem:
        problem = self._problem_of(n)
        if self._budget is None:
            return problem
        found = relaxed_by(problem, self._budget)
        self._found[:, n] = found.kl, found.tv, found.acceptance_rate
        return found.problem

    @property
    def distances(self) -> dict[str, Vector]:
        """ "kl" and "tv" of the rows, shape (num_rows,) each; nothing without a budget."""
        return {} if self._budget is None else {"kl": self._found[0], "tv": self._found[1]}

    @property
    def rates(self) -> Vector:
        """The largest acceptance rates of the relaxed rows, shape (num_rows,)."""
        return self._found[2]
