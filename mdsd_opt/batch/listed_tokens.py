r"""Lists of the likeliest tokens, and the subsets H that have to be examined for them.

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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np

from mdsd_opt.base.array_types import Flags, Integers, Vector
from mdsd_opt.base.arrays import SUM_TOLERANCE
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.errors import InvalidDistribution, InvalidInput

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
