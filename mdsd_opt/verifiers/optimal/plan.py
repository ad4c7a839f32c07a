"""The optimal selection, prepared once for a problem: order, masses, levels, residual."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import (
    FixedPlusDrafts,
    GreedyDrafts,
    PrefixDraftScheme,
    WithoutReplacement,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.exact_subset_selection import best_exact_prefix
from mdsd_opt.water_filling import exact_water_fill, water_fill


@dataclass(frozen=True, slots=True, eq=False)
class SelectionPlan:
    """Selection marginal p_I over the drafted tokens, in prefix order.

    Attributes
    ----------
    drafts : PrefixDraftScheme
        The drafts that are random; always-drafted tokens are split off.
    order : ndarray of int64, shape (n,)
        Token at each place of the prefix order; all have positive weight.
    position : ndarray of int64, shape (V,)
        Place of each token, -1 for tokens that are never drafted.
    p, x, w, slopes : ndarray, shape (n,)
        Target, p_I, weights and slopes of Q, in prefix order.
    above : ndarray, shape (n + 1,)
        Suffix sums of w.
    split : int
        Number of tokens in the optimal prefix H.
    residual : ndarray, shape (V,)
        Law of the output after a rejection; the target where only rounding can reject.
    """

    drafts: PrefixDraftScheme
    order: NDArray[np.int64]
    position: NDArray[np.int64]
    p: NDArray[Any]
    x: NDArray[Any]
    w: NDArray[Any]
    slopes: NDArray[Any]
    above: NDArray[Any]
    split: int
    residual: NDArray[Any]


def split_fixed(drafts: PrefixDraftScheme) -> tuple[NDArray[np.int64], PrefixDraftScheme | None]:
    """Always-drafted tokens, and the scheme of the drafts beside them (None: there are no others).

    Given the fixed tokens D, the optimum is p(D) plus that of the other drafts against the target
    without D; a rejection may land in D.
    """
    fixed = drafts.always_drafted
    if isinstance(drafts, FixedPlusDrafts):
        return fixed, drafts.drafts
    if isinstance(drafts, GreedyDrafts) and drafts.draws_one:
        return fixed, drafts.last_draft
    if fixed.size or (isinstance(drafts, WithoutReplacement) and drafts.drafts_whole_support):
        return fixed, None
    return fixed, drafts


def make_plan(
    target: NDArray[Any], fixed: NDArray[np.int64], drafts: PrefixDraftScheme, exact: bool
) -> SelectionPlan:
    """Cut, water levels and residual for drafts without always-drafted tokens.

    Parameters
    ----------
    target : ndarray, shape (V,)
        p; float64, or Fractions if `exact`.
    fixed : ndarray of int64
        Tokens that are drafted anyway: the others have the target without them.
    drafts : PrefixDraftScheme
    """
    p = target.copy()
    p[fixed] = Fraction(0) if exact else 0.0
    x, order, slopes, split = _exact_marginal(p, drafts) if exact else _marginal(p, drafts)
    w = np.array(drafts.exact_weights, dtype=object) if exact else drafts.weights
    position = np.full(target.size, -1, dtype=np.int64)
    position[order] = np.arange(order.size)
    residual = np.where(p > x, p - x, p * 0)
    residual[fixed] = target[fixed]
    total = residual.sum()
    return SelectionPlan(
        drafts=drafts,
        order=order,
        position=position,
        p=p[order],
        x=x[order],
        w=w[order],
        above=suffix_sums(w[order]),
        slopes=slopes,
        split=split,
        residual=residual / total if total > 0 else target,
    )


def suffix_sums(w: NDArray[Any]) -> NDArray[Any]:
    """Sums over the tokens from each place to the end, shape (n + 1,)."""
    return np.append(np.cumsum(w[::-1])[::-1], w[:1].sum() * 0)


def _marginal(
    p: NDArray[np.float64], drafts: PrefixDraftScheme
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], int]:
    from mdsd_opt.solvers.prefix_scan_kernels import smallest_prefix_difference

    order = drafts.prefix_order(p)
    contained = drafts.prefix_containment(order)
    _, split = smallest_prefix_difference(p[order], contained)
    subset = np.zeros(p.size, dtype=np.bool_)
    subset[order[:split]] = True
    x = water_fill(p, drafts, subset, float(contained[split])).values
    return x, order, drafts.prefix_slopes(order), split


def _exact_marginal(
    p: NDArray[Any], drafts: PrefixDraftScheme
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], int]:
    masses = p.tolist()
    order, contained, split = best_exact_prefix(masses, drafts)
    subset = np.zeros(p.size, dtype=np.bool_)
    subset[order[:split]] = True
    x = np.array(exact_water_fill(masses, drafts, subset, contained[split]), dtype=object)
    w = drafts.exact_weights
    slopes = [(contained[j + 1] - contained[j]) / w[i] for j, i in enumerate(order)]
    return x, np.array(order, dtype=np.int64), np.array(slopes, dtype=object), split


def plan_of(problem: TransportProblem, exact: bool = False) -> SelectionPlan | None:
    """The plan of a problem; None if its drafts are certain, so that nothing is to be selected."""
    drafts = problem.drafts
    assert isinstance(drafts, PrefixDraftScheme)
    fixed, free = split_fixed(drafts)
    if free is None:
        return None
    target = np.array(problem.exact_target, dtype=object) if exact else problem.target
    return make_plan(target, fixed, free, exact)
