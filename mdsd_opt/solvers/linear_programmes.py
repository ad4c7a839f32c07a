r"""The transport LP, its dual and the truncated LP, in the words of `scipy.optimize.linprog`.

With tokens i, draft events S of mass W_S (sets, or ordered tuples) and arcs (i, S), i in S:

============ ==================================================== ==============================
form         minimise                                             subject to
============ ==================================================== ==============================
"primal"     :math:`-\sum C_{iS}`                                 :math:`\sum_S C_{iS} \le p_i,\;
                                                                  \sum_i C_{iS} \le W_S`
"tuples"     the same over the V^K ordered tuples
"dual"       :math:`p \cdot u + W \cdot v`                        :math:`-u_i - v_S \le -1`
"pair"       :math:`-\sum t_i`                                    as below, for K = 2
"truncated"  :math:`-\sum t_i` over the free tokens               the same on pairs of free tokens
============ ==================================================== ==============================

With two drafts, draft set {i, j} hands the share :math:`x_{ij}` of its mass to i and the rest to j
(i < j), so token i is selected with mass :math:`W_i + \sum_{j>i} x_{ij} + \sum_{j<i} (W_{ji} -
x_{ji})`, and t_i of it is accepted:

.. math:: \max \sum_i t_i \quad\text{s.t.}\quad 0 \le t_i \le p_i, \; 0 \le x_{ij} \le W_{ij}, \quad
          t_i - \sum_{j>i} x_{ij} + \sum_{j<i} x_{ji} \le W_i + \sum_{j<i} W_{ji} .
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Vector, weighted_count
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import cvxpy_backend, highs_backend
from mdsd_opt.solvers.highs_backend import Programme

#: Token; draft set, pair or tuple; or both, for an arc.
Label = int | tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class TransportLP(Programme):
    """Minimise c.x over A_ub x <= b_ub and bounds; there are no equalities.

    ``linprog(lp.c, lp.A_ub, lp.b_ub, lp.A_eq, lp.b_eq, lp.bounds)`` solves it. Masses are products
    of probabilities, and the tolerance of most solvers, 1e-7, is absolute: see `scaled`.

    Attributes
    ----------
    form : str
    c : ndarray, shape (n,)
    A_ub : scipy sparse array, shape (m, n)
    b_ub : ndarray, shape (m,)
    bounds : ndarray, shape (n, 2)
    constant : float
        Acceptance outside the programme, that of tokens which are not free.
    """

    form: str
    labels: Callable[[], tuple[list[Label], list[Label]]]
    constant: float = 0.0

    #: No equalities.
    A_eq = b_eq = None

    @cached_property
    def columns(self) -> list[Label]:
        """What the variables are.

        (draft set, token) in the primal; a token (its u) or a draft set (its v) in the dual; a
        token (its t) or a pair (its x) in the others.
        """
        return self.labels()[0]

    @cached_property
    def rows(self) -> list[Label]:
        """What the rows belong to: a token, a draft set, or, in the dual, (draft set, token)."""
        return self.labels()[1]

    def acceptance_rate(self, value: float) -> float:
        """Acceptance rate that a value of c.x means."""
        return float(self.constant + (value if self.masses_are_costs else -value))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an MPS or LP file, by HiGHS; its numbers have 15 digits.

        Variables and rows are called ``t3`` (token 3), ``s0_2`` (draft set {0, 2}) and ``s0_2_t2``
        (both). A reader sees the old file or the new one, never half of it.

        Parameters
        ----------
        path : path-like
            Ends in .mps or .lp.

        Raises
        ------
        InvalidInput
            Another ending, or a file that cannot be written.
        SolverError
            HiGHS refused it.
        """
        highs_backend.write(self, path, names_of(self.columns), names_of(self.rows))

    def to_cvxpy(self) -> Any:
        """``cvxpy.Problem``, a minimisation; its first constraint is A_ub x <= b_ub.

        Raises
        ------
        MissingExtra
            CVXPY is not installed.
        """
        return cvxpy_backend.model(self)[0]


def names_of(labels: list[Label]) -> list[str]:
    """Names for a file; a tuple that a mixture draws in two ways has ``_r2`` the second time."""
    met: Counter[str] = Counter()
    names = []
    for name in map(_name, labels):
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name}_r{met[name]}")
    return names


def _name(label: Any) -> str:
    if not isinstance(label, tuple):
        return f"t{label}"
    if label and isinstance(label[0], tuple):
        return f"{_name(label[0])}_t{label[1]}"
    return "s" + "_".join(map(str, label))


@dataclass(frozen=True, slots=True, eq=False)
class TransportNetwork:
    """Tokens on one side, draft events (sets or tuples) with their masses on the other.

    `tokens` and `events`, shape (num_arcs,), are the ends of the arcs: token i may be accepted in
    event s. ``sets()`` gives the members of the events.
    """

    target: Vector
    mass: Vector
    tokens: NDArray[np.int32]
    events: Integers
    sets: Callable[[], Any]

    @property
    def num_arcs(self) -> int:
        return self.tokens.size

    def programme(self, form: str) -> TransportLP:
        """Form "dual", or "primal" under any name."""
        from scipy.sparse import csc_array, csr_array

        num_tokens, arcs = self.target.size, self.num_arcs
        masses = np.concatenate([self.target, self.mass])
        ends = np.column_stack([self.tokens, num_tokens + self.events]).astype(np.int32).ravel()
        starts = np.arange(0, 2 * arcs + 1, 2, dtype=np.int32)
        dual = form == "dual"
        one, other = masses.size, arcs
        if dual:
            matrix: Any = csr_array((np.full(2 * arcs, -1.0), ends, starts), shape=(arcs, one))
        else:
            matrix = csc_array((np.ones(2 * arcs), ends, starts), shape=(one, arcs))
            one, other = other, one
        return TransportLP(
            form=form,
            c=masses if dual else np.full(arcs, -1.0),
            A_ub=matrix,
            b_ub=np.full(arcs, -1.0) if dual else masses,
            bounds=np.tile([0.0, np.inf], (one, 1)),
            masses_are_costs=dual,
            labels=self._labels if not dual else lambda: self._labels()[::-1],
        )

    def _labels(self) -> tuple[list[Label], list[Label]]:
        sets = [tuple(members) for members in self.sets()]
        ends = zip(self.events.tolist(), self.tokens.tolist(), strict=True)
        return [(sets[s], i) for s, i in ends], [*range(self.target.size), *sets]


def support_network(problem: TransportProblem, law: SupportLaw) -> TransportNetwork:
    """Network with one event for each draft set."""
    return TransportNetwork(problem.target, law.mass, law.tokens, law.arc_support, law.sets)


def tuple_network(problem: TransportProblem) -> tuple[TransportNetwork, NDArray[np.int32]]:
    """Network with one event for each ordered draft tuple, and the tuples, each sorted, [n, K]."""
    drawn, mass = problem.drafts.tuple_law()
    drawn, mass = drawn[mass > 0], mass[mass > 0]
    tuples = np.sort(drawn, axis=1)
    fresh = tuples >= 0  # not padding, and not a repeat of the place before
    fresh[:, 1:] &= tuples[:, 1:] != tuples[:, :-1]
    events, places = np.nonzero(fresh)
    network = TransportNetwork(
        problem.target, mass, tuples[events, places], events, lambda: (drawn + 0).tolist()
    )
    return network, tuples


def pair_programme(
    p: Vector,
    fixed: Vector,
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    pair_mass: Vector,
    form: str = "pair",
    tokens: Integers | None = None,
    constant: float = 0.0,
) -> TransportLP:
    """Programme with columns t_1..t_V, then x of every pair, first < second.

    `fixed`, shape (V,), is the mass that each token is selected with anyway; `tokens` are the ids.
    """
    from scipy.sparse import csc_array

    size, num_pairs = p.size, first.size
    ones = np.ones(num_pairs)
    pairs = np.column_stack([first, second])
    starts = np.concatenate([np.arange(size), np.arange(size, size + 2 * num_pairs + 1, 2)])
    matrix = csc_array(
        (
            np.concatenate([np.ones(size), np.column_stack([-ones, ones]).ravel()]),
            np.concatenate([np.arange(size), pairs.ravel()]).astype(np.int32),
            starts.astype(np.int32),
        ),
        shape=(size, size + num_pairs),
    )
    upper = np.concatenate([p, pair_mass])

    def labels() -> tuple[list[Label], list[Label]]:
        ids = np.arange(size) if tokens is None else tokens
        return [*ids.tolist(), *map(tuple, ids[pairs].tolist())], ids.tolist()

    return TransportLP(
        form=form,
        c=np.concatenate([-np.ones(size), np.zeros(num_pairs)]),
        A_ub=matrix,
        b_ub=fixed + weighted_count(second, pair_mass, size),
        bounds=np.column_stack([np.zeros_like(upper), upper]),
        labels=labels,
        constant=constant,
    )
