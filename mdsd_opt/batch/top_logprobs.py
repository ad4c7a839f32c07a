"""Certified bounds on the optimal acceptance rate from the likeliest tokens alone.

They ask for Q(H), the chance that all drafts are in H, at its largest and smallest over the unknown
tail. With replacement it is :math:`q(H)^K`. Without, give every token an exponential clock of rate
q: H contains the drafts if K of its clocks ring before the first one outside. With T the time of
that, exponential of rate 1 - q(H), the number of clocks of H that rang by T is a sum of Bernoulli
variables of chances :math:`1 - e^{-q_i T}`. Of a given mass within H it is stochastically the
larger, the more evenly the mass is spread: at most a Poisson variable (no token of the tail is met
twice), at least that of as many tokens as possible at their cap and one with the rest.

Lists of the likeliest tokens, and the subsets H that have to be examined for them.

Where two laws are half known, the least of 1 + P(H) - Q(H) is found among few subsets. Tokens
are of four kinds: listed on both sides, only the draft's (their p is open), only the target's
(their q is open), on neither side. In whichever way the open masses are chosen, some H of least
1 + P(H) - Q(H) is made of

- a prefix of the tokens listed on both sides, ordered by p/q (the prefix theorem), and
- a prefix of one sequence of all others: the draft's tokens, the largest q first; the tokens on
  neither side; the target's tokens, the smallest p first.

For a token that only the draft lists has at least the q of any that it does not list, and its p
counts no more than theirs; a token that only the target lists costs at least the p of any that it
does not list, and its q counts as theirs: exchanging one for the other in H never makes it worse.

The errors of a list's logarithms are read off the numbers themselves. A list was written in some
format: bfloat16, float16, float32, float64, or so many decimal places or digits. The coarsest in
which all of its numbers can be written is taken, so that the true format is never coarser than
that. Proofs, and what is assumed of servers: docs/theory/unknown-tails.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np

from mdsd_opt.base.arrays import SUM_TOLERANCE, Flags, Floats, Integers, Vector
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.frames import Result
from mdsd_opt.batch.acceptance import acceptance_rates
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, checked_num_drafts, checked_scheme
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnsupportedScheme

#: Excess of the unlisted tokens' mass, over the room beside the others and beyond rounding, that is
#: tolerated.
_TOLERANCE = 1e-5

#: Value that vLLM writes for -inf, which JSON does not have.
_NEVER = -9999.0


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """List of one side: the likeliest tokens, and the rest for the others.

    `roundings`, shape (n,), are by how much each logarithm may be off: that of the last token
    listed, which has the largest, goes for all that are not. `shift`: all of them together.
    """

    probabilities: dict[Hashable, float]
    cap: float  # the smallest of them: no other token has more
    tail: float  # mass of the tokens that are not listed
    slack: float  # how much more there may be of it, or of any other tokens
    roundings: Vector
    shift: float

    @classmethod
    def of(cls, logprobs: Any, name: str, vocab_size: int | None) -> Listed:
        """Check the list of one side: the probabilities as given, right up to scale.

        Raises `InvalidInput` for no mapping, an empty one, or one of more tokens than there are,
        `InvalidDistribution` where logarithms or mass are none that fit into the vocabulary.
        """
        if not isinstance(logprobs, Mapping) or not logprobs:
            raise InvalidInput(f"{name} is {logprobs!r:.60}: give a mapping token id -> logprob")
        if vocab_size is not None and len(logprobs) > vocab_size:
            raise InvalidInput(
                f"{name} lists {len(logprobs)} tokens, and vocab_size is {vocab_size}"
            )
        logprobs = _told_apart(logprobs, name)
        logs = np.array([_number(x, token, name) for token, x in logprobs.items()])
        each, shift = rounding(logs, vocab_size)
        # What is not zero stays above it.
        mass = np.where(np.isfinite(logs), np.maximum(np.exp(logs), SMALLEST_PROBABILITY), 0.0)
        total = math.fsum(mass)
        low = math.exp(-shift) - math.fsum(mass * np.exp(each))
        high = math.exp(shift) - math.fsum(mass * np.exp(-each))
        if high < -SUM_TOLERANCE:
            raise InvalidDistribution(f"the probabilities of {name} sum to {total:.6g}, over one")
        if len(mass) == vocab_size:  # the sum tells the shift
            if low > SUM_TOLERANCE:
                raise InvalidDistribution(
                    f"{name} lists all {vocab_size} tokens, whose probabilities sum to {total:.6g}"
                )
            mass, low, high = mass / total, 0.0, 0.0
            shift = math.log(math.fsum(mass * np.exp(each)))
        elif high < 0:  # shifted by more than was thought
            shift, high = math.log(total), total - math.fsum(mass * np.exp(-each))
        cap, margin = float(mass.min()), float(each[mass.argmin()])
        others = math.inf if vocab_size is None else vocab_size - len(mass)
        room = cap * others if cap else 0.0
        low = max(low, 0.0) * math.exp(-margin)
        if low > room + _TOLERANCE:
            raise InvalidDistribution(
                f"{name} leaves {1 - total:.3g} for {others:,} tokens, none of which may have more "
                f"than the {cap:.3g} of the last one listed. Are these the likeliest tokens?"
            )
        high = min(high, room)
        low = min(low, high)
        probabilities = dict(zip(logprobs, mass.tolist(), strict=True))
        return cls(probabilities, cap, low, high - low, each, shift)

    def at_least(self) -> Listed:
        """Lower bounds of all probabilities; the slack is all that is missing to one."""
        mass = np.array(list(self.probabilities.values()))
        margin = math.exp(-self.shift - float(self.roundings[mass.argmin()]))
        mass *= np.exp(-self.shift - self.roundings)
        tail = self.tail * margin
        return replace(
            self,
            probabilities=dict(zip(self.probabilities, mass.tolist(), strict=True)),
            cap=self.cap * margin,
            tail=tail,
            slack=max(1.0 - math.fsum(mass) - tail, 0.0),
        )

    @property
    def unlisted(self) -> float:
        """Difference of the probabilities' sum from one."""
        rest = 1.0 - math.fsum(self.probabilities.values())
        return min(max(rest, self.tail), self.tail + self.slack)

    @property
    def tokens_of_tail(self) -> int:
        """Least number of tokens that can hold the tail."""
        return math.ceil(self.tail / self.cap) if self.tail else 0

    def draws_errors(self, counts: Sequence[int], *, replaced: bool) -> Vector:
        """Errors of the chances of K draws, shape (len(counts),), without slack and shift.

        A draw is off, in total variation, by no more than the mean error of the tokens that are
        left: after whichever draws before it.
        """
        mass = np.append(list(self.probabilities.values()), self.tail + self.slack)
        errors = np.expm1(np.append(self.roundings, self.roundings[mass[:-1].argmin()]))
        means = [
            _largest_mean(mass, errors, 0 if replaced else drawn) for drawn in range(max(counts))
        ]
        return np.cumsum(means)[np.array(counts) - 1]


def _told_apart(logprobs: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    """Tokens that are likelier than any whose text is not unique.

    The bound on tokens that are not listed holds for those that are left out.
    """
    unclear = [x for token, x in logprobs.items() if _is_unclear(token)]
    if not unclear:
        return logprobs
    most = max(_number(x, "\ufffd", name) for x in unclear)
    distinct = {
        token: x
        for token, x in logprobs.items()
        if not _is_unclear(token) and _number(x, token, name) >= most
    }
    if not distinct:
        raise InvalidInput(
            f"{name}: the likeliest token has U+FFFD in its text, as parts of any characters have. "
            "Ask the server for ids (return_tokens_as_token_ids) or bytes"
        )
    return distinct


def _is_unclear(token: Hashable) -> bool:
    """Whether a token's text is shared by others: bytes that are no whole character."""
    return isinstance(token, str) and "\ufffd" in token


def _number(logprob: Any, token: Hashable, name: str) -> float:
    try:
        value = math.nan if isinstance(logprob, (str, bytes)) else float(logprob)
    except (TypeError, ValueError):
        value = math.nan
    if not value <= SUM_TOLERANCE:  # NaN, too
        raise InvalidDistribution(
            f"{name} gives token {token!r} the logprob {logprob!r:.40}: give the logarithm of a "
            "probability"
        )
    return value if value > _NEVER else -math.inf


def _largest_mean(mass: Vector, errors: Vector, drawn: int) -> float:
    """Mean error without so many tokens, whichever they are, and with the last or without.

    Tokens leave the larger a mean than some level, the more they lie below it: the level is raised
    to the mean that is left until there is none larger.
    """
    if drawn + 1 >= mass.size:
        return float(errors.max())
    mean = float(mass @ errors) / math.fsum(mass)
    while True:
        gains = mass * (errors - mean)
        inside = gains > 0
        inside[:-1] = True
        out = np.argpartition(gains[:-1], drawn)[:drawn]
        inside[out] = gains[out] > 0
        total = float(mass[inside].sum())
        raised = float(mass[inside] @ errors[inside]) / total if total else mean
        if raised <= mean:
            return mean
        mean = raised


@dataclass(frozen=True, slots=True, eq=False)
class Subsets:
    """Prefixes of the sequence of half-listed tokens (rows, R) and of common ones (columns, C + 1).

    Tokens listed on both sides come by ascending p/q, shape (C,).
    """

    target: Listed
    draft: Listed
    common_p: Vector
    common_q: Vector
    draft_only: Vector  # q of tokens that the draft alone lists, descending, shape (A,)
    num_draft_only: Integers  # how many of them are in H, shape (R,)
    target_only_mass: Vector  # p of the tokens in H that the target alone lists, shape (R,)
    target_open: Vector  # tokens in H that the target does not list, shape (R,)
    draft_open: Vector  # those that the draft does not, shape (R,)
    num_target_open: int  # in the whole vocabulary
    num_draft_open: int

    @classmethod
    def of(cls, target: Listed, draft: Listed, vocab_size: int | None) -> Subsets:
        """Subsets that two lists leave; without a size of V there is room for both tails."""
        p, q = target.probabilities, draft.probabilities
        common = [(p[token], q[token]) for token in p.keys() & q.keys()]
        common.sort(key=lambda pair: pair[0] / pair[1] if pair[1] else math.inf)
        draft_only = sorted((q[token] for token in q.keys() - p.keys()), reverse=True)
        target_only = sorted(p[token] for token in p.keys() - q.keys())
        if vocab_size is None:
            neither = target.tokens_of_tail + draft.tokens_of_tail
        else:
            neither = vocab_size - len(common) - len(draft_only) - len(target_only)
        taken = _numbers_taken(neither, target, draft)
        first, last = len(draft_only), len(target_only)
        # One row for each prefix: some draft-only tokens; then tokens on neither side; then all.
        before = np.concatenate([np.arange(first), np.full(len(taken) + last, first)])
        between = np.concatenate([np.zeros(first), taken, np.full(last, float(neither))])
        after = np.concatenate([np.zeros(first + len(taken), np.int64), np.arange(1, last + 1)])
        return cls(
            target, draft, np.array([pair[0] for pair in common]),
            np.array([pair[1] for pair in common]), np.array(draft_only, dtype=np.float64), before,
            np.concatenate([[0.0], np.cumsum(target_only)])[after], before + between,
            between + after, first + neither, last + neither,
        )  # fmt: skip

    def target_mass(self, most: bool) -> Vector:
        """Largest or smallest p of H without its common tokens, shape (R,)."""
        open_mass = _open_mass(self.target, self.target_open, self.num_target_open, most)
        return self.target_only_mass + open_mass

    def draft_open_mass(self, most: bool) -> Vector:
        """Largest or smallest q of the tokens in H that the draft does not list, shape (R,)."""
        return _open_mass(self.draft, self.draft_open, self.num_draft_open, most)

    def rows(self, chosen: Flags) -> Subsets:
        """Subsets of some rows only."""
        return replace(
            self,
            num_draft_only=self.num_draft_only[chosen],
            target_only_mass=self.target_only_mass[chosen],
            target_open=self.target_open[chosen],
            draft_open=self.draft_open[chosen],
        )


def _open_mass(side: Listed, inside: Vector, everywhere: int, most: bool) -> Vector:
    """Largest or smallest mass of `inside` tokens that the side does not list.

    The largest has the slack, which may belong to any tokens.
    """
    if most:
        return np.minimum(side.tail, side.cap * inside) + side.slack
    return np.maximum(0.0, side.tail - side.cap * (everywhere - inside))


def _numbers_taken(neither: int, target: Listed, draft: Listed) -> list[float]:
    """Candidate numbers of tokens that no side lists, one of which the H of least value has.

    Between these numbers the value is monotone or concave.
    """
    full = [neither - target.tail / target.cap if target.cap else neither,
            draft.tail / draft.cap if draft.cap else 0.0]  # fmt: skip
    numbers = {0, neither} | {int(f(x)) for x in full for f in (math.floor, math.ceil)}
    return [float(min(max(x, 0), neither)) for x in sorted(numbers) if 0 <= x <= neither]


#: Formats and their significant bits, the coarsest first.
_FORMATS: tuple[tuple[Any, int], ...] = (
    (ml_dtypes.bfloat16, 8), (np.float16, 11), (np.float32, 24),
)  # fmt: skip

#: Significant bits of numbers that fit none of these.
_DOUBLE_BITS = 53

#: Significant bits of float32, in which shorter numbers were computed: log_softmax sums 16-bit
#: logits in it, too.
_SINGLE_BITS = 24

#: Error of exp and log, and of the rounding of their sum, in units of the last bit of one.
_FUNCTIONS, _LOG_OF_SUM = 4.0, 32.0

#: Least number of running sums in a sum over the vocabulary: lanes of a processor.
_RUNNING_SUMS = 8

#: Assumed vocabulary size, if it is unknown.
_VOCAB_SIZE = 1 << 18


def rounding(logprobs: Vector, vocab_size: int | None) -> tuple[Vector, float]:
    """Error of each logarithm, shape (n,), and of all of them together.

    Each by the rounding of the number itself, and of what it was computed from; together by the
    error of the logarithm of the sum over the vocabulary, by which all are shifted alike.
    """
    telling = logprobs[np.isfinite(logprobs) & (logprobs != 0)]  # the others fit all formats
    printed = _of_decimals(logprobs, telling)
    bits = next((bits for dtype, bits in _FORMATS if _fits(logprobs, printed, dtype)), _DOUBLE_BITS)
    if not telling.size:  # certainties alone: as in float32
        bits = _SINGLE_BITS
    computed = _SINGLE_BITS if bits <= _SINGLE_BITS else _DOUBLE_BITS
    unit = 2.0**-computed
    each = printed + _last_bit(logprobs, bits) / 2 + _last_bit(logprobs, computed)
    sums = (_VOCAB_SIZE if vocab_size is None else vocab_size) / _RUNNING_SUMS
    return each + _FUNCTIONS * unit, (sums + _LOG_OF_SUM) * unit


def _of_decimals(logprobs: Vector, telling: Vector) -> Vector:
    """Half a unit of the last place or digit of numbers that were rounded when printed."""
    if not telling.size:
        return np.zeros_like(logprobs)
    written = [Decimal(repr(x)).as_tuple() for x in telling.tolist()]
    places = -min(int(number.exponent) for number in written)
    digits = max(len(number.digits) for number in written)
    with np.errstate(divide="ignore"):
        first = np.floor(np.log10(np.abs(logprobs)))
    return np.where(
        np.isfinite(logprobs), 0.5 * np.maximum(10.0**-places, 10.0 ** (first - digits + 1)), 0.0
    )


def _fits(logprobs: Vector, printed: Vector, dtype: Any) -> bool:
    """Whether all are numbers of a format: exact, rounded when printed, or as short as can be."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = logprobs.astype(dtype)
        far = np.abs(numbers.astype(np.float64) - logprobs) > printed  # false for infinities
    shortest = (
        float(str(number)) == x for number, x in zip(numbers[far], logprobs[far], strict=True)
    )
    return all(shortest)


def _last_bit(x: Vector, bits: int) -> Vector:
    """Distance of neighbouring numbers of so many bits, zero at zero and infinity."""
    exponent = np.frexp(x)[1]
    return np.where(np.isfinite(x) & (x != 0), np.ldexp(1.0, exponent - bits), 0.0)


#: Largest error of computed values.
_COMPUTED = 1e-12


@dataclass(frozen=True, slots=True)
class AcceptanceInterval(Result):
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
