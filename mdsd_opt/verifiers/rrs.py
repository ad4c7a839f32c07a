r"""Recursive rejection sampling: one draft after another, against the rest of the target.

Its rates without replacement: after any sequence of rejections the residual is :math:`\propto (p -
b q)_+` for a single number b. With :math:`T(b) = \sum (p - b q)_+` and s the inverse of the draft
mass not drawn yet, the next draft, of law s q on that rest, is rejected as token i with mass
proportional to

.. math:: \min\bigl(s\,T(b)\,q_i,\ (b' q_i - p_i)_+\bigr), \qquad b' = b + s\,T(b),

and the residual after it is :math:`\propto (p - b' q)_+`. Nothing is accepted along a sequence of K
rejections with probability :math:`T(b_{K+1})`, starting from :math:`b_1 = 0`, so the acceptance
rate is :math:`1 - E\,T(b_{K+1})` over sequences of rejected tokens: over all where they are few,
else over many that are drawn at a time. One sort by p/q makes a step O(log V).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from typing import ClassVar

import numpy as np

from mdsd_opt.base.arrays import Integers, Numbers, Tokens, Vector
from mdsd_opt.drafts import (
    DraftScheme,
    IndependentDrafts,
    WithoutReplacement,
    WithReplacement,
    count_power,
    sum_of_others,
)
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier, target_of
from mdsd_opt.verifiers.rejection import (
    RatioSums,
    accepted,
    draft_of,
    nothing_accepted,
    residual_law,
    without,
)
from mdsd_opt.verifiers.verdicts import Decision, Estimate

DEFAULT_SAMPLES = 2000

#: Number of sequences of an estimate in batches, and visits up to which a row is exact instead.
_BATCH_SAMPLES = 256
_BATCH_MAX_VISITS = 50_000

#: Limits of the exact recursion: sequences of rejected tokens, and tokens visited for them.
_MAX_SEQUENCES = 10_000

MAX_VISITS = 4_000_000

#: Most drafts without replacement for which sequences are sampled; each one costs about K^2.
_MAX_SAMPLED_DRAFTS = 1000

#: Largest K of each class, whose estimates treat the same number of large tokens one by one, and
#: most steps of a class, K^2 for each sample: some seconds.
_CLASSES = (8, 64, 250, _MAX_SAMPLED_DRAFTS)
_MAX_SAMPLED_STEPS = 6 * 10**7

#: Most steps of the recursion for independent drafts, K V.
_MAX_STEPS = 10**9

_STEPS_OF_A_CALL = 10_000

#: Number of repetitions of the stratified sampling, from which the standard error comes.
_REPETITIONS = 8


class RecursiveRejection(Verifier):
    r"""Accept X_j with probability min(1, p_j/q_j), else go on with the excess of p_j over q_j.

    That is :math:`p_{j+1} \propto (p_j - q_j)_+`. With replacement q_j = q (the multi-step sampling
    of [SpecInfer]); without replacement q_j is q without the tokens drawn, renormalised ([RSD],
    [MCSD]); for different draft models it is the model of draft j. A rejected token has no residual
    mass left, so it is not hit later. Lossless for all three, not optimal. Cost O(K V) a decision.
    The rate costs O(K V), without replacement O(V log V) at K = 2, and beyond that an exact
    recursion in about V^(K-1) on small vocabularies, an estimate with a standard error on large
    ones.
    """

    name: ClassVar[str] = "rrs"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (
        WithReplacement,
        WithoutReplacement,
        IndependentDrafts,
    )

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return {
            "with_replacement": BatchRates(_rates_with_replacement, device="rrs"),
            "without_replacement": BatchRates(_rates_without_replacement, estimated_from=3),
        }

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        law_of = _draft_laws(problem, exact)
        residual = target_of(problem, exact)
        accept = nothing_accepted(drafts, residual)
        undecided = accept[0] + 1
        for k, token in enumerate(drafts.tolist()):
            if token < 0 or undecided <= 0:
                break
            q = law_of(k, drafts[:k])
            share = accepted(residual[token], q[token])
            accept[k] = undecided * share
            undecided = undecided * (1 - share)
            residual = residual_law(residual, q)
        return Decision(accept, residual)

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """Probability that some draft is accepted; an `Estimate` if exact recursion is too long.

        Parameters
        ----------
        problem : TransportProblem
        num_samples, seed : int
            Size and seed of the Rao-Blackwellised estimate, if one is needed; it takes some 10 ms.
        """
        self.check(problem)
        laws = problem.drafts.independent_laws()
        if laws is not None:
            return independent_rates(problem.target, laws, problem.num_drafts)[-1]
        q, num_drafts = draft_of(problem, exact=False), problem.num_drafts
        (rate,), (error,) = without_replacement_rates(
            problem.target, q, [num_drafts], num_samples, seed
        )
        return rate if error is None else Estimate(rate, error)


def _draft_laws(problem: TransportProblem, exact: bool) -> Callable[[int, Integers], Numbers]:
    """Function from k and the tokens drawn before to the law of draft k."""
    drafts = problem.drafts
    q = draft_of(problem, exact)
    if drafts.has_many_models:
        return lambda k, drawn: q[k]
    if drafts.independent_models is not None:
        return lambda k, drawn: q
    return lambda k, drawn: without(q, drawn)


def _rates_with_replacement(p: Vector, q: Vector, counts: list[int], seed: int) -> Sequence[float]:
    rates = independent_rates(p, repeat(q), max(counts))
    return [rates[k - 1] for k in counts]


def _rates_without_replacement(
    p: Vector, q: Vector, counts: list[int], seed: int
) -> Sequence[float]:
    """Rates by random numbers that depend on the seed and the row, not on its place in a batch."""
    seeds = [seed, zlib.crc32(p.tobytes()), zlib.crc32(q.tobytes())]
    return without_replacement_rates(p, q, counts, _BATCH_SAMPLES, seeds, _BATCH_MAX_VISITS)[0]


def independent_rates(p: Vector, models: Iterable[Vector], num_drafts: int) -> list[float]:
    r"""Rates of the first draft, the first two, ..., in O(K V).

    Where :math:`r_k` is the probability that k drafts are refused, the k-th target is
    :math:`\propto t_k`, :math:`t_0 = p`, :math:`t_{k+1} = (t_k - r_k q_{k+1})_+`, and :math:`r_k =
    \sum t_k`. For one q, :math:`r_{k+1} = \varphi(s_{k+1})` with :math:`s_{k+1} = s_k + r_k` on the
    curve :math:`\varphi(s) = \sum (p - s q)_+`, whose sort costs as much as some 60 passes.
    """
    if num_drafts * (p.size + _STEPS_OF_A_CALL) > _MAX_STEPS:
        raise ProblemTooLarge(
            f"the rate of 'rrs' takes K passes over V: K={num_drafts}, V={p.size} is too much. "
            "Draft fewer tokens, or ask for 'optimal' or 'kseq', whose rates are in closed form."
        )
    undecided, left = 1.0, p
    rates = []
    for q in islice(models, num_drafts):
        taken = undecided * q
        left = np.subtract(left, taken, out=taken)
        undecided = min(float(np.maximum(left, 0.0, out=left).sum()), 1.0)
        rates.append(1.0 - undecided)
    return rates


def without_replacement_rates(
    p: Vector,
    q: Vector,
    num_drafts: Sequence[int],
    num_samples: int,
    seed: int | Sequence[int],
    max_visits: int = MAX_VISITS,
) -> tuple[list[float], list[float | None]]:
    """Rates for several K, and their standard errors where they had to be estimated.

    An estimate depends on its own K alone, not on which others are asked for: those of a class of K
    share their samples, the first K - 1 steps of each. The exact recursion may visit `max_visits`
    tokens, about V**(K - 1); K = 2 is always exact.
    """
    sums = RatioSums(p, q)
    support = sums.order.size
    rates: dict[int, tuple[float, float | None]] = {}
    estimated = []
    for k in sorted({min(k, support) for k in num_drafts}):
        sequences = count_power(p.size, max(k - 2, 0))
        if k <= 2 or (sequences <= _MAX_SEQUENCES and sequences * p.size <= max_visits):
            rates[k] = min(max(1.0 - _undecided(sums, p, q, k), 0.0), 1.0), None
        else:
            estimated.append(k)
    if estimated and estimated[-1] > _MAX_SAMPLED_DRAFTS:
        raise ProblemTooLarge(
            f"the rate of 'rrs' without replacement at K={estimated[-1]} cannot be estimated: it "
            f"ends at K={_MAX_SAMPLED_DRAFTS}. Draft fewer tokens, or ask for 'optimal'."
        )
    first = 0
    for last in _CLASSES:
        counts = [k for k in estimated if first < k <= last]
        if counts:
            most = min(last, support)
            few = min(num_samples, _MAX_SAMPLED_STEPS // last**2)
            means, errors = estimated_rates(sums, p, q, counts, few, seed, most)
            rates |= dict(zip(counts, zip(means, errors, strict=True), strict=True))
        first = last
    estimates = [rates[min(k, support)] for k in num_drafts]
    return [rate for rate, _ in estimates], [error for _, error in estimates]


def _undecided(
    sums: RatioSums, p: Vector, q: Vector, num_drafts: int, before: float = 0.0, total: float = 1.0
) -> float:
    """Mean of T after `num_drafts` more rejections, from b = `before`, where T is `total`.

    The sums are those of p and of q, which is zero here for the tokens that were drawn.
    """
    after = before + total / q.sum()
    rest = float(sums.surplus(after))
    weight = np.clip(after * q - p, 0.0, (after - before) * q)
    if num_drafts == 1 or not weight.any():
        return rest
    drawn = np.flatnonzero(weight)
    left = sum_of_others(q)[drawn]
    if num_drafts == 2:
        step = np.divide(rest, left, out=np.zeros_like(left), where=left > 0)
        means = sums.surplus(after + step)
    else:
        means = np.full(drawn.size, rest)  # where no draft is left
        for n in np.flatnonzero(left).tolist():
            others = q.copy()
            others[drawn[n]] = 0.0
            means[n] = _undecided(sums, p, others, num_drafts - 1, after, rest)
    return float(means @ weight[drawn]) / float(weight.sum())


def estimated_rates(
    sums: RatioSums,
    p: Vector,
    q: Vector,
    num_drafts: Sequence[int],
    num_samples: int,
    seed: int | Sequence[int],
    most: int,
) -> tuple[list[float], list[float]]:
    """Estimates and their standard errors, for every K, from 2 to the number of tokens with q > 0.

    Acceptance is averaged out along each of `num_samples` sequences, rounded up to a multiple of
    eight, and the tokens rejected at one step are a stratified sample in each of eight independent
    repetitions. The sums are those of p and q; `most` is the largest K that there may be.
    """
    rng = np.random.default_rng(seed)
    each = -(-num_samples // _REPETITIONS)
    size = each * _REPETITIONS
    rejections = _Rejections(sums, p, q, size, most)
    before, after = np.zeros(size), np.ones(size)
    undecided = np.empty((max(num_drafts), size))
    undecided[0] = sums.surplus(after)
    for k in range(1, max(num_drafts)):
        uniforms = (np.arange(each) + rng.random((_REPETITIONS, each))) / each
        rejections.draw(before, after, rng.permuted(uniforms, axis=-1).ravel())
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

    def __init__(self, sums: RatioSums, p: Vector, q: Vector, size: int, num_drafts: int) -> None:
        p_by_ratio, q_by_ratio = p[sums.order], q[sums.order]
        top = np.argpartition(q_by_ratio, -(num_drafts - 1))[-(num_drafts - 1) :]
        self._p_top, self._q_top = p_by_ratio[top], q_by_ratio[top]
        p_bulk, q_bulk = np.delete(p_by_ratio, top), np.delete(q_by_ratio, top)
        self._q_bulk = np.append(q_bulk, 0.0)
        # b is 0 at first and then at least 1, so that all smaller ratios are as good as one.
        num_below = sums.num_below - np.count_nonzero(top < sums.num_below)
        self._ratio = np.full(q_bulk.size, 0.5)
        np.divide(p_bulk[num_below:], q_bulk[num_below:], out=self._ratio[num_below:])
        self._p_sums = np.concatenate([[0.0], np.cumsum(p_bulk)])
        self._q_sums = np.concatenate([[0.0], np.cumsum(q_bulk)])
        self._top_left = np.ones((size, top.size), dtype=np.bool_)
        self._bulk_drawn = np.empty((size, 0), dtype=np.int64)  # ascending, bulk.size for none
        self._rows = np.arange(size)

    def mass_left(self) -> Vector:
        """Sum of q over the tokens not drawn yet."""
        drawn = self._q_bulk[self._bulk_drawn].sum(axis=1)
        bulk = np.maximum(self._q_sums[-1] - drawn, 0.0)
        return np.maximum(bulk + self._top_left @ self._q_top, 1e-300)

    def draw(self, before: Vector, after: Vector, uniforms: Vector) -> None:
        """Draw a token with weight min((b' - b) q, (b' q - p)_+) in each sequence."""
        step = after - before
        top = np.minimum(
            step[:, None] * self._q_top, np.maximum(after[:, None] * self._q_top - self._p_top, 0.0)
        )
        reached = np.cumsum(np.where(self._top_left, top, 0.0), axis=1)
        # In the bulk, tokens of ratio up to b come first, with weight (b' - b) q. Those already
        # drawn are among them.
        full = np.searchsorted(self._ratio, before, side="right")
        end = np.maximum(np.searchsorted(self._ratio, after, side="left"), full)
        q_full, p_full = self._q_sums[full], self._p_sums[full]
        drawn = step * self._q_bulk[self._bulk_drawn].sum(axis=1)
        beyond = after * (self._q_sums[end] - q_full) - (self._p_sums[end] - p_full)
        bulk = np.maximum(step * q_full + beyond - drawn, 0.0)
        aim = uniforms * (reached[:, -1] + bulk)
        from_top = aim < reached[:, -1]
        choice = np.minimum((reached <= aim[:, None]).sum(axis=1), self._q_top.size - 1)
        self._top_left[self._rows[from_top], choice[from_top]] = False

        aim = aim - reached[:, -1]
        for place in self._bulk_drawn.T:  # skip them, from the first to the last
            passed = aim >= step * self._q_sums[place]
            aim += np.where(passed, step * self._q_bulk[place], 0.0)
        tokens = self._find(aim, full, end, step, after)
        tokens[from_top] = self._ratio.size
        self._bulk_drawn = np.sort(np.column_stack([self._bulk_drawn, tokens]), axis=1)

    def _find(self, aim: Vector, full: Tokens, end: Tokens, step: Vector, after: Vector) -> Tokens:
        """Bulk token at which the weight before it and its own pass the aim."""
        q_full, p_full = self._q_sums[full], self._p_sums[full]
        share = np.divide(aim, step, out=np.zeros_like(aim), where=step > 0)
        among_full = np.searchsorted(self._q_sums, share, side="right") - 1
        aim = aim - step * q_full + after * q_full - p_full
        high = np.maximum(end - 1, 0)
        low = np.minimum(full, high)
        for _ in range(int((high - low).max()).bit_length()):
            middle = (low + high) // 2
            passed = after * self._q_sums[middle + 1] - self._p_sums[middle + 1] > aim
            high = np.where(passed, middle, high)
            low = np.where(passed, low, np.minimum(middle + 1, high))
        tokens: Tokens = np.where(share < q_full, np.minimum(among_full, full - 1), high)
        return tokens


VERIFIER = RecursiveRejection()
