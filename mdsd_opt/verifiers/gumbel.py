r"""Gumbel-max list sampling [GLS]: drafts and output race on shared exponentials.

The joint law of drafts and output is known for few tokens: on the clock of the output, and on the
others, which are independent given its time, an exponential of rate K.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar

from mdsd_opt.base.arrays import Vector
from mdsd_opt.drafts import DraftScheme, WithReplacement, count_power
from mdsd_opt.verifiers.shared_noise import (
    MAX_TERMS,
    ExponentialSum,
    SharedNoise,
    first_on_clock,
    integral,
    one_minus,
    product,
)


class GumbelList(SharedNoise):
    r"""Verify by clocks: X^k arrives first at rates q on clock k, Y at rates p on the earliest.

    With :math:`S_i^k` independent exponentials, :math:`X^k = \arg\min_i S_i^k / q_i` and :math:`Y =
    \arg\min_i \min_k S_i^k / p_i`: the drafts are i.i.d. from q and Y follows p. The method draws
    its drafts itself, so use `simulate`. Not optimal; the acceptance rate is at least
    :math:`\sum_j K / (\sum_i \max(p_i/p_j, q_i/q_j) + (K-1)/p_j)`. Cost O(K V) a sample. Source:
    [GLS].

    For few tokens, about :math:`K V (V+1)^K` up to 20,000, the joint law of drafts and output is
    computed in closed form. Given drafts from elsewhere the output is then drawn from its law given
    these drafts, which is lossless for drafts with replacement.
    """

    name: ClassVar[str] = "gumbel"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)
    one_clock: ClassVar[bool] = False

    def chance(self, rivals: Vector, num_drafts: int) -> Vector:
        return num_drafts / (rivals + (num_drafts - 1))

    def closed_rate(self, p: Vector, q: Vector, num_drafts: int) -> float | None:
        is_short = p.size * count_power(p.size + 1, num_drafts - 1) <= MAX_TERMS
        return float(acceptance(p.tolist(), q.tolist(), num_drafts)) if is_short else None

    def masses(self, p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any] | None:
        is_short = len(drafts) * len(p) * count_power(len(p) + 1, len(drafts)) <= MAX_TERMS
        return joint_masses(p, q, drafts) if is_short else None


def joint_masses(p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any]:
    """Joint probability Pr(X = drafts, Y = j) for every token j; about K V (V + 1)^K operations.

    p and q are floats or Fractions, and drafts have q > 0.
    """
    k, counts = len(drafts), Counter(drafts)
    one = p[0] * 0 + 1
    alone = {x: first_on_clock(p, q, (x,), None) for x in counts}
    others = {  # of the clocks beside one that has the draft
        x: reduce(product, [alone[y] for y in (counts - Counter([x])).elements()], {0 * one: one})
        for x in counts
    }
    masses = []
    for j, mass in enumerate(p):
        laws = (
            integral(product(first_on_clock(p, q, (x,), j), others[x]), k) * count
            for x, count in counts.items()
        )
        masses.append(mass * sum(laws, 0 * one) / k if mass > 0 else mass)
    return masses


def acceptance(p: Sequence[Any], q: Sequence[Any], num_drafts: int) -> Any:
    """Probability that some clock has Y as its draft; V (V + 1)^(K - 1) steps."""
    total = p[0] * 0 + 1
    for j, mass in enumerate(p):
        missed: ExponentialSum = {0 * mass: 0 * mass + 1}
        if mass > 0 and q[j] > 0:
            missed = one_minus(first_on_clock(p, q, (j,), j))
            other = one_minus(first_on_clock(p, q, (j,), None))
            missed = reduce(product, [other] * (num_drafts - 1), missed)
        total -= mass * integral(missed, num_drafts)
    return total


VERIFIER = GumbelList()
