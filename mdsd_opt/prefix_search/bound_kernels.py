"""What a prefix that ends inside a group of tokens can reach, from the group's ends alone.

Tokens in order of their ratio draw a convex curve of p against q, nowhere below its tangents at the
group's ends, whose slopes are the extreme ratios. These meet in the kink. Q is a power of q, so
that -Q is concave, or it is q-convex and below its chord. Either way, whatever P - s Q takes below
a line between the ends it takes there at the ends or at the kink: a group whose kink is not low
enough is closed for good.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.numba_cache import kernel


@kernel(inner=True)
def power(base: float, exponent: int) -> float:
    """min(base, 1) ** exponent: Q of a prefix with q(H) = base, for draws with replacement."""
    base = min(base, 1.0)
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel(inner=True)
def kink(
    lowest: float, highest: float, ratio_error: float, p_before: float, p_inside: float,
    q_before: float, q_inside: float,
) -> tuple[float, float, float]:  # fmt: skip
    """P and q at the kink of a group, and the share of the group's q up to there.

    The group holds masses p_inside and q_inside > 0 at ratios in [lowest, highest], known up to a
    factor 1 + ratio_error.
    """
    lowest *= 1.0 - ratio_error
    highest *= 1.0 + ratio_error
    q_kink = q_inside
    if highest < np.inf:
        q_kink = (highest * q_inside - p_inside) / (highest - lowest)
        q_kink = min(max(q_kink, 0.0), q_inside)
    return p_before + lowest * q_kink, q_before + q_kink, q_kink / q_inside


@kernel(inner=True)
def contained_at(exponent: int, q_mass: float, share: float, before: float, after: float) -> float:
    """At least Q at the kink, at q(H) = q_mass and this share of the group's q.

    `exponent` is the K of the power that Q is, or zero for the chord of Q from `before` the group
    to `after` it. The kink is the same for every K.
    """
    if exponent > 0:
        return power(q_mass, exponent)
    return before + (after - before) * share
