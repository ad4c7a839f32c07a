"""The optimal token rule for the random drafts of a node, which are worth what their places are."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.recursive_rejection import draft_law
from mdsd_opt.decoding.valued_rules import Values, valued_rule
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.prefix_search.random_draws import is_searched
from mdsd_opt.verifiers.optimal.acceptance_rule import acceptance_probabilities
from mdsd_opt.verifiers.optimal.plan import SortedPlan
from mdsd_opt.verifiers.rejection import accepted

Law = NDArray[Any]

#: From here on the one-pass form of the rule is used, which costs milliseconds instead of tens.
MANY_TOKENS = 4096

_NO_TOKENS = np.empty(0, np.int64)


def hull_masses(
    target: Law, drafts: PrefixDraftScheme, draws: NDArray[np.int64], values: Values
) -> tuple[Law, Law]:
    """What goes on to the drafts of a target of mass at most one.

    Parameters
    ----------
    target : ndarray, shape (V,)
        t.
    drafts : PrefixDraftScheme
        Without always-drafted tokens.
    draws : ndarray of int64, shape (K,)
    values : ndarray, shape (K,)
        Of the places, known before they were drawn.

    Returns
    -------
    masses : ndarray, shape (K,)
        Probability that each draft is passed, given the draws.
    kept : ndarray, shape (V,)
        I = min(t, p_I), its mean over the draws, by token.
    """
    random = drafts.random_draws
    if draws.size == 1 and random is not None:
        return _of_one_draft(target, draft_law(drafts, target), int(draws[0]))
    from mdsd_opt.verifiers.optimal.collapsed import CollapsedPlan

    plan: CollapsedPlan | SortedPlan
    if target.size >= MANY_TOKENS and is_searched(random):
        plan = CollapsedPlan(target, random)
    else:
        plan = SortedPlan(target, _NO_TOKENS, drafts)
    rule_of = partial(valued_rule, values=values)
    return acceptance_probabilities(plan, draws, rule_of), np.minimum(target, plan.selection)


def _of_one_draft(target: Law, q: Law, token: int) -> tuple[Law, Law]:
    """The same where nothing is to be chosen: p_I is the draft's own law."""
    return np.array([accepted(target[token], q[token])]), np.minimum(target, q)


def rank_chances(target: Law, q: Law, num_drafts: int) -> Law:
    r"""Probability that the best, second best, ... place is passed, shape (K,), with replacement.

    A block [a, b) is the topmost one with a draft, and the k-th best place is the best in it, with
    :math:`w(B) A_a^k A_b^{K-1-k}`, k = 0..K-1, A the prefix sums of the weights w.

    Parameters
    ----------
    target, q : ndarray, shape (n,)
        Masses of tokens, or of groups, in ascending order of target/q.
    num_drafts : int
        K.
    """
    if num_drafts == 1:
        return np.minimum(target, q).sum(keepdims=True)
    from mdsd_opt.decoding import rank_kernels

    n, chances = q.size, np.zeros(num_drafts)
    rank_kernels.rank_chances(
        target, q, num_drafts, np.empty((5, n + 1)), np.empty((3, n)), np.empty((3, n), np.int64),
        np.empty(3 * n), np.empty((2, 3 * n), np.int64), np.ones(n + 1),
        np.empty((3, n + 1), np.int64), np.empty(n + 1), chances,
    )  # fmt: skip
    return chances
