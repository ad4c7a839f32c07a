r"""Q(H), the chance that all drafts are in H, at its largest and smallest over the unknown tail.

With replacement it is :math:`q(H)^K`. Without, give every token an exponential clock of rate
q: H contains the drafts if K of its clocks ring before the first one outside. With T the time of
that, exponential of rate 1 - q(H), the number of clocks of H that rang by T is a sum of Bernoulli
variables of chances :math:`1 - e^{-q_i T}`. Of a given mass within H it is stochastically the
larger, the more evenly the mass is spread: at most a Poisson variable (no token of the tail is met
twice), at least that of as many tokens as possible at their cap and one with the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.batch.top_logprobs.subsets import Subsets

Vector = NDArray[np.float64]

#: Step of the trapezoidal rule in log t. The integrand is analytic for |Im log t| < pi/2, so the
#: error is about exp(-pi^2 / step).
_STEP = 0.28

#: Rates outside H below this are taken for it: less is contained then, by less than it.
_LEAST_RATE = 1e-12


def with_replacement(subsets: Subsets, counts: list[int], most: bool) -> NDArray[np.float64]:
    """Q of every subset and K, shape (R, C + 1, len(counts))."""
    inside = _mass_inside(subsets, most)
    return np.minimum(inside, 1.0)[..., None] ** np.array(counts)


def without_replacement(subsets: Subsets, counts: list[int], most: bool) -> NDArray[np.float64]:
    """Q of every subset and K, shape (R, C + 1, len(counts)); no less, or no more, than it."""
    outside = np.maximum(_mass_outside(subsets, most), 0.0)
    rate = np.maximum(outside, _LEAST_RATE)
    t = _nodes(float(rate.min()))
    # Pr(n clocks of H rang by t), of n < K: (R, K, T)
    rang = _rang_at_first(subsets, t, max(counts), most)
    contained = np.empty((*outside.shape, len(counts)))
    last = np.array(counts) - 1
    for column in range(outside.shape[1]):
        if column:
            rang = _with_token(rang, subsets.common_q[column - 1], t)
        density = rate[:, column, None] * t * np.exp(-rate[:, column, None] * t) * _STEP
        fewer = np.cumsum(np.einsum("rkt,rt->rk", rang, density), axis=1)
        contained[:, column] = 1.0 - fewer[:, last]
    # Nothing is outside: the drafts are in H, however few they are.
    surely = outside <= (_LEAST_RATE if most else 0.0)
    contained[surely] = 1.0
    return np.clip(contained, 0.0, 1.0)


def _mass_inside(subsets: Subsets, most: bool) -> NDArray[np.float64]:
    fixed = np.concatenate([[0.0], np.cumsum(subsets.draft_only)])[subsets.num_draft_only]
    fixed = fixed + subsets.draft_open_mass(most)
    return fixed[:, None] + np.concatenate([[0.0], np.cumsum(subsets.common_q)])


def _mass_outside(subsets: Subsets, most: bool) -> NDArray[np.float64]:
    """Summed from what is outside, never as 1 - sum."""
    rest = np.concatenate([np.cumsum(subsets.draft_only[::-1])[::-1], [0.0]])
    fixed = rest[subsets.num_draft_only] + (subsets.draft.tail - subsets.draft_open_mass(most))
    return fixed[:, None] + np.concatenate([np.cumsum(subsets.common_q[::-1])[::-1], [0.0]])


def _nodes(slowest: float) -> Vector:
    """From where no clock has rung up to where all of rate `slowest` have."""
    return np.exp(np.arange(-37.0, np.log(40.0 / slowest) + _STEP, _STEP))


def _rang_at_first(subsets: Subsets, t: Vector, num_drafts: int, most: bool) -> NDArray[np.float64]:
    """Pr(n clocks of H without its common tokens rang by t), shape (R, K, T)."""
    law = np.zeros((1, num_drafts, t.size))
    law[:, 0] = 1.0
    laws = [law]
    for q in subsets.draft_only:
        laws.append(_with_token(laws[-1], q, t))
    found = np.concatenate(laws)[subsets.num_draft_only]
    mass = subsets.draft_open_mass(most)
    tail = (_poisson if most else _at_cap)(mass, subsets.draft.cap, t, num_drafts)
    # the sum of two independent numbers
    both = np.zeros_like(found)
    for n in range(num_drafts):
        both[:, n:] += tail[:, n, None] * found[:, : num_drafts - n]
    return both


def _with_token(law: NDArray[np.float64], q: float, t: Vector) -> NDArray[np.float64]:
    hit = -np.expm1(-q * t)
    found = law * (1.0 - hit)
    found[:, 1:] += law[:, :-1] * hit
    return found


def _poisson(mass: Vector, cap: float, t: Vector, num_drafts: int) -> NDArray[np.float64]:
    """Pr(n of infinitely many small tokens rang by t)."""
    from scipy.special import gammaln, xlogy

    mean = mass[:, None, None] * t
    n = np.arange(num_drafts)[:, None]
    return np.exp(xlogy(n, mean) - mean - gammaln(n + 1.0))


def _at_cap(mass: Vector, cap: float, t: Vector, num_drafts: int) -> NDArray[np.float64]:
    """Pr(n rang by t) of as many tokens at the cap as the mass allows, and one with the rest."""
    from scipy.special import gammaln, xlogy

    full = np.floor(mass / cap) if cap else np.zeros_like(mass)
    rest = np.maximum(mass - full * cap, 0.0)
    m = full[:, None, None]
    n = np.arange(num_drafts)[:, None]
    hit = -np.expm1(-cap * t)
    # choose(m, n) hit^n (1 - hit)^(m - n), of which the last factor is exp(-cap t (m - n))
    choices = gammaln(m + 1) - gammaln(n + 1.0) - gammaln(np.maximum(m - n, 0) + 1)
    with np.errstate(over="ignore"):
        law = np.exp(choices + xlogy(n, hit) - cap * t * np.maximum(m - n, 0))
    law = np.where(n <= m, law, 0.0)
    return np.concatenate(
        [_with_token(law[i : i + 1], float(rest[i]), t) for i in range(len(mass))]
    )
