r"""Recursive rejection sampling without replacement, many sequences of rejections at a time.

After any rejections the residual is :math:`p_j \propto (p - b q)_+` for a single number b. With
:math:`T(b) = \sum (p - b q)_+` and s the inverse of the draft mass not drawn yet, the next draft,
of law s q on that rest, is rejected as token i with mass proportional to

.. math:: \min\bigl(s\,T(b)\,q_i,\ (b' q_i - p_i)_+\bigr), \qquad b' = b + s\,T(b),

and the residual after it is :math:`\propto (p - b' q)_+`. Nothing is accepted along a sequence of K
rejections with probability :math:`T(b_{K+1})`, starting from :math:`b_1 = 0`, so the acceptance
rate is :math:`1 - E\,T(b_{K+1})` over sequences of rejected tokens. One sort by p/q makes a step
O(log V).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers.ratio_sums import RatioSums

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]

#: Independent repetitions of the stratified sampling, from which the standard error comes.
_REPETITIONS = 8


def estimated_rates(
    sums: RatioSums,
    p: Vector,
    q: Vector,
    num_drafts: Sequence[int],
    num_samples: int,
    seed: int | Sequence[int],
) -> tuple[list[float], list[float]]:
    """Estimates and their standard errors, for every K.

    Acceptance is averaged out along each sequence, and the tokens rejected at one step are a
    stratified sample in each of eight independent repetitions.

    Parameters
    ----------
    sums : RatioSums
        Of p and q.
    p, q : ndarray, shape (V,)
    num_drafts : sequence of int
        Each from 2 to the number of tokens with q > 0.
    num_samples : int
        Sequences, rounded up to a multiple of eight.
    seed : int or sequence of int
    """
    most = max(num_drafts)
    rng = np.random.default_rng(seed)
    each = -(-num_samples // _REPETITIONS)
    uniforms = (np.arange(each) + rng.random((most - 1, _REPETITIONS, each))) / each
    uniforms = rng.permuted(uniforms, axis=-1).reshape(most - 1, -1)

    rejections = _Rejections(sums.order, p, q, uniforms.shape[1], most)
    before = np.zeros(uniforms.shape[1])
    after = before + sums.surplus(before)
    undecided = np.empty((most, uniforms.shape[1]))
    undecided[0] = sums.surplus(after)
    for k in range(1, most):
        rejections.draw(before, after, uniforms[k - 1])
        before = after
        after = before + sums.surplus(before) / rejections.mass_left()
        undecided[k] = sums.surplus(after)
    accepted = 1.0 - undecided[np.array(num_drafts) - 1]
    means = accepted.reshape(len(num_drafts), _REPETITIONS, each).mean(axis=2)
    errors = means.std(axis=1, ddof=1) / np.sqrt(_REPETITIONS)
    return np.clip(means.mean(axis=1), 0.0, 1.0).tolist(), errors.tolist()


class _Rejections:
    """Tokens rejected so far in N sequences, and the draw of the next ones.

    The K - 1 largest tokens of q, the top, are handled one by one: the mass left after a draw from
    the others, the bulk, then still holds a token as large as the drawn one, so that no difference
    of sums loses its digits.
    """

    def __init__(self, by_ratio: Tokens, p: Vector, q: Vector, size: int, num_drafts: int) -> None:
        place = np.argpartition(q[by_ratio], -(num_drafts - 1))[-(num_drafts - 1) :]
        top, bulk = by_ratio[place], np.delete(by_ratio, place)
        self._p_top, self._q_top = p[top], q[top]
        self._q_bulk = q[bulk]
        self._ratio = p[bulk] / self._q_bulk
        self._p_sums = np.concatenate([[0.0], np.cumsum(p[bulk])])
        self._q_sums = np.concatenate([[0.0], np.cumsum(self._q_bulk)])
        self._top_left = np.ones((size, top.size), dtype=np.bool_)
        self._bulk_drawn = np.empty((size, 0), dtype=np.int64)  # ascending, bulk.size for none
        self._rows = np.arange(size)

    def mass_left(self) -> Vector:
        """Sum of q over the tokens not drawn yet."""
        q = np.append(self._q_bulk, 0.0)
        bulk = np.maximum(self._q_sums[-1] - q[self._bulk_drawn].sum(axis=1), 0.0)
        left: Vector = np.maximum(bulk + self._top_left @ self._q_top, 1e-300)
        return left

    def draw(self, before: Vector, after: Vector, uniforms: Vector) -> None:
        """Draw a token with weight min((b' - b) q, (b' q - p)_+) in each sequence."""
        step = after - before
        top = np.minimum(
            step[:, None] * self._q_top,
            np.maximum(after[:, None] * self._q_top - self._p_top, 0.0),
        )
        reached = np.cumsum(np.where(self._top_left, top, 0.0), axis=1)
        # In the bulk, tokens of ratio up to b come first, with weight (b' - b) q. Those already
        # drawn are among them.
        full = np.searchsorted(self._ratio, before, side="right")
        end = np.searchsorted(self._ratio, after, side="left")
        q = np.append(self._q_bulk, 0.0)
        drawn = step * q[self._bulk_drawn].sum(axis=1)
        bulk = np.maximum(self._weight_before(end, full, step, after) - drawn, 0.0)
        aim = uniforms * (reached[:, -1] + bulk)
        from_top = aim < reached[:, -1]
        choice = np.minimum((reached <= aim[:, None]).sum(axis=1), self._q_top.size - 1)
        self._top_left[self._rows[from_top], choice[from_top]] = False

        aim = aim - reached[:, -1]
        for place in self._bulk_drawn.T:  # skip them, from the first to the last
            aim += np.where(aim >= step * self._q_sums[place], step * q[place], 0.0)
        found = self._find(aim, end, full, step, after)
        found[from_top] = self._q_bulk.size
        self._bulk_drawn = np.sort(np.column_stack([self._bulk_drawn, found]), axis=1)

    def _weight_before(self, place: Tokens, full: Tokens, step: Vector, after: Vector) -> Vector:
        """Weight of the bulk tokens before a place."""
        low = np.minimum(place, full)
        beyond = after * (self._q_sums[place] - self._q_sums[low])
        beyond -= self._p_sums[place] - self._p_sums[low]
        result: Vector = step * self._q_sums[low] + beyond
        return result

    def _find(self, aim: Vector, end: Tokens, full: Tokens, step: Vector, after: Vector) -> Tokens:
        """The bulk token at which the weight before it and its own pass the aim."""
        low, high = np.zeros_like(end), np.maximum(end - 1, 0)
        for _ in range(int(self._q_bulk.size).bit_length()):
            middle = (low + high) // 2
            passed = self._weight_before(middle + 1, full, step, after) > aim
            high = np.where(passed, middle, high)
            low = np.where(passed, low, np.minimum(middle + 1, high))
        return high
