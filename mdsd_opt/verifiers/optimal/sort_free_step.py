"""One optimal decision on given probabilities, without sorting the vocabulary.

The rule that `plan` and `hull` make explicit. Tokens are collected in buckets of p/q, and what the
rule asks for (the cut, the water levels, the block of the topmost draft, a residual token) is
computed on the buckets as if each were a tie. Buckets for which that could be wrong are opened, and
it is computed again: usually a few hundred tokens are ever looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.verifiers.base import Uniforms, impossible_drafts, possible_token
from mdsd_opt.verifiers.optimal import block_kernels, doubt_kernels
from mdsd_opt.verifiers.optimal import ratio_groups_kernels as kernels
from mdsd_opt.verifiers.optimal.block_rules import pivotal_shares
from mdsd_opt.verifiers.optimal.containment import containment_of
from mdsd_opt.verifiers.optimal.ratio_groups_kernels import Groups

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]

#: Sums over prefixes lose tokens that are small beside what comes before them: their rounding error
#: is 1e-16, and where the last draft was drawn from less than this, it would show in the law.
_LEAST_MASS_LEFT = 1e-7


def applies_to(drafts: DraftScheme) -> TypeGuard[WithReplacement | WithoutReplacement]:
    """Whether the scheme draws at random from one q, over few enough tokens for packed keys."""
    if drafts.vocab_size > kernels.MAX_TOKENS:
        return False
    if isinstance(drafts, WithoutReplacement):
        return not drafts.drafts_whole_support
    return isinstance(drafts, WithReplacement)


def resolves(drafts: WithReplacement | WithoutReplacement, tokens: Tokens) -> bool:
    """Whether sums over prefixes can tell these drafts apart.

    Beside q = 1, tokens of q = 1e-20 are lost in them, but without replacement the second draft is
    one of those.
    """
    if isinstance(drafts, WithReplacement):
        return True
    return bool(1.0 - drafts.q[tokens[:-1]].sum() > _LEAST_MASS_LEFT)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Groups with the best cut and both water levels, which no closed group can change."""

    groups: Groups
    split: int
    raised: int
    raise_level: float
    capped: int
    cap_level: float

    @property
    def levels(self) -> tuple[int, int, float, int, float]:
        return self.split, self.raised, self.raise_level, self.capped, self.cap_level

    def places(self, keys: Tokens) -> Tokens:
        """Groups in which the tokens of these keys are."""
        return np.searchsorted(self.groups.keys, keys, side="right") - 1


class Row:
    """One position: its tokens by bucket, and the plan as far as it has been made."""

    def __init__(self, p: Vector, drafts: WithReplacement | WithoutReplacement) -> None:
        self.p, self.q = p, drafts.q
        self._buckets = kernels.token_buckets(p, self.q)
        self._contained = containment_of(p, drafts, self._buckets)
        self._is_open = np.zeros(kernels.NUM_BUCKETS, np.bool_)
        self.plan = self._make_plan(self._contained.closed())

    @property
    def never_drafted(self) -> float:
        """Target mass of the tokens with q = 0."""
        return float(self._contained.sums[kernels.NEVER_DRAFTED, 0])

    def _make_plan(self, groups: Groups) -> Plan:
        """Cut and water levels, opening groups until they are certain."""
        while True:
            split = doubt_kernels.best_cut(groups)
            inside = float(groups.contained[split])
            sums = groups.sums_p, groups.sums_q, kernels.mean_ratios(groups)
            raised, c = block_kernels.raise_level(*sums, split, inside)
            capped, cap = block_kernels.cap_level(*sums, split, 1.0 - inside)
            doubt = doubt_kernels.doubt_cut(groups, self._contained.exponent, split, self._is_open)
            if not doubt_kernels.doubt_levels(groups, split, c, cap, self._is_open) and not doubt:
                return Plan(groups, split, raised, c, capped, cap)
            groups = self._opened(groups)

    def _opened(self, groups: Groups) -> Groups:
        groups = kernels.opened(groups, self._is_open, self._open_keys(), self.p, self.q)
        self._contained.fill(groups, self._is_open)
        self._is_open[:] = False
        return groups

    def _open_keys(self) -> Tokens:
        keys = kernels.keys_of(self.p, self.q, kernels.open_tokens(self._buckets, self._is_open))
        keys.sort()
        return keys

    def block(self, top: int, mixing: float) -> tuple[int, int]:
        """Block [start, stop) around the draft with the key `top`, in groups of the new plan."""
        while True:
            plan, groups = self.plan, self.plan.groups
            place = int(plan.places(np.array([top]))[0])
            above = place >= plan.split
            start, stop = block_kernels.block_of(
                groups.sums_p, groups.sums_q, groups.contained, mixing, *plan.levels, place
            )
            selected = doubt_kernels.selected_mass(groups, *plan.levels, above)
            ends = (plan.split, plan.capped) if above else (plan.raised, plan.split)
            if not doubt_kernels.doubt_block(
                groups, selected, self._contained.exponent, mixing, *ends, start, stop,
                self._is_open,
            ):  # fmt: skip
                return int(start), int(stop)
            self.plan = self._make_plan(self._opened(groups))

    def tokens_of(self, g: int) -> Tokens:
        """Tokens of one group, in order of their ratio."""
        groups = self.plan.groups
        if groups.buckets[g] < 0:
            return groups.keys[g : g + 1] & kernels.TOKEN_MASK
        self._is_open[groups.buckets[g]] = True
        tokens = self._open_keys() & kernels.TOKEN_MASK
        self._is_open[:] = False
        return tokens


def decide(
    p: Vector,
    drafts: WithReplacement | WithoutReplacement,
    tokens: Tokens,
    uniforms: Uniforms,
) -> int:
    """Output token given the draft tokens.

    Raises
    ------
    InvalidInput
        The scheme cannot have drawn these tokens.
    """
    q = drafts.q
    if tokens.min() < 0 or not (q[tokens] > 0).all():
        raise impossible_drafts(drafts, tokens)
    row = Row(p, drafts)
    keys = kernels.keys_of(p, q, tokens)
    if isinstance(drafts, WithReplacement):
        chosen = first_in_block(row, keys, uniforms)
    else:
        chosen = pivotal_in_block(row, tokens, keys, uniforms)
    token = int(tokens[chosen])
    if p[token] > 0.0:
        if row.plan.places(keys)[chosen] >= row.plan.split:  # p_I <= p there
            return token
        if uniforms.acceptance * max(p[token], row.plan.raise_level * q[token]) < p[token]:
            return token
    drawn = residual_token(row, uniforms.residual)
    return possible_token(p, tokens) if drawn < 0 else drawn


def first_in_block(row: Row, keys: Tokens, uniforms: Uniforms) -> int:
    """Index of the first draft in the block of the topmost."""
    plan, top = row.plan, int(keys.argmax())
    places = plan.places(keys)
    first = int(np.flatnonzero((places >= plan.split) == (places[top] >= plan.split))[0])
    # No hull is needed if the first candidate is the topmost, or on the same water level.
    if first == top or places[top] < plan.raised or places[first] >= plan.capped:
        return first
    start, _ = row.block(keys[top], uniforms.mixing)
    return int(np.flatnonzero(row.plan.places(keys) >= start)[0])


def pivotal_in_block(row: Row, tokens: Tokens, keys: Tokens, uniforms: Uniforms) -> int:
    """Index of the draft that draws without replacement ask for in the block of the topmost."""
    plan, top = row.plan, int(keys.argmax())
    places = plan.places(keys)
    candidates = np.flatnonzero((places >= plan.split) == (places[top] >= plan.split))
    if candidates.size == 1:
        return int(candidates[0])
    start, stop = row.block(keys[top], uniforms.mixing)
    sums_q = row.plan.groups.sums_q
    inside = np.flatnonzero(row.plan.places(keys) >= start)
    shares = pivotal_shares(
        row.q[tokens],
        masses_left(row.q, tokens),
        inside,
        in_block=float(sums_q[stop] - sums_q[start]),
        above_block=float(sums_q[-1] - sums_q[stop]),
    )
    reached = np.cumsum(shares)
    chosen = int(np.searchsorted(reached, uniforms.draft * reached[-1], side="right"))
    return min(chosen, int(np.flatnonzero(shares > 0)[-1]))


def masses_left(q: Vector, tokens: Tokens) -> list[float]:
    """1 - q(X_1..X_i) for i = 1..K, as sums of what is left."""
    others = q.copy()
    others[tokens] = 0.0
    left = [float(others.sum())]
    for token in tokens[:0:-1]:
        left.append(left[-1] + float(q[token]))
    return left[::-1]


def residual_token(row: Row, uniform: float) -> int:
    """Draw from the positive part of p - c' q, in the order of the ratios; -1 if it has no mass.

    It lives on the capped groups and on the tokens that are never drafted.
    """
    groups, capped, cap = row.plan.groups, row.plan.capped, row.plan.cap_level
    reached = np.zeros(1)
    if capped < groups.keys.size:
        sums_p, sums_q = groups.sums_p[capped:], groups.sums_q[capped:]
        reached = (sums_p - sums_p[0]) - cap * (sums_q - sums_q[0])
    drafted, never = max(float(reached[-1]), 0.0), row.never_drafted
    if drafted + never <= 0.0:
        return -1
    point = uniform * (drafted + never)
    if never > 0.0 and point >= drafted:  # in order of their ids
        tokens = np.flatnonzero((row.q <= 0.0) & (row.p > 0.0))
        within = drafted + np.cumsum(row.p[tokens])
        return int(tokens[min(int(np.searchsorted(within, point, "right")), tokens.size - 1)])
    g = min(int(np.searchsorted(reached, point, "right")), reached.size - 1) - 1
    tokens = row.tokens_of(capped + g)
    within = reached[g] + np.cumsum(row.p[tokens] - cap * row.q[tokens])
    token = int(tokens[min(int(np.searchsorted(within, point, "right")), tokens.size - 1)])
    if row.p[token] > cap * row.q[token]:
        return token
    excess = row.p - cap * row.q  # rounding has led to a token without residual: take the largest
    return int(excess.argmax()) if excess.max() > 0.0 else -1
