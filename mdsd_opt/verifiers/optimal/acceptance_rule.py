r"""Which draft is accepted: one rule, whatever the selection plan was made from.

1. At a mixing level s, uniform on [0, 1], take the block around the topmost draft (`hull`): an edge
   of the lower convex hull of R - s Q, where R and Q are the sums of p_I and of containment over
   the groups of the plan.
2. Select a draft in the block (`block_rules`). Over all levels, its law is exactly p_I.
3. Accept the selected z with probability min(1, p_z / p_I(z)); else the output is drawn from the
   positive part of p - p_I.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers.base import Uniforms
from mdsd_opt.verifiers.optimal.block_rules import BlockRule, block_rule
from mdsd_opt.verifiers.optimal.hull import mean_over_joins, mean_over_levels
from mdsd_opt.verifiers.optimal.plan import SelectionPlan
from mdsd_opt.verifiers.rejection import accepted

Tokens = NDArray[np.int64]


def output_token(plan: SelectionPlan, tokens: Tokens, uniforms: Uniforms) -> int:
    """The output given the drafts that were drawn at random, in draw order."""
    token = int(tokens[selected_draft(plan, tokens, uniforms)])
    if uniforms.acceptance < accepted(plan.target[token], plan.selected(token)):
        return token
    return plan.residual_token(uniforms.residual)


def selected_draft(plan: SelectionPlan, tokens: Tokens, uniforms: Uniforms) -> int:
    """Index of the draft that is selected at one mixing level."""
    undisputed = undisputed_draft(plan, tokens)
    if undisputed is not None:
        return undisputed
    block = plan.block(tokens, uniforms.mixing)
    shares = block_rule(plan.drafts, plan.drawn(tokens))(*block).tolist()
    reached = list(accumulate(shares))
    chosen = bisect_right(reached, uniforms.draft * reached[-1])
    return min(chosen, max(k for k, share in enumerate(shares) if share > 0))


def undisputed_draft(plan: SelectionPlan, tokens: Tokens) -> int | None:
    """Index of the draft that is selected whatever the block around the topmost is, if one is."""
    # Lists: there are a few drafts, and calls on arrays would take most of the time.
    places, ids = plan.places(tokens).tolist(), tokens.tolist()
    top = max(places)
    # The cut is a boundary at every level: the block lies on one side of it.
    is_above = top >= plan.split
    candidates = [k for k, place in enumerate(places) if (place >= plan.split) == is_above]
    first = candidates[0]
    rivals = [places[k] for k in candidates if ids[k] != ids[first]]
    if not rivals:
        return first
    if plan.is_replaced and (places[first] > max(rivals) or plan.on_one_level(places[first], top)):
        return first
    return None


def acceptance_probabilities(
    plan: SelectionPlan, tokens: Tokens, in_block: BlockRule | None = None
) -> NDArray[Any]:
    """Probability that each draft is accepted, over all levels; shape (K,).

    Parameters
    ----------
    plan : SelectionPlan
    tokens : ndarray of int64, shape (K,)
        The drafts that were drawn at random, in draw order.
    in_block : callable, optional
        A rule to be used within blocks in place of the scheme's, with the same law over all drafts.
    """
    drawn = plan.drawn(tokens)
    if in_block is None:
        in_block = block_rule(plan.drafts, drawn)
    if plan.is_replaced:
        shares = mean_over_joins(in_block, drawn.places, plan.death_levels)
    else:
        shares = mean_over_levels(in_block, int(drawn.places.max()), plan.death_levels)
    for k, token in enumerate(tokens.tolist()):
        shares[k] *= accepted(plan.target[token], plan.selected(token))
    return shares
