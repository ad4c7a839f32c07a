r"""Best law of drafts that have to do for several targets: what a drafter knows not, it averages.

A drafter that draws a position before it knows the tokens ahead of it has one law q for all targets
:math:`p_w` that those tokens w may lead to. Verifiers know the target.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Floats, to_numpy
from mdsd_opt.base.checked import check_truth, checked_tolerance
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts import checked_num_drafts
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, SolverError

#: Most variables of the programme over draft sets.
MAX_VARIABLES = 200_000

#: Most linear programmes for several draws from one law.
_MAX_ROUNDS = 400


class SharedLaw(NamedTuple):
    """One draft law for several targets.

    Attributes
    ----------
    law : ndarray, shape (V,)
        q.
    acceptance_rate : float
        Mean over the targets of the largest rate with which K draws from q can be accepted.
    upper : float
        No law has a larger mean.
    """

    law: Floats
    acceptance_rate: float
    upper: float


def shared_law(
    targets: Any, weights: Any = None, num_drafts: int = 1, *, tolerance: float = 1e-6
) -> SharedLaw:
    r"""Law q with the largest mean acceptance of K draws with replacement, over several targets.

    .. math:: \max_q \sum_w c_w \alpha^*(p_w, q, K), \qquad
        \alpha^*(p, q, 1) = \sum_x \min(p(x), q(x))

    One draft has a closed form: q is a barycentre of the targets in total variation. Mass is put
    where it is worth most: the piece of token x between two neighbouring values of
    :math:`p_w(x)` is worth the weight of the targets above it. For more, :math:`\alpha^*` is the
    least of :math:`1 + p(H) - q(H)^K`, concave in q, and cuts are added until bounds meet.

    Cost: a sort of each token's probabilities for one draft (200 targets of 49,152 tokens take
    seconds). For more it is meant for some tens of tokens: 200 take a minute or two at 1e-6.

    Parameters
    ----------
    targets : array_like, shape (C, V)
        Probabilities, a target a row.
    weights : array_like, shape (C,), optional
        Their probabilities; by default all are the same.
    num_drafts : int
        K.
    tolerance : float
        Difference to `upper` at which to stop, for K > 1.

    Returns
    -------
    SharedLaw

    Raises
    ------
    InvalidInput, InvalidDistribution
        Targets or weights are no probabilities, or the number of drafts or the tolerance is not
        positive.
    SolverError
        The bounds did not meet.
    """
    p, c, k = _opened(targets, weights, num_drafts)
    checked_tolerance("tolerance", tolerance)
    if k > 1:
        return _by_cuts(p, c, k, tolerance)
    q = worth_most(p, c, 1.0)
    q /= q.sum()
    rate = float(c @ np.minimum(p, q).sum(axis=1))
    return SharedLaw(q, rate, rate)


def blind_bound(
    targets: Any, weights: Any = None, num_drafts: int = 1, *, inclusion: bool = False
) -> float:
    r"""Largest mean acceptance of any K drafts whose joint law is the same for all targets.

    .. math:: \max_\pi \sum_w c_w \min_H \Bigl[1 + p_w(H) - \sum_{S \subseteq H} \pi(S)\Bigr]

    over the laws :math:`\pi` of sets of K tokens. One less it is the share of rejections that no
    drafter avoids that does not know w, with any K drafts and any lossless verifier. A linear
    programme over the sets, for small vocabularies. By the chances r(x) that tokens are drafted
    alone, whichever come together, the maximum is at most

    .. math:: \max_r \sum_w c_w \sum_x \min(p_w(x), r(x)), \qquad \sum_x r(x) = K

    which has the closed form of `shared_law` with mass K, and is exact for one draft.

    Parameters
    ----------
    targets, weights, num_drafts
        As for `shared_law`.
    inclusion : bool
        Give the upper bound in closed form, at any vocabulary size.

    Raises
    ------
    InvalidInput, InvalidDistribution
        As for `shared_law`.
    ProblemTooLarge
        There are too many sets.
    SolverError
        The programme was not solved.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    check_truth(inclusion=inclusion)
    p, c, num_drafts = _opened(targets, weights, num_drafts)
    (count, v), k = p.shape, min(num_drafts, p.shape[1])
    if inclusion:
        return float(c @ np.minimum(p, worth_most(p, c, k)).sum(axis=1))
    sets, size = comb(v, k), comb(v, k) * (1 + k * count)
    if size > MAX_VARIABLES:
        raise ProblemTooLarge(
            f"{count} targets of {v} tokens and {k} drafts make {size:,} variables, over the limit "
            f"of {MAX_VARIABLES:,}: take fewer tokens, targets or drafts, or the bound by "
            "inclusion=True"
        )
    tokens = np.array(list(combinations(range(v), k))).ravel()
    one = np.ones(tokens.size)
    arrives = sparse.csr_array((one, (tokens, np.arange(tokens.size))), shape=(v, tokens.size))
    leaves = sparse.kron(sparse.eye_array(sets), np.ones((1, k)))
    # masses of the sets, then for each target the flow from every set to each of its tokens
    flows = [sparse.kron(sparse.eye_array(count), x) for x in (leaves, arrives)]
    masses = [sparse.kron(-np.ones((count, 1)), sparse.eye_array(sets)), None]
    optimum = linprog(
        np.concatenate([np.zeros(sets), -np.repeat(c, tokens.size)]),
        A_ub=sparse.block_array(list(zip(masses, flows, strict=True)), format="csr"),
        b_ub=np.concatenate([np.zeros(count * sets), p.ravel()]),
        A_eq=sparse.csr_array(np.repeat([[1.0, 0.0]], [sets, count * tokens.size], axis=1)),
        b_eq=[1.0],
        method="highs-ipm",
    )
    if optimum.status != 0:
        raise SolverError(f"the programme over {sets} draft sets was not solved: {optimum.message}")
    return float(-optimum.fun)


def _opened(targets: Any, weights: Any, num_drafts: int) -> tuple[Floats, Floats, int]:
    rows = to_numpy(targets, "targets")
    if rows.ndim != 2 or not rows.size:
        raise InvalidInput(f"targets of shape {rows.shape}: give one row a target, shape (C, V)")
    k = checked_num_drafts(num_drafts)
    p = np.stack([Distribution.of(row, f"target {n}").values for n, row in enumerate(rows)])
    if weights is None:
        return p, np.full(len(p), 1.0 / len(p)), k
    c = Distribution.of(weights, "weights").values
    if c.size != len(p):
        raise InvalidInput(f"{c.size} weights for {len(p)} targets: give one a target")
    return p, c, k


def worth_most(p: Floats, c: Floats, mass: float) -> Floats:
    """Masses r of the tokens, at most `mass` in sum, with the largest sum of c_w min(p_w, r)."""
    order = np.argsort(p, axis=0)
    levels = np.take_along_axis(p, order, axis=0)
    widths = np.diff(levels, axis=0, prepend=0.0).ravel()
    above = np.cumsum(c[order][::-1], axis=0)[::-1]  # weight of the targets that reach a piece
    pieces = np.argsort(-above, axis=None, kind="stable")
    before = np.cumsum(widths[pieces]) - widths[pieces]
    taken = np.empty(widths.size)
    taken[pieces] = np.clip(mass - before, 0.0, widths[pieces])
    masses: Floats = taken.reshape(p.shape).sum(axis=0)
    return masses


def _by_cuts(p: Floats, c: Floats, k: int, tolerance: float) -> SharedLaw:
    """Kelley's method: each target's rate t_w lies below the tangents of 1 + p(H) - q(H)^K."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, vstack

    count, v = p.shape
    best, upper = SharedLaw(c @ p, 0.0, 1.0), 1.0
    rows, limits = [], []
    q = c @ p
    for _ in range(_MAX_ROUNDS):
        cuts = np.zeros((count, v + count))
        values = np.empty(count)
        for w in range(count):
            order = np.argsort(p[w] / np.maximum(q, 1e-300), kind="stable")
            ends = 1.0 + np.cumsum(p[w][order]) - np.cumsum(q[order]) ** k
            size = int(ends.argmin()) + 1
            prefix, mass = order[:size], q[order[:size]].sum()
            values[w] = min(ends[size - 1], 1.0)
            slope = k * mass ** (k - 1)
            cuts[w, prefix], cuts[w, v + w] = slope, 1.0
            limits.append(1.0 + p[w][prefix].sum() - mass**k + slope * mass)
        rate = float(c @ values)
        if rate > best.acceptance_rate:
            best = SharedLaw(q, rate, upper)
        rows.append(csr_array(cuts))
        optimum = linprog(
            np.concatenate([np.zeros(v), -c]),
            A_ub=vstack(rows).tocsr(),
            b_ub=limits,
            A_eq=np.concatenate([np.ones(v), np.zeros(count)])[None],
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * (v + count),
            method="highs",
        )
        if optimum.status != 0:
            break
        upper = min(upper, float(-optimum.fun))
        if upper - best.acceptance_rate <= tolerance:
            return SharedLaw(best.law, best.acceptance_rate, upper)
        ahead = np.maximum(optimum.x[:v], 0.0)
        q = 0.5 * (ahead / ahead.sum() + best.law)  # between the best and what the cuts still allow
    raise SolverError(
        f"the best law of {k} drafts is known to {upper - best.acceptance_rate:.1e} only, not to "
        f"{tolerance:g}: give a larger tolerance"
    )
