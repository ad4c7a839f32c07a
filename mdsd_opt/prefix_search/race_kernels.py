r"""Race of K drafts without replacement: the probability that a prefix holds all of them.

Give every token an exponential clock of rate q_i; the drafts are the first K to ring. All of them
lie in H unless a clock outside rings while fewer than K inside have rung:

.. math:: 1 - Q(H) = (1 - q(H)) \sum_{n<K} S_n(H), \qquad
          S_n(H) = \int_0^\infty e^{-(1-q(H)) t} \Pr(N_t(H) = n)\,dt

with N_t(H) the number of clocks in H that have rung. S_0 and S_1 have closed forms. For the others
the law of N_t is kept at the nodes of a quadrature in t and tokens are added to it: one at a time,
or many light ones at once by their power sums. All terms are positive.

A race is one table with a row of nodes for every quantity. A prefix is `rang`, with
rang[n, node] = Pr(N_t = n) for n < K, and the number `once` = S_1.

With t = exp(x - exp(-x)) the trapezoid rule in x converges exponentially once its step resolves
the fall of :math:`\Pr(N_t < K)`. The time of the K-th ring is a sum of K exponential times, so
its relative width is at least :math:`1/\sqrt K`, and the step shrinks like that. Until it, the
clocks left ring at the rate `slowest` = 1 - (K - 1 largest q) at least, so it is at most a Gamma(K)
time over `slowest`, which ends the range.
"""

from __future__ import annotations

from math import comb, factorial

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.sum_kernels import sum_of_others
from mdsd_opt.prefix_search.weigh_kernels import LOWEST_EXPONENT, scaled_exp2

#: First x for integrands that begin like t**2 (t = 1e-5), and like a constant (t = 1e-17).
FROM_SQUARE = -2.2
FROM_CONSTANT = -3.6

#: Largest `race_work`: some ten seconds a pass, about a minute with a certificate.
MAX_RACE_WORK = 2.5e10

#: Logarithm at which times and rates of float64 end: no rate is slower than exp(-_LAST).
_LAST = 700.0


@kernel(inner=True)
def _grid(slowest: float, num_drafts: int, first: float, checks: bool) -> tuple[float, float, int]:
    """Step in x, first x and number of nodes; absolute error of Q and of inclusion about 1e-14.

    With `checks` the nodes are for checks of others: they are different, and twice as many.
    """
    k = float(num_drafts)
    # A Gamma(K) time is longer than this with a probability of 1e-14.
    end = (k + 8.0 * np.sqrt(k) + 22.0) / slowest
    step = 0.23 if k <= 4 else min(0.2, 0.57 / np.sqrt(k))
    if checks:
        end = (3.0 * k + 40.0) / slowest
        step = 0.31 / np.sqrt(k + 4.0)
        first -= 0.29
    size = int(np.ceil((min(np.log(end), _LAST) - first) / step)) + 1
    return step, first, size + -size % 4  # whole vectors; more nodes do no harm


@kernel
def race_work(tokens: int, num_drafts: int, slowest: float) -> float:
    """Number of tokens x drafts x nodes, of tokens added one at a time; 0 for closed forms."""
    return float(tokens) * num_drafts * race_terms(slowest, num_drafts, False)[3]


@kernel
def race_nodes(
    slowest: float, num_drafts: int, first: float, checks: bool
) -> tuple[Vector, Vector]:
    """Times and weights, increasing; with `checks` other, finer ones."""
    step, first, size = _grid(slowest, num_drafts, first, checks)
    times = np.empty(size)
    weights = np.empty(size)
    fill_nodes(times, weights, step, first)
    return times, weights


@kernel(inner=True)
def fill_nodes(times: Vector, weights: Vector, step: float, first: float) -> None:
    """Write the nodes x = first, first + step, ..."""
    for j in range(times.size):
        x = first + step * j
        times[j] = np.exp(x - np.exp(-x))
        weights[j] = step * times[j] * (1.0 + np.exp(-x))


#: Number of power sums kept of light tokens; the omitted ones are below 1e-13.
MOMENTS = 5

#: Probability below which laws of the number of new tokens that rang are cut off.
_NEGLIGIBLE = 1e-30

#: Most drafts for which one more token changes the whole law; beyond, it changes the law where that
#: is not below the other number.
_WHOLE_LAW = 24
_OUT_OF_BAND = 1e-25

#: Least probability that is kept: arithmetic is slow where float64 ends.
_FLOOR = 1e-140

_LOG2_E = 1.4426950408889634
_UNSCALE = 2.0**-52

# Rows of the table of a race.
_TIMES = 0
_WEIGHTS = 1
_LIGHT = 2  # (light_rate t)^r for r = 1 ... MOMENTS
_SILENT = _LIGHT + MOMENTS  # and all below: room to work in
_COUNTED = _SILENT + 1
_POWER_SUMS = _COUNTED  # from the first power on
_NEW = _POWER_SUMS + MOMENTS + 1
RACE_ROWS = _NEW  # and K more


def _power_sum_coefficients() -> Floats:
    r"""Coefficients c[m, r] of :math:`(e^x - 1)^m = \sum_{r \ge m} c_{mr} x^r`."""
    table = np.zeros((MOMENTS + 1, MOMENTS + 1))
    for m in range(MOMENTS + 1):
        for r in range(m, MOMENTS + 1):
            surjections = sum((-1) ** (m - i) * comb(m, i) * i**r for i in range(m + 1))
            table[m, r] = surjections / factorial(r)
    return table


_COEFFICIENTS = _power_sum_coefficients()


@kernel(inner=True)
def rates_beside(q: Vector, likeliest: Integers, num_drafts: int) -> tuple[float, float]:
    """Rate of all tokens but the likeliest K - 1, the slowest that matters, and of all but one.

    `likeliest` holds them in descending order, and is put in another.
    """
    others = 0.0
    for j in range(1, num_drafts - 1):
        others += q[likeliest[j]]
    slowest = sum_of_others(q, likeliest, num_drafts - 1)
    return slowest, others + slowest


@kernel
def lightness(num_drafts: int) -> float:
    """Factor between the slowest rate that matters and the largest rate of a light token.

    The more drafts, the later the last of them rings, and the more the moments leave out. For
    K > 64 half of this suffices for the looser bound on the error.
    """
    return 128.0 * max(8.0, min(num_drafts, 64.0), num_drafts / 2)


@kernel
def most_heavy(vocab_size: int, num_drafts: int) -> int:
    """Upper bound of the number of tokens that have to be added one at a time."""
    return min(vocab_size, int(lightness(num_drafts)) + num_drafts)


@kernel
def race_terms(slowest: float, num_drafts: int, checks: bool) -> tuple[float, float, float, int]:
    """Largest rate of light tokens, and step, first x and number of the nodes: none for K <= 2.

    With `checks` they are those of another, finer race: what both say of Q differs by about the
    error of the coarser of them.
    """
    step, first, size = _grid(slowest, num_drafts, FROM_SQUARE, checks)
    light_rate = slowest / lightness(num_drafts) * (0.25 if checks else 1.0)
    return light_rate, step, first, size if num_drafts > 2 else 0


@kernel(inner=True)
def fill_terms(race: Matrix, light_rate: float, step: float, first: float) -> None:
    """Write the table of a race of such terms, of shape (RACE_ROWS + K, nodes)."""
    times = race[_TIMES]
    fill_nodes(times, race[_WEIGHTS], step, first)
    for j in range(times.size):
        power = 1.0
        for r in range(MOMENTS):
            power *= light_rate * times[j]
            race[_LIGHT + r, j] = power


@kernel(inner=True)
def start_race(rang: Matrix, num_drafts: int) -> None:
    """Set the law for no token: no clock has rung."""
    for n in range(num_drafts):
        for j in range(rang.shape[1]):
            rang[n, j] = 1.0 if n == 0 else 0.0


@kernel(contract=True, inner=True)
def _silence(rate: float, race: Matrix, row: int) -> None:
    """Write exp(-rate t) at every node to a row."""
    factor = -rate * _LOG2_E
    for j in range(race.shape[1]):
        y = factor * race[_TIMES, j]
        y = LOWEST_EXPONENT if y < LOWEST_EXPONENT else y
        silent = scaled_exp2(y) * _UNSCALE
        race[row, j] = silent if silent > _FLOOR else _FLOOR


@kernel(inner=True)
def add_token(
    rang: Matrix, once: float, num_drafts: int, q: float, others: float, race: Matrix
) -> float:
    """Add one token to the prefix; return the new `once`."""
    if num_drafts > 2:
        _ring(rang, num_drafts, q, race)
    return once + q / (others if q > 0.5 else 1.0 - q)  # 1 - q where it does not cancel


@kernel(inner=True)
def _ring(rang: Matrix, num_drafts: int, q: float, race: Matrix) -> None:
    """Update the law of N_t by one more token.

    Of many drafts it is updated only where Pr(N_t = n) or Pr(N_t = n - 1) is not negligible. The
    later, the more have rung: these nodes are a run for each n, and both its ends move on with n.
    For n that no node has reached they are none, or what rounding left: the end moves back, too.
    With its mean below K the deviation of N_t is below sqrt(K), so that the runs hold about sqrt(K)
    of the K numbers at each node.
    """
    nodes = race.shape[1]
    _silence(q, race, _SILENT)
    silent = race[_SILENT]
    in_band = num_drafts > _WHOLE_LAW
    begin = 0
    end = nodes
    if in_band:
        while begin < nodes and rang[num_drafts - 2, begin] < _OUT_OF_BAND:
            begin += 1
    for n in range(num_drafts - 1, 0, -1):
        if in_band:
            while begin > 0 and rang[n - 1, begin - 1] >= _OUT_OF_BAND:
                begin -= 1
            while end > begin and max(rang[n, end - 1], rang[n - 1, end - 1]) < _OUT_OF_BAND:
                end -= 1
            while end < nodes and max(rang[n, end], rang[n - 1, end]) >= _OUT_OF_BAND:
                end += 1  # the last nodes have few, and had nothing to say of more
        _mix(rang[n, begin:end], rang[n - 1, begin:end], silent[begin:end])
    none = rang[0, :end]
    for j in range(none.size):
        none[j] = max(none[j] * silent[j], _FLOOR)


@kernel(contract=True, inner=True)
def _mix(exactly: Vector, fewer: Vector, silent: Vector) -> None:
    """Update the law at one number, from that at one fewer."""
    for j in range(exactly.size):
        mixed = fewer[j] + silent[j] * (exactly[j] - fewer[j])
        exactly[j] = mixed if mixed > _FLOOR else _FLOOR


@kernel(inner=True)
def light_once_gain(moments: Vector, light_rate: float) -> float:
    r"""Sum of q / (1 - q), a geometric series, over light tokens: see `add_light_tokens`."""
    gain = 0.0
    power = 1.0
    for r in range(MOMENTS):
        power *= light_rate
        gain += power * moments[r]
    return gain


@kernel(contract=True, inner=True)
def add_light_tokens(
    rang: Matrix, num_drafts: int, moments: Vector, light_rate: float, race: Matrix
) -> None:
    r"""Add tokens given by the sums of :math:`(q/\text{light\_rate})^r`, r = 1 ... MOMENTS.

    The odds of a token having rung are :math:`e^{qt} - 1`. Their power sums give their elementary
    symmetric polynomials (Newton), which are the law of the number of new tokens that rang, up to
    the factor Pr(none).
    """
    nodes = race.shape[1]
    for m in range(1, min(MOMENTS + 1, num_drafts)):
        for j in range(nodes):
            race[_POWER_SUMS + m, j] = 0.0
        for r in range(m, MOMENTS + 1):
            factor = _COEFFICIENTS[m, r] * moments[r - 1]
            for j in range(nodes):
                race[_POWER_SUMS + m, j] += factor * race[_LIGHT + r - 1, j]
    _silence(light_rate * moments[0], race, _NEW)
    terms = num_drafts
    largest_before = np.inf
    for n in range(1, num_drafts):
        for j in range(nodes):
            race[_NEW + n, j] = 0.0
        for m in range(1, min(n, MOMENTS) + 1):
            sign = (1.0 if m % 2 == 1 else -1.0) / n
            for j in range(nodes):
                race[_NEW + n, j] += sign * race[_POWER_SUMS + m, j] * race[_NEW + n - m, j]
        largest = 0.0
        for j in range(nodes):
            new = race[_NEW + n, j]
            race[_NEW + n, j] = new if new > _FLOOR else _FLOOR
            largest = new if new > largest else largest
        if n > MOMENTS and largest < _NEGLIGIBLE and largest <= largest_before:
            terms = n
            break
        largest_before = largest
    for n in range(num_drafts - 1, -1, -1):
        for j in range(nodes):
            none_new = rang[n, j] * race[_NEW, j]
            rang[n, j] = none_new if none_new > _FLOOR else _FLOOR
        for m in range(1, min(n + 1, terms)):
            for j in range(nodes):
                rang[n, j] += rang[n - m, j] * race[_NEW + m, j]


@kernel(reassociate=True, inner=True)
def _integral(race: Matrix) -> float:
    total = 0.0
    for j in range(race.shape[1]):
        total += race[_SILENT, j] * race[_COUNTED, j]
    return total


@kernel(contract=True, inner=True)
def escape(
    rang: Matrix, once: float, outside: float, race: Matrix, num_drafts: Integers, count: int,
    probabilities: Vector,
) -> None:  # fmt: skip
    """Write 1 - Q(H) for the first `count` numbers of drafts, ascending; `outside` = 1 - q(H)."""
    nodes = race.shape[1]
    most = num_drafts[count - 1]
    if most > 2:
        _silence(outside, race, _SILENT)
        for j in range(nodes):
            race[_SILENT, j] *= race[_WEIGHTS, j]
            race[_COUNTED, j] = 0.0
    reached = 1.0
    i = 0
    for n in range(most):
        if n == 1:
            reached += once
        elif n > 1:
            for j in range(nodes):
                race[_COUNTED, j] += rang[n, j]
        if num_drafts[i] == n + 1:
            total = reached + _integral(race) if n > 1 else reached
            while i < count and num_drafts[i] == n + 1:
                # Where q spans more than the numbers do, the sum may be anything.
                probabilities[i] = min(total * outside, 1.0)
                i += 1
