r"""How a prefix of tokens fares in the race of K drafts without replacement.

Give every token an exponential clock of rate q_i; the drafts are the first K to ring. All of them
lie in H unless a clock outside rings while fewer than K inside have rung:

.. math:: 1 - Q(H) = (1 - q(H)) \sum_{n<K} S_n(H), \qquad
          S_n(H) = \int_0^\infty e^{-(1-q(H)) t} \Pr(N_t(H) = n)\,dt

with N_t(H) the number of clocks in H that have rung. S_0 and S_1 have closed forms. For the others
the law of N_t is kept at the nodes of a quadrature in t and tokens are added to it: one at a time,
or many light ones at once by their power sums. All terms are positive.
"""

from __future__ import annotations

from math import comb, factorial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.kernels.exp2_kernels import LOWEST_EXPONENT, scaled_exp2
from mdsd_opt.kernels.race_quadrature_kernels import FROM_SQUARE, race_nodes
from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint16]

#: Power sums kept of light tokens; what they leave out is below 1e-13.
MOMENTS = 5

#: Laws of the number of new tokens that rang end where they are below this.
_NEGLIGIBLE = 1e-30

#: No probability is kept below this: arithmetic is slow where float64 ends.
_FLOOR = 1e-140

_LOG2_E = 1.4426950408889634
_UNSCALE = 2.0**-52


def _power_sum_coefficients() -> NDArray[np.float64]:
    r"""Coefficients c[m, r] of :math:`(e^x - 1)^m = \sum_{r \ge m} c_{mr} x^r`."""
    table = np.zeros((MOMENTS + 1, MOMENTS + 1))
    for m in range(MOMENTS + 1):
        for r in range(m, MOMENTS + 1):
            surjections = sum((-1) ** (m - i) * comb(m, i) * i**r for i in range(m + 1))
            table[m, r] = surjections / factorial(r)
    return table


_COEFFICIENTS = _power_sum_coefficients()


class Race(NamedTuple):
    """What does not depend on the prefix."""

    times: Vector
    weights: Vector
    light_rate: float
    light_powers: NDArray[np.float64]  # (m, r, node): coefficient of moment r in power sum m
    others: float  # sum of all q but the largest
    scratch: Matrix  # room for MOMENTS + 1 + K rows of nodes


class State(NamedTuple):
    """A prefix: rang[n, node] = Pr(N_t = n), and once[0] = S_1."""

    rang: Matrix
    once: Vector


@kernel
def most_heavy(vocab_size: int, num_drafts: int) -> int:
    """No more tokens than this have to be added one at a time."""
    return min(vocab_size, int(_lightness(num_drafts)) + num_drafts)


@kernel
def _lightness(num_drafts: int) -> float:
    """By how much the rate of a light token is less than the slowest rate that matters.

    The more drafts, the later the last of them rings, and the more the moments leave out. For
    K > 64 half of this suffices for the looser bound on the error.
    """
    return 128.0 * max(8.0, min(num_drafts, 64.0), num_drafts / 2)


@kernel
def new_race(slowest: float, others: float, num_drafts: int) -> Race:
    """Quadrature for rates between `slowest` (1 minus the K-1 largest q) and one."""
    if num_drafts > 2:
        times, weights = race_nodes(slowest, num_drafts, FROM_SQUARE)
    else:  # closed forms
        times, weights = np.empty(0), np.empty(0)
    size = times.size
    light_rate = slowest / _lightness(num_drafts)
    light_powers = np.zeros((MOMENTS + 1, MOMENTS + 1, size))
    for m in range(1, MOMENTS + 1):
        for r in range(m, MOMENTS + 1):
            for j in range(size):
                light_powers[m, r, j] = _COEFFICIENTS[m, r] * (light_rate * times[j]) ** r
    scratch = np.empty((MOMENTS + 1 + num_drafts, size))
    return Race(times, weights, light_rate, light_powers, others, scratch)


@kernel
def empty_prefix(race: Race, num_drafts: int) -> State:
    """No token, no clock has rung."""
    rang = np.zeros((num_drafts, race.times.size))
    rang[0, :] = 1.0
    return State(rang, np.zeros(1))


@kernel
def copy_state(state: State) -> State:
    """Copy of a state, to be advanced by itself."""
    return State(state.rang.copy(), state.once.copy())


@kernel(contract=True)
def _silence(rate: float, race: Race, probabilities: Vector) -> None:
    """exp(-rate t) at every node."""
    factor = -rate * _LOG2_E
    for j in range(race.times.size):
        y = factor * race.times[j]
        y = LOWEST_EXPONENT if y < LOWEST_EXPONENT else y
        silent = scaled_exp2(y) * _UNSCALE
        probabilities[j] = silent if silent > _FLOOR else _FLOOR


@kernel
def once_gain(q: float, others: float) -> float:
    """q / (1 - q), with 1 - q as the sum of the others where it would cancel."""
    return q / (others if q > 0.5 else 1.0 - q)


@kernel(contract=True)
def add_token(state: State, q: float, race: Race) -> None:
    """Add one token to the prefix."""
    rang = state.rang
    state.once[0] += once_gain(q, race.others)
    nodes = race.times.size
    if nodes == 0:
        return
    silent = race.scratch[0]
    _silence(q, race, silent)
    for n in range(rang.shape[0] - 1, 0, -1):
        for j in range(nodes):
            exactly = rang[n - 1, j] + silent[j] * (rang[n, j] - rang[n - 1, j])
            rang[n, j] = exactly if exactly > _FLOOR else _FLOOR
    for j in range(nodes):
        none = rang[0, j] * silent[j]
        rang[0, j] = none if none > _FLOOR else _FLOOR


@kernel(contract=True)
def add_light_tokens(state: State, moments: Vector, race: Race) -> None:
    r"""Add tokens given by the sums of :math:`(q/\text{light\_rate})^r`, r = 1 ... MOMENTS.

    The odds of a token having rung are :math:`e^{qt} - 1`. Their power sums give their elementary
    symmetric polynomials (Newton), which are the law of the number of new tokens that rang, up to
    the factor Pr(none).
    """
    power = 1.0
    for r in range(MOMENTS):  # q / (1 - q) is a geometric series
        power *= race.light_rate
        state.once[0] += power * moments[r]
    nodes = race.times.size
    if nodes == 0:
        return
    rang = state.rang
    num_drafts = rang.shape[0]
    power_sums = race.scratch[: MOMENTS + 1]
    new = race.scratch[MOMENTS + 1 : MOMENTS + 1 + num_drafts]
    for m in range(1, min(MOMENTS + 1, num_drafts)):
        power_sums[m] = 0.0
        for r in range(m, MOMENTS + 1):
            for j in range(nodes):
                power_sums[m, j] += race.light_powers[m, r, j] * moments[r - 1]
    _silence(race.light_rate * moments[0], race, new[0])
    terms = num_drafts
    for n in range(1, num_drafts):
        new[n] = 0.0
        for m in range(1, min(n, MOMENTS) + 1):
            sign = (1.0 if m % 2 == 1 else -1.0) / n
            for j in range(nodes):
                new[n, j] += sign * power_sums[m, j] * new[n - m, j]
        for j in range(nodes):
            new[n, j] = new[n, j] if new[n, j] > _FLOOR else _FLOOR
        if n > MOMENTS and new[n].max() < _NEGLIGIBLE and new[n].max() <= new[n - 1].max():
            terms = n
            break
    for n in range(num_drafts - 1, -1, -1):
        for j in range(nodes):
            none_new = rang[n, j] * new[0, j]
            rang[n, j] = none_new if none_new > _FLOOR else _FLOOR
        for m in range(1, min(n + 1, terms)):
            for j in range(nodes):
                rang[n, j] += rang[n - m, j] * new[m, j]


@kernel(contract=True)
def escape(
    state: State, outside: float, race: Race, num_drafts: Integers, probabilities: Vector
) -> None:
    """1 - Q(H) for every number of drafts, `outside` = 1 - q(H)."""
    nodes = race.times.size
    counted = race.scratch[0]
    silent = race.scratch[1]
    _silence(outside, race, silent)
    for j in range(nodes):
        silent[j] *= race.weights[j]
        counted[j] = 0.0
    for i in range(num_drafts.size):
        probabilities[i] = 1.0
        if num_drafts[i] > 1:
            probabilities[i] += state.once[0]
    for n in range(2, state.rang.shape[0]):
        for j in range(nodes):
            counted[j] += state.rang[n, j]
        for i in range(num_drafts.size):
            if num_drafts[i] == n + 1:
                for j in range(nodes):
                    probabilities[i] += silent[j] * counted[j]
    for i in range(num_drafts.size):
        probabilities[i] *= outside
