r"""Certified bounds on the optimal acceptance rate from the likeliest tokens alone.

They ask for Q(H), the chance that all drafts are in H, at its largest and smallest over the unknown
tail. With replacement it is :math:`q(H)^K`. Without, give every token an exponential clock of rate
q: H contains the drafts if K of its clocks ring before the first one outside. With T the time of
that, exponential of rate 1 - q(H), the number of clocks of H that rang by T is a sum of Bernoulli
variables of chances :math:`1 - e^{-q_i T}`. Of a given mass within H it is stochastically the
larger, the more evenly the mass is spread: at most a Poisson variable (no token of the tail is met
twice), at least that of as many tokens as possible at their cap and one with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats, Vector
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.batch.listed_tokens import Listed, Subsets
from mdsd_opt.batch.rates import acceptance_rates
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, checked_num_drafts, checked_scheme
from mdsd_opt.errors import InvalidInput, UnsupportedScheme

#: Largest error of computed values.
_COMPUTED = 1e-12


@dataclass(frozen=True, slots=True)
class AcceptanceInterval:
    """Interval of the optimal acceptance rate, whatever the unknown tails are.

    Attributes
    ----------
    lower, upper : float
    target_tail, draft_tail : float
        Mass of the tokens that are not listed.
    """

    lower: float
    upper: float
    target_tail: float
    draft_tail: float


def acceptance_interval(
    target_top: Mapping[Any, float],
    draft_top: Mapping[Any, float],
    num_drafts: int,
    drafts: str = "with_replacement",
    vocab_size: int | None = None,
) -> AcceptanceInterval:
    r"""Certified interval of the optimal acceptance rate from top-k log-probabilities.

    A token that is not listed has at most the smallest probability that is, and those of one side
    share what the listed ones leave of one. Of all laws p and q of that kind,

    .. math::

       \min_{p, q} \alpha^* = 1 + \min_H \bigl[ \min_p P(H) - \max_q Q(H) \bigr], \qquad
       \max_{p, q} \alpha^* \le 1 + \min_H \bigl[ \max_p P(H) - \min_q Q(H) \bigr],

    the second with equality for drafts with replacement. Dividing the listed probabilities by
    their sum would give another law, and a rate that may lie outside.

    Logarithms are rounded, and computed from sums that are. Of what format they are is read off
    them: the coarsest of bfloat16, float16, float32, decimal places and digits, and float64 that
    holds all numbers of a list. Both ends are moved apart by that rounding, and by that of a sum
    over the vocabulary in float32 (float64 for numbers that take it), made in eight running sums at
    least. Lists of zeros alone, which tell nothing, count as float32.

    Parameters
    ----------
    target_top, draft_top : mapping of token id to float
        Natural logarithms of the probabilities of the likeliest tokens, k of them on each side,
        which need not be the same number. Tokens may be named by anything that both sides share; of
        texts, those with U+FFFD in them may be any bytes: a list is taken to end before the first.
        ``-inf`` says that a token, and so any that is not listed, cannot come, and so does -9999,
        which vLLM writes in its place.
    num_drafts : int
        K.
    drafts : {"with_replacement", "without_replacement"}
    vocab_size : int, optional
        V; without it the vocabulary may be of any size, and sums are taken to be over 2^18 tokens.
        Where all V tokens are listed on both sides, the ends are the rate but for rounding.

    Returns
    -------
    AcceptanceInterval
        With replacement both ends are attained, or approached as the vocabulary grows. Without,
        they are bounds: the lower one spreads the draft's tail infinitely thin, and the upper one
        chooses the tail for each H.

    Raises
    ------
    InvalidInput
        No mappings, or more tokens than there are in the vocabulary.
    InvalidDistribution
        The numbers are no logarithms of the largest probabilities of a law.
    UnsupportedScheme
        Other drafts.

    Examples
    --------
    >>> import numpy as np
    >>> import mdsd_opt as mo
    >>> found = mo.acceptance_interval(
    ...     {5: np.log(0.6), 7: np.log(0.2)}, {5: np.log(0.5), 2: np.log(0.3)}, num_drafts=2
    ... )
    >>> round(found.lower, 3), round(found.upper, 3)
    (0.6, 0.95)
    """
    if vocab_size is not None and checked_integer(vocab_size, "vocab_size") >= 1 << 31:
        raise InvalidInput(f"vocab_size is {vocab_size!r}: give the number of tokens, or None")
    ends, target, draft = interval_ends(
        target_top, draft_top, [checked_num_drafts(num_drafts)], drafts, vocab_size
    )
    lower, upper = ends[0].tolist()
    return AcceptanceInterval(lower, upper, target.unlisted, draft.unlisted)


def interval_ends(
    target_top: Mapping[Any, float],
    draft_top: Mapping[Any, float],
    counts: Sequence[int],
    scheme: str,
    vocab_size: int | None,
) -> tuple[Floats, Listed, Listed]:
    """Both ends for several K, shape (len(counts), 2), and the lists of both sides."""
    composition = SINGLE_MODEL_SCHEMES[checked_scheme(scheme)].composition
    if composition is None or not composition.is_random:
        kinds = SINGLE_MODEL_SCHEMES.items()
        known = " or ".join(x for x, kind in kinds if (y := kind.composition) and y.is_random)
        raise UnsupportedScheme(
            f"there are no intervals for {scheme!r} drafts from top-k log-probabilities: give "
            f"{known}, or the log-probabilities of all tokens"
        )
    target = Listed.of(target_top, "target_top", vocab_size)
    draft = Listed.of(draft_top, "draft_top", vocab_size)
    union = target.probabilities.keys() | draft.probabilities.keys()
    if vocab_size is not None and len(union) > vocab_size:
        raise InvalidInput(
            f"both sides together list {len(union)} tokens, and vocab_size is {vocab_size}"
        )
    if len(target.probabilities) == len(draft.probabilities) == vocab_size:
        ends = _ends_of_all(target, draft, counts, scheme, composition.is_replaced)
    else:
        # Without replacement the draft's probabilities count up to scale alone.
        scaled = draft.at_least() if composition.is_replaced else draft
        subsets = Subsets.of(target.at_least(), scaled, vocab_size)
        contained_in = _with_replacement if composition.is_replaced else _without_replacement
        ends = [_least_value(subsets, list(counts), contained_in, most) for most in (False, True)]
    bounds = np.stack(ends, axis=1) + np.array([-_COMPUTED, _COMPUTED])
    return np.clip(bounds, 0.0, 1.0), target, draft


def _least_value(
    subsets: Subsets,
    counts: list[int],
    contained_in: Callable[[Subsets, list[int], bool], Floats],
    most_accepted: bool,
) -> Floats:
    """Minimum over H of 1 + P(H) - Q(H), for every K, with tails that make it large or small."""
    of_row = subsets.target_mass(most=most_accepted)
    # Q grows from row to row: of rows with the same p the last has the least value.
    last = np.append(of_row[1:] > of_row[:-1], True)
    subsets, of_row = subsets.rows(last), of_row[last]
    p = of_row[:, None] + np.concatenate([[0.0], np.cumsum(subsets.common_p)])
    q = contained_in(subsets, counts, not most_accepted)
    return (1.0 + p[..., None] - q).min(axis=(0, 1))


def _ends_of_all(
    target: Listed, draft: Listed, counts: Sequence[int], scheme: str, replaced: bool
) -> list[Floats]:
    tokens = list(target.probabilities)
    if target.probabilities.keys() != draft.probabilities.keys():
        raise InvalidInput("both sides list a whole vocabulary, and not the same one")
    p, q = (np.array([side.probabilities[token] for token in tokens]) for side in (target, draft))
    rates = np.asarray(acceptance_rates(p, q, num_drafts=counts, drafts=scheme, kind="probs"))
    errors = target.draws_errors([1], replaced=True) + draft.draws_errors(counts, replaced=replaced)
    return [rates - errors, rates + errors]


#: Step of the trapezoidal rule in log t. The integrand is analytic for |Im log t| < pi/2, so the
#: error is about exp(-pi^2 / step); of the K-th ring it is as narrow as 1 / sqrt(K).
_STEP, _STEP_OF_RING = 0.28, 0.5

#: Smaller rates outside H are replaced by this: less is contained then, by less than it.
_LEAST_RATE = 1e-12


def _with_replacement(subsets: Subsets, counts: list[int], most: bool) -> Floats:
    """Containment Q of every subset and K, shape (R, C + 1, len(counts))."""
    fixed = np.concatenate([[0.0], np.cumsum(subsets.draft_only)])[subsets.num_draft_only]
    fixed = fixed + subsets.draft_open_mass(most)
    inside = fixed[:, None] + np.concatenate([[0.0], np.cumsum(subsets.common_q)])
    return np.minimum(inside, 1.0)[..., None] ** np.array(counts)


def _without_replacement(subsets: Subsets, counts: list[int], most: bool) -> Floats:
    """Bound of Q for every subset and K, from above or below, shape (R, C + 1, len(counts))."""
    outside = np.maximum(_mass_outside(subsets, most), 0.0)
    rate = np.maximum(outside, _LEAST_RATE)
    step = min(_STEP, _STEP_OF_RING / math.sqrt(max(counts)))
    t = _nodes(float(rate.min()), step)
    # Pr(n clocks of H rang by t), of n < K: (R, K, T)
    rang = _rang_at_first(subsets, t, max(counts), most)
    contained = np.empty((*outside.shape, len(counts)))
    last = np.array(counts) - 1
    for column in range(outside.shape[1]):
        if column:
            rang = _with_token(rang, subsets.common_q[column - 1], t)
        density = rate[:, column, None] * t * np.exp(-rate[:, column, None] * t) * step
        fewer = np.cumsum(np.einsum("rkt,rt->rk", rang, density), axis=1)
        contained[:, column] = 1.0 - fewer[:, last]
    # Nothing is outside: the drafts are in H, however few they are.
    surely = outside <= (_LEAST_RATE if most else 0.0)
    contained[surely] = 1.0
    errors = subsets.draft.draws_errors(counts, replaced=False)
    return np.clip(contained + (errors if most else -errors), 0.0, 1.0)


def _mass_outside(subsets: Subsets, most: bool) -> Floats:
    """Mass q outside H, summed there, never as 1 - sum; shape (R, C + 1)."""
    rest = np.concatenate([np.cumsum(subsets.draft_only[::-1])[::-1], [0.0]])
    open_mass = subsets.draft.tail + subsets.draft.slack - subsets.draft_open_mass(most)
    fixed = rest[subsets.num_draft_only] + open_mass
    return fixed[:, None] + np.concatenate([np.cumsum(subsets.common_q[::-1])[::-1], [0.0]])


def _nodes(slowest: float, step: float) -> Vector:
    """Times from where no clock has rung up to where all of rate `slowest` have."""
    return np.exp(np.arange(-37.0, np.log(40.0 / slowest) + step, step))


def _rang_at_first(subsets: Subsets, t: Vector, num_drafts: int, most: bool) -> Floats:
    """Probability that n clocks of H without its common tokens rang by t, shape (R, K, T)."""
    law = np.zeros((1, num_drafts, t.size))
    law[:, 0] = 1.0
    laws = [law]
    for q in subsets.draft_only:
        laws.append(_with_token(laws[-1], q, t))
    listed = np.concatenate(laws)[subsets.num_draft_only]
    mass = subsets.draft_open_mass(most)
    tail = (_poisson if most else _at_cap)(mass, subsets.draft.cap, t, num_drafts)
    # the sum of two independent numbers
    both = np.zeros_like(listed)
    for n in range(num_drafts):
        both[:, n:] += tail[:, n, None] * listed[:, : num_drafts - n]
    return both


def _with_token(law: Floats, q: float, t: Vector) -> Floats:
    hit = -np.expm1(-q * t)
    result = law * (1.0 - hit)
    result[:, 1:] += law[:, :-1] * hit
    return result


def _poisson(mass: Vector, cap: float, t: Vector, num_drafts: int) -> Floats:
    """Probability that n of infinitely many small tokens rang by t."""
    from scipy.special import gammaln, xlogy

    mean = mass[:, None, None] * t
    n = np.arange(num_drafts)[:, None]
    return np.exp(xlogy(n, mean) - mean - gammaln(n + 1.0))


def _at_cap(mass: Vector, cap: float, t: Vector, num_drafts: int) -> Floats:
    """Probability that n rang by t, of as many tokens at the cap as fit, and one with the rest."""
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
