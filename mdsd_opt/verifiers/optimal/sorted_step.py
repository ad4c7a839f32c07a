"""One optimal decision on given probabilities, as quick as a sort.

The same rule as `plan` and `hull` make explicit, without building marginals or levels that the
drafts at hand do not ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.verifiers.base import Uniforms, impossible_drafts, possible_token
from mdsd_opt.verifiers.optimal import sorted_kernels as kernels
from mdsd_opt.verifiers.optimal.block_rules import block_rule

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SortedPlan:
    """Tokens sorted by p/q with their prefix sums, the cut and both water levels."""

    keys: NDArray[np.int64]
    sums_p: Vector
    sums_q: Vector
    contained: Vector | None
    split: int
    raised: int
    raise_level: float
    capped: int
    cap_level: float


def applies_to(drafts: DraftScheme) -> TypeGuard[WithReplacement | WithoutReplacement]:
    """Whether the scheme draws at random from one q, over few enough tokens for packed keys."""
    if drafts.vocab_size > kernels.MAX_TOKENS:
        return False
    if isinstance(drafts, WithoutReplacement):
        return not drafts.drafts_whole_support
    return isinstance(drafts, WithReplacement)


def sorted_plan(p: Vector, drafts: WithReplacement | WithoutReplacement) -> SortedPlan:
    """Sort, cut and fill; `contained` is left out where it is a power of the prefix sums."""
    q, k = drafts.q, drafts.num_drafts
    keys = kernels.packed_keys(p, q)
    keys.sort()
    sums_p, sums_q, split = kernels.prefix_sums(q, keys, k)
    contained = None
    if isinstance(drafts, WithReplacement):
        inside = min(float(sums_q[split]), 1.0) ** k
    else:
        contained = drafts.prefix_containment(keys & (kernels.MAX_TOKENS - 1))
        split = kernels.split_of(sums_p, contained)
        inside = float(contained[split])
    raised, raise_level = kernels.raise_level(sums_p, sums_q, split, inside)
    capped, cap_level = kernels.cap_level(sums_p, sums_q, split, 1.0 - inside)
    return SortedPlan(
        keys, sums_p, sums_q, contained, split, raised, raise_level, capped, cap_level
    )


def decide(
    p: Vector,
    drafts: WithReplacement | WithoutReplacement,
    tokens: NDArray[np.int64],
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
    plan = sorted_plan(p, drafts)
    positions = np.searchsorted(plan.keys, _keys_of(p, q, tokens))
    if isinstance(drafts, WithReplacement):
        chosen = _first_in_block(plan, positions, drafts.num_drafts, uniforms)
    else:
        chosen = _pivotal_in_block(plan, positions, drafts, uniforms)
    token = int(tokens[chosen])
    if p[token] > 0.0:
        if positions[chosen] >= plan.split:  # p_I <= p there
            return token
        if uniforms.acceptance * max(p[token], plan.raise_level * q[token]) < p[token]:
            return token
    drawn = kernels.residual_token(
        p, q, plan.keys, plan.sums_p, plan.sums_q, plan.capped, plan.cap_level, uniforms.residual
    )
    return possible_token(p, tokens) if drawn < 0 else int(drawn)


def _keys_of(p: Vector, q: Vector, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    bits = (p[tokens] / q[tokens]).view(np.int64)
    keys: NDArray[np.int64] = (bits & ~np.int64(kernels.MAX_TOKENS - 1)) | tokens
    return keys


def _first_in_block(
    plan: SortedPlan, positions: NDArray[np.int64], num_drafts: int, uniforms: Uniforms
) -> int:
    top = int(positions.max())
    candidates = np.flatnonzero((positions >= plan.split) == (top >= plan.split))
    first = int(candidates[0])
    # No hull is needed if the first candidate is the topmost, or tied with it.
    if positions[first] == top or top < plan.raised or positions[first] >= plan.capped:
        return first
    contained = plan.contained
    if contained is None:
        low = top < plan.split
        first, last = (0, plan.split) if low else (plan.split, plan.keys.size)
        contained = kernels.powers(plan.sums_q, first, last, num_drafts)
    start, _ = _block(plan, contained, uniforms.mixing, top)
    return int(candidates[np.flatnonzero(positions[candidates] >= start)[0]])


def _pivotal_in_block(
    plan: SortedPlan,
    positions: NDArray[np.int64],
    drafts: WithoutReplacement,
    uniforms: Uniforms,
) -> int:
    assert plan.contained is not None
    top = int(positions.max())
    candidates = np.flatnonzero((positions >= plan.split) == (top >= plan.split))
    if candidates.size == 1:
        return int(candidates[0])
    start, stop = _block(plan, plan.contained, uniforms.mixing, top)
    w = drafts.q[plan.keys & (kernels.MAX_TOKENS - 1)]
    above = np.append(np.cumsum(w[::-1])[::-1], 0.0)
    shares = block_rule(drafts, positions, w, above)(start, stop)
    reached = np.cumsum(shares)
    chosen = int(np.searchsorted(reached, uniforms.draft * reached[-1], side="right"))
    return min(chosen, int(np.flatnonzero(shares > 0)[-1]))


def _block(plan: SortedPlan, contained: Vector, level: float, top: int) -> tuple[int, int]:
    start, stop = kernels.block_of(
        plan.sums_p, plan.sums_q, contained, level,
        plan.split, plan.raised, plan.raise_level, plan.capped, plan.cap_level, top,
    )  # fmt: skip
    return int(start), int(stop)
