r"""Optimal token rule at a node that is itself passed with some probability only.

With r the probability that the node is to be passed, the target of its drafts is r p:
sub-normalised, and the rule stays the same. :math:`\alpha(r) = \min_H [1 - Q(H) + r P(H)]` of the
mass goes on to drafts, and draft t gets :math:`I_t = \min(r p_t, p_I(t))` of it on average over the
draws.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Integers, Numbers
from mdsd_opt.drafts import DraftScheme, PrefixDraftScheme, WithReplacement
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.prefix_search import is_searchable
from mdsd_opt.trees.device_laws import BinnedDrafts
from mdsd_opt.trees.recursive_rejection import (
    MANY_TOKENS,
    Values,
    after_refusal,
    draft_law,
    tried_one_by_one,
    valued_rule,
    whole_support_masses,
)
from mdsd_opt.verifiers import SortedPlan, acceptance_probabilities, accepted

_NO_TOKENS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TokenSplit:
    """Masses that go on to the drafts of a node.

    `masses` are the probabilities that the drafted tokens are passed, given the draws, at most 1 in
    sum; `kept` is I, shape (V,), their mean over the draws.
    """

    masses: dict[int, float]
    kept: Numbers

    @property
    def alpha(self) -> float:
        """Mean probability that some draft is passed."""
        mass: float = self.kept.sum()
        return min(mass, 1)


def token_split(
    target: Any, drafts: DraftScheme | BinnedDrafts, draws: Integers, values: Values
) -> TokenSplit:
    """Masses that go on to the drafts of a node from a target r p, shape (V,), of mass at most one.

    `values`, shape (K,), is what each place is worth, known before the draws. Raises
    `UnsupportedScheme` for drafts without a prefix order.
    """
    if not target.any():
        return TokenSplit({}, 0 * target)
    kept: Any
    if isinstance(drafts, BinnedDrafts):  # no scheme: weights on a device
        passed, kept = drafts.passed(target, draws, values)
        return TokenSplit(_by_token(draws, passed), kept)
    if drafts.prefix_form is None:
        raise UnsupportedScheme(
            f"{drafts!r} has no prefix order, which this rule needs: take the name of a verifier "
            "that is lossless for such drafts, which goes token by token"
        )
    if draws.size == 1 and drafts.random_draws is not None:
        passed, kept = hull_masses(target, drafts.prefix_form, draws, values)
        return TokenSplit(_by_token(draws, passed), kept)
    fixed, free = drafts.always_drafted, drafts.beside_fixed
    if free is None:
        kept = np.zeros_like(target)
        kept[fixed] = target[fixed]
        if drafts.random_draws is not None:
            q = draft_law(drafts, target)
            return TokenSplit(_by_token(draws, whole_support_masses(target, q, draws)), kept)
        return TokenSplit({t: target[t] for t in fixed.tolist()}, kept)
    assert free.prefix_form is not None
    random = drafts.random_places(draws)
    rest = target
    if fixed.size:
        rest = target.copy()
        rest[fixed] = 0
    passed, kept = hull_masses(rest, free.prefix_form, draws[random], values[random])
    masses = _by_token(draws[random], passed)
    if not fixed.size:
        return TokenSplit(masses, kept)
    # Fixed tokens are there whatever is drawn: they share what the others leave.
    room = 1 - kept.sum()
    if room > 0:
        share = max(1 - sum(masses.values()), 0) / room
        for token in fixed.tolist():
            masses[token] = masses.get(token, 0) + share * target[token]
    kept[fixed] += target[fixed]
    return TokenSplit(masses, kept)


def _by_token(draws: Integers, masses: Numbers) -> dict[int, float]:
    """Sums over draws that coincide."""
    sums: defaultdict[int, float] = defaultdict(int)
    for token, mass in zip(draws.tolist(), masses.tolist(), strict=True):
        if token >= 0:
            sums[token] += mass
    return dict(sums)


def split_with_tries(
    target: Numbers, demand: float, drafts: DraftScheme, draws: Integers, values: Values
) -> TokenSplit:
    """Result of `token_split` after `tried_one_by_one`, as one plan; with replacement only.

    What a try leaves is a problem of the same kind, whatever was drawn. Without replacement it
    depends on the draw that was refused, and its mean has no closed form: no try is made.
    """
    tries = []
    random = drafts.random_draws if draws.size > 1 else None
    if random is not None and random.is_replaced:
        tries = tried_one_by_one(target, demand, drafts, values)
    if not tries:
        return token_split(target, drafts, draws, values)
    masses: defaultdict[int, float] = defaultdict(int)
    q, rest = draft_law(drafts, target), target
    undecided = left_on_average = 1 - target[:1].sum() * 0  # a float or a Fraction
    for k in tries:
        token = int(draws[k])
        chance = accepted(rest[token], q[token])
        masses[token] += undecided * chance
        undecided *= 1 - chance
        rest, demand, refused = after_refusal(rest, demand, q)
        left_on_average *= refused
    draws, values = np.delete(draws, tries), np.delete(values, tries)
    (model,) = drafts.models
    others = token_split(rest, WithReplacement(model, draws.size), draws, values)
    for token, mass in others.masses.items():
        masses[token] += undecided * mass
    return TokenSplit(dict(masses), target - left_on_average * (rest - others.kept))


def hull_masses(
    target: Numbers, drafts: PrefixDraftScheme, draws: Integers, values: Values
) -> tuple[Numbers, Numbers]:
    """Probability that each draft is passed, given the draws, shape (K,), and I, shape (V,).

    I = min(t, p_I) is what goes on of a target t of mass at most one on average over the draws. The
    drafts are without always-drafted tokens; values are of the places, known before they were
    drawn.
    """
    random = drafts.random_draws
    if draws.size == 1 and random is not None:
        q, token = draft_law(drafts, target), int(draws[0])  # p_I is the draft's own law
        return np.array([accepted(target[token], q[token])]), np.minimum(target, q)
    from mdsd_opt.verifiers import BinnedPlan

    plan: BinnedPlan | SortedPlan
    if target.size >= MANY_TOKENS and is_searchable(random):
        plan = BinnedPlan(target, random)
    else:
        plan = SortedPlan(target, _NO_TOKENS, drafts)
    rule_of = partial(valued_rule, values=values)
    return acceptance_probabilities(plan, draws, rule_of), np.minimum(target, plan.selection)
