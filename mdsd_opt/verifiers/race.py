r"""Lists from one race: the K first of q and the first of p, on the same exponentials.

Given that the output is Y = j, at time t (exponential of rate 1, for every j), the clock of j shows
:math:`p_j t` and that of every other token :math:`p_i t` plus a fresh exponential. So token i is
ahead of j in the race of q with probability :math:`1 - e^{-t c_{ij}}`, independently of the others,

.. math:: c_{ij} = (q_i p_j / q_j - p_i)_+ , \qquad
          A_K = \sum_j p_j \int_0^\infty e^{-t} \Pr[N_j(t) < K]\,dt ,

where :math:`N_j(t)` counts the tokens ahead. A Poisson number of the same mean :math:`t \ell_j`,
:math:`\ell_j = \sum_i c_{ij}`, is larger (stochastically), which gives

.. math:: M_K = \sum_j p_j \Bigl[1 - \Bigl(\frac{\ell_j}{1 + \ell_j}\Bigr)^K\Bigr] \le A_K ,

with equality at K = 1; one sort gives it for all K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Vector
from mdsd_opt.drafts import DraftScheme, WithoutReplacement, count_power
from mdsd_opt.verifiers.shared_noise import MAX_TERMS, SharedNoise, first_on_clock, integral

#: Most steps of the integrals of a rate: pairs of tokens, times nodes, times K.
_MAX_STEPS = 10**8

#: Nodes t and weights of an integral from 0 to infinity by t = exp(pi/2 sinh x), which sees rates
#: of all magnitudes: where the integrand is 1 - e^{-ct} times e^{-t}, to about 1e-14.
_X = np.arange(-4.5, 3.0, 1 / 16)
_NODES = np.exp(np.pi / 2 * np.sinh(_X))
_WEIGHTS = np.pi / 32 * np.cosh(_X) * _NODES * np.exp(-_NODES)


class RaceList(SharedNoise):
    r"""Output the first of p, draft the K first of q: both races run on one exponential a token.

    With independent exponentials :math:`E_i`, the output is :math:`Y = \arg\min_i E_i / p_i`, the
    plain sample of p by these numbers, whatever the drafter is. The drafts are the K tokens of
    least :math:`E_i / q_i`, which is a draw without replacement from q; Y is accepted if it is one
    of them. The verifier needs no q, and a seed gives the same text with any drafter or none. Not
    optimal: the acceptance rate lies between :math:`M_K = \sum_j p_j [1 - (1 - 1/w_j)^K]` and the
    optimum, :math:`w_j = \sum_i \max(p_i, q_i p_j / q_j)`. The method draws its drafts itself, so
    use `simulate`. Cost O(V) a sample. Source: this package; [GLS] races on K clocks for each
    token, exponential races for one draft are in [ERSD].

    The acceptance rate is an integral up to about V = 500, an `Estimate` by simulation above. For
    few tokens, about :math:`V^2 2^K` up to 20,000, the law of the output given a set of drafts is
    computed in closed form. Given drafts from elsewhere the output is then drawn from it, which is
    lossless for drafts without replacement.
    """

    name: ClassVar[str] = "race"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithoutReplacement,)
    one_clock: ClassVar[bool] = True

    def chance(self, rivals: Vector, num_drafts: int) -> Vector:
        missed = np.log1p(-np.minimum(1.0 / rivals, 1.0 - 1e-16))
        return -np.expm1(num_drafts * missed)

    def closed_rate(self, p: Vector, q: Vector, num_drafts: int) -> float | None:
        draftable = int(np.count_nonzero(q > 0))
        if num_drafts >= draftable:
            return float(p[q > 0].sum())
        is_short = draftable**2 * _NODES.size * num_drafts <= _MAX_STEPS
        return _integrated_rate(p, q, num_drafts) if is_short else None

    def masses(self, p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any] | None:
        is_short = len(p) ** 2 * count_power(2, len(drafts)) <= MAX_TERMS
        return joint_masses(p, q, drafts) if is_short else None


def _integrated_rate(p: Vector, q: Vector, num_drafts: int) -> float:
    """Rate A_K: the chances of 0 .. K - 1 tokens ahead, token by token, at every node."""
    drafted = q > 0
    p, q = p[drafted], q[drafted]
    possible = np.flatnonzero(p > 0)
    ratio = p[possible] / q[possible]
    ahead = np.zeros((possible.size, _NODES.size, num_drafts))
    ahead[..., 0] = 1.0
    for token in range(p.size):
        excess = np.maximum(q[token] * ratio - p[token], 0.0)
        excess[possible == token] = 0.0
        arrived = -np.expm1(-np.outer(excess, _NODES))[..., None]
        passed = ahead * arrived
        ahead -= passed
        ahead[..., 1:] += passed[..., :-1]
    return min(float(p[possible] @ (ahead.sum(axis=2) @ _WEIGHTS)), 1.0)


def joint_masses(p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any]:
    """Joint probability that the drafts are this set and Y = j, for every j; about V^2 2^K terms.

    p and q are floats or Fractions, and drafts have q > 0.
    """
    return [
        mass * integral(first_on_clock(p, q, drafts, j), 1) if mass > 0 else mass
        for j, mass in enumerate(p)
    ]


VERIFIER = RaceList()
