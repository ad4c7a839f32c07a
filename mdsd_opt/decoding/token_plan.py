r"""The optimal token rule at a node that is itself passed with some probability only.

With r the probability that the node is to be passed, the target of its drafts is r p:
sub-normalised, and the rule stays the same. :math:`\alpha(r) = \min_H [1 - Q(H) + r P(H)]` of the
mass goes on to drafts, and draft t gets :math:`I_t = \min(r p_t, p_I(t))` of it on average over the
draws.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, FixedPlusDrafts, PrefixDraftScheme, WithReplacement
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.verifiers.optimal.block_rules import block_rule
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels
from mdsd_opt.verifiers.optimal.plan import SelectionPlan, make_plan, split_fixed
from mdsd_opt.verifiers.optimal.sort_free_step import applies_to

Law = NDArray[np.float64]

#: From here on the one-pass form of the rule is used, which costs milliseconds instead of tens.
MANY_TOKENS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class TokenPlan:
    """What goes on to the drafts of a node.

    Attributes
    ----------
    masses : dict of int to float
        Probability that each drafted token is passed, given the draws; at most 1 in sum.
    kept : ndarray, shape (V,)
        I, its mean over the draws.
    """

    masses: dict[int, float]
    kept: Law

    @property
    def alpha(self) -> float:
        """Mean probability that some draft is passed."""
        return min(float(self.kept.sum()), 1.0)


def token_plan(target: Law, drafts: DraftScheme | None, draws: NDArray[np.int64]) -> TokenPlan:
    """The optimal rule for a target of mass at most one.

    Parameters
    ----------
    target : ndarray, shape (V,)
        r p.
    drafts : DraftScheme or None
        None at a leaf: nothing goes on.
    draws : ndarray of int64, shape (K,)

    Raises
    ------
    UnsupportedScheme
        The drafts have no prefix order.
    """
    if drafts is None or not target.any():
        return TokenPlan({}, np.zeros_like(target))
    if not isinstance(drafts, PrefixDraftScheme):
        raise UnsupportedScheme(
            f"{drafts!r} has no prefix order, which this rule needs: take the name of a verifier "
            "that is lossless for such drafts, which goes token by token"
        )
    fixed, free = split_fixed(drafts)
    kept = np.zeros_like(target)
    kept[fixed] = target[fixed]
    if free is None:
        return TokenPlan({int(t): float(target[t]) for t in fixed}, kept)
    if isinstance(drafts, FixedPlusDrafts):  # a random draft may hit a fixed token again
        drawn = draws[fixed.size :]
    else:
        drawn = draws[~np.isin(draws, fixed)]
    drawn = drawn[drawn >= 0]
    rest = target
    if fixed.size:
        rest = target.copy()
        rest[fixed] = 0.0
    masses, kept_free = _random_masses(rest, free, drawn)
    kept += kept_free
    # Fixed tokens are there whatever is drawn: they share what the others leave.
    left = 1.0 - float(kept_free.sum())
    if fixed.size and left > 0.0:
        share = max(1.0 - sum(masses.values()), 0.0) / left
        for token in fixed.tolist():
            masses[token] = masses.get(token, 0.0) + share * float(target[token])
    return TokenPlan(masses, kept)


def _random_masses(
    target: Law, drafts: PrefixDraftScheme, drawn: NDArray[np.int64]
) -> tuple[dict[int, float], Law]:
    if target.size >= MANY_TOKENS and applies_to(drafts):
        return _collapsed_masses(target, drafts, drawn)
    plan = make_plan(target, np.empty(0, np.int64), drafts, exact=False)
    positions = plan.position[drawn]
    levels = death_levels(plan.x, plan.w, plan.slopes)
    shares = _shares(plan, positions, levels)
    accepted = np.where(plan.p < plan.x, plan.p / np.where(plan.x > 0, plan.x, 1.0), plan.p > 0)
    masses: defaultdict[int, float] = defaultdict(float)
    for token, share, position in zip(drawn.tolist(), shares, positions, strict=True):
        masses[token] += float(share) * float(accepted[position])
    kept = np.zeros_like(target)
    kept[plan.order] = np.minimum(plan.p, plan.x)
    return dict(masses), kept


def _shares(plan: SelectionPlan, positions: NDArray[np.int64], levels: NDArray[Any]) -> Law:
    """Probability of selecting each draw, over all mixing levels."""
    even = isinstance(plan.drafts, WithReplacement)
    rule = block_rule(plan.drafts, positions, plan.w, plan.above)
    shares = np.zeros(positions.size)
    for length, start, stop in blocks_around(int(positions.max()), levels):
        if even:  # draws are exchangeable: the mean over their order spreads what goes on
            inside = positions >= start
            shares += length * inside / inside.sum()
        else:
            shares += length * rule(start, stop)
    return shares


def _collapsed_masses(
    target: Law, drafts: Any, drawn: NDArray[np.int64]
) -> tuple[dict[int, float], Law]:
    from mdsd_opt.verifiers.optimal.collapsed import CollapsedPlan

    plan = CollapsedPlan(target, drafts)
    places, rule = plan.places(drawn), plan.rule(drawn)
    even = isinstance(drafts, WithReplacement)
    shares = np.zeros(drawn.size)
    levels = death_levels(plan.x, plan.w, plan.slopes)
    for length, start, stop in blocks_around(int(places.max()), levels):
        if even:
            inside = places >= start
            shares += length * inside / inside.sum()
        else:
            shares += length * rule(start, stop)
    masses: defaultdict[int, float] = defaultdict(float)
    for token, share in zip(drawn.tolist(), shares, strict=True):
        masses[token] += float(share) * plan.accepted_share(token)
    return dict(masses), np.minimum(plan.p, plan.selected)
