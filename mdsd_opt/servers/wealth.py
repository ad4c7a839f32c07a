r"""Evidence that tokens do not follow the laws stated for them, valid whenever one stops.

The test is whether each token follows the law p that is stated for it given the text before, up to
a total variation of tau, the noise of arithmetic. A bet with gains g and the stake s multiplies its
wealth by :math:`1 + s\,g(x)`. The mean of that is one under p, and at most
:math:`1 + \tau s w \le \exp(\tau s w)`, w the swing, under any law within tau of it, so that

.. math::
    E_n(\tau) = \operatorname{mean}_{b, s} \exp\Bigl(\sum_{t \le n} \log(1 + s\,g_{b,t}(x_t))
    - \tau \sum_{t \le n} s\,w_{b,t}\Bigr)

is an e-process: the probability that it ever reaches 1/alpha is alpha at most (Ville's inequality;
betting as in Waudby-Smith and Ramdas, 2024, and Ramdas et al., "Game-theoretic statistics and safe
anytime-valid inference", 2023). The largest tau at which :math:`E_n(\tau) \ge 1/\alpha` is a lower
confidence bound of the distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.evidence import Interval
from mdsd_opt.servers.laws import Law

Function = TypeVar("Function", bound=Callable[..., Any])

#: Largest ratio of a bet to the stated law that still pays.
LARGEST_RATIO = 20.0

#: Powers of the stated law that are bet on, as other temperatures would give them.
TILTS = (0.5, 0.8, 0.9, 1.1, 1.25, 2.0, 4.0)

#: Names of the bets that depend on the stated law alone.
OF_LAW = (
    "the likeliest token",
    "not the likeliest token",
    "the second token",
    "beyond the five likeliest",
    "beyond nine tenths",
    "the last of the list",
    *(f"p to the power {tilt:g}" for tilt in TILTS),
)

#: Names of the bets that depend on the draft's law q.
OF_DRAFT = (
    "the draft's law",
    "p times q",
    "what q has beyond p",
    "what p has beyond q",
    "the smaller of p and q",
    "q squared",
    "the draft's likeliest token",
    "the likeliest of p - q",
    "not the draft's likeliest token",
)

#: Names of the bets that depend on earlier tokens and laws.
OF_CONTEXT = (
    "the token that followed the same two",
    "the token before",
    "the law before",
    "the token that came here last",
    "tokens too rare or too frequent",
)


class BetTable(NamedTuple):
    """Bets against one law.

    Attributes
    ----------
    gains : ndarray, shape (bets, cells)
    swings : ndarray, shape (bets,)
    favoured : ndarray, shape (bets,)
        Probability of the cells that gain, under the stated law.
    """

    gains: Floats
    swings: Floats
    favoured: Floats


class DraftBets(NamedTuple):
    """Bets of a draft's law, and the places of the cells when they are ordered by q/p.

    `overlap` is sum min(p, q).
    """

    table: BetTable
    starts: Floats
    overlap: float


def table_of(p: Floats, bets: Sequence[Floats]) -> BetTable:
    """Table of the gains of some laws against the law p of the cells."""
    ratios = np.minimum(np.array(bets) / p, LARGEST_RATIO)
    gains = ratios - (ratios @ p)[:, None]
    return BetTable(gains, gains.max(axis=1) - gains.min(axis=1), (gains > 0) @ p)


def _or_none(weights: Floats, p: Floats) -> Floats:
    """Law in proportion to the weights, or p, which gains nothing, if they are all zero."""
    total = weights.sum()
    return weights / total if total > 1e-9 else p


def _without(p: Floats, cell: int) -> Floats:
    rest = p.copy()
    rest[cell] = 0.0
    return _or_none(rest, p)


def _only(p: Floats, cell: int) -> Floats:
    alone = np.zeros(p.size)
    alone[cell] = 1.0
    return alone


def _once(function: Function) -> Function:
    """Function that makes its result once for each law, or for one law and the last beside it."""

    @wraps(function)
    def result(law: Law, *others: Law) -> Any:
        if function not in law.results or law.results[function][0] != others:
            law.results[function] = others, function(law, *others)
        return law.results[function][1]

    return cast(Function, result)


@_once
def bets_of_law(law: Law) -> BetTable:
    """Table of the bets `OF_LAW`, made once for each law."""
    p = law.p
    beyond_five = p.copy()
    beyond_five[:5] = 0.0
    tail = np.where(np.cumsum(p) - p >= 0.9, p, 0.0)
    logs = np.log(p)
    tilted = np.exp(np.outer(TILTS, logs - logs[0]))
    tilted /= tilted.sum(axis=1, keepdims=True)
    return table_of(
        p,
        [
            _only(p, 0),
            _without(p, 0),
            _only(p, min(1, p.size - 1)),
            _or_none(beyond_five, p),
            _or_none(tail, p),
            _only(p, p.size - 1),
            *tilted,
        ],
    )


@_once
def bets_of_draft(law: Law, draft: Law) -> DraftBets | None:
    """Table of the bets `OF_DRAFT`, made once for each pair; None if the laws share no token."""
    p, q = law.p, law.onto(draft)
    if q is None:
        return None
    first = int(np.argmax(q))
    table = table_of(
        p,
        [
            q,
            _or_none(p * q, p),
            _or_none(np.maximum(q - p, 0.0), p),
            _or_none(np.maximum(p - q, 0.0), p),
            _or_none(np.minimum(p, q), p),
            _or_none(q * q, p),
            _only(p, first),
            _only(p, int(np.argmax(p - q))),
            _without(p, first),
        ],
    )
    order = np.argsort(q / p, kind="stable")
    starts = np.empty(p.size)
    starts[order] = np.cumsum(p[order]) - p[order]
    return DraftBets(table, starts, float(np.minimum(p, q).sum()))


@_once
def bet_of_previous(law: Law, previous: Law) -> BetTable | None:
    """Bet on the law of the token before, as an engine that takes the wrong row would follow it."""
    row = law.onto(previous)
    return None if row is None else table_of(law.p, [row])


#: Share of its wealth that a bet stakes; the mean over all of them is kept.
STAKES = np.array([0.02, 0.1, 0.3, 0.8])

#: Weights, in tokens, of the stated law against the tokens that a prefix has sent before.
TRUST_AT_PREFIX = (10.0, 50.0, 250.0)

#: Number of expected tokens after which the frequency of one is bet on.
TRUST_IN_TOKEN = 20.0

#: Most prefixes that are remembered, and most ids whose frequencies are.
MOST_PREFIXES, MOST_IDS = 300_000, 1 << 21

#: Number of consecutive tokens of a long text that belong to the same half.
_BLOCK = 64

#: Mass beside the likeliest token up to which a law counts as certain.
_CERTAIN = 1e-9

_IMPOSSIBLE = "impossible tokens"
_AT_PREFIX = "what this prefix sent before"
_NAMES = (*OF_LAW, *OF_DRAFT, *OF_CONTEXT, _IMPOSSIBLE)
_DRAFT_AT = len(OF_LAW)
_CONTEXT_AT = _DRAFT_AT + len(OF_DRAFT)

#: Names of the bets on uniform numbers, and the number of all bets; each has several stakes.
_UNIFORM_NAMES = (
    "place in the law",
    "after the last place",
    "place by position",
    "place in the same text before",
    "place by q/p",
    "place by id",
)
NUM_BETS = len(_NAMES) + 1 + len(_UNIFORM_NAMES)


class Shown(NamedTuple):
    """Facts that are known when a token is bet on, beside its law.

    Attributes
    ----------
    prefix : int
        Names the text before the token, so that it is known again.
    position : int
        Position of the token in its text, from 0.
    before : int or None
        The token before.
    lookup : int or None
        The token that followed the last two the last time they stood in the text.
    previous : Law or None
        The law of the token before.
    draft : Law or None
        The draft's law of this token.
    last_place : float or None
        Result of `Evidence.add` at this position of the text before.
    """

    prefix: int
    position: int = 0
    before: int | None = None
    lookup: int | None = None
    previous: Law | None = None
    draft: Law | None = None
    last_place: float | None = None


class _Histogram:
    """Bets on a number that should be uniform, by how often each bin was met.

    The predictor of Krichevsky and Trofimov with a prior of two of each bin.
    """

    def __init__(self, bins: int, contexts: int) -> None:
        self.counts = np.full((contexts, bins), 2.0)
        self.bins = bins
        self.log = 0.0
        self.swing = 0.0

    def add(self, uniform: float, context: int) -> None:
        row = self.counts[context]
        predicted = row * (self.bins / row.sum())
        met = min(int(uniform * self.bins), self.bins - 1)
        self.log += math.log(predicted[met])
        self.swing += float(predicted.max() - predicted.min())
        row[met] += 1.0


class Bets:
    """Wealth of all bets on the tokens of one kind, and estimates of size and direction.

    Parameters
    ----------
    seed : int
        Seed of the uniform numbers that spread each token over its cell.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        size = len(_NAMES), STAKES.size
        self._log, self._swing = np.zeros(size), np.zeros(size)
        self._uniform = {
            name: _Histogram(*shape)
            for name, shape in zip(
                _UNIFORM_NAMES, ((10, 3), (4, 4), (6, 8), (4, 4), (8, 2), (8, 2)), strict=True
            )
        }
        self._prefixes: dict[int, int | dict[int, int]] = {}
        self._prefix_log = np.zeros(len(TRUST_AT_PREFIX))
        self._prefix_swing = np.zeros(len(TRUST_AT_PREFIX))
        self._expected = np.zeros((2, 1024))  # expected and observed number of each id
        self._last: float | None = None
        self._blocks = 0
        # excess of the gaining cells in each half of the texts, and its variance
        self._excess = np.zeros((2, len(_NAMES)))
        self._variance = np.zeros((2, len(_NAMES)))
        self._hits = np.zeros(len(_NAMES))
        self._score = self._information = 0.0
        self._top = self._top_variance = 0.0
        self._of_half = [0, 0]
        self.num_impossible = 0
        self.num_unlisted = 0
        self.num_tokens = self.num_uncertain = 0  # all, and those whose laws leave a choice
        self.peak = -math.inf

    def new_text(self) -> None:
        """Begin another text."""
        self._last = None
        self._blocks += 1

    def add(self, token: int, law: Law, shown: Shown) -> float | None:
        """Bet on a token, then record it.

        Returns where the token lies in its law, a number that is uniform in [0, 1) if nothing is
        wrong; None for a token that the law rules out, or does not list.
        """
        row = np.zeros((3, len(_NAMES)))
        gains, swings, favoured = row
        cell = law.cell(token)
        if cell is None and law.is_open:  # nothing is known of such tokens
            self.num_unlisted += 1
            return None
        _put(row, bets_of_law(law), cell, slice(0, _DRAFT_AT))
        if shown.draft is not None:
            self._bet_on_draft(row, law, cell, shown.draft)
        self._bet_on_context(row, law, cell, shown)
        if not law.is_open:
            swings[-1] = LARGEST_RATIO
        if cell is None:
            gains[-1] = LARGEST_RATIO
            self.num_impossible += 1
        self._log += np.log1p(np.multiply.outer(gains, STAKES))
        self._swing += np.multiply.outer(swings, STAKES)
        half = (self._blocks + self.num_tokens // _BLOCK) % 2
        self._excess[half] += (gains > 0) - favoured
        self._hits += gains > 0
        self._variance[half] += favoured * (1.0 - favoured)
        self._of_half[half] += 1
        self.num_tokens += 1
        self.num_uncertain += bool(law.p[0] < 1.0 - _CERTAIN)
        self._learn_prefix(shown.prefix, token, law, cell)
        if cell is None:
            return None
        return self._place(law, cell, shown)

    def _bet_on_draft(self, row: Floats, law: Law, cell: int | None, draft: Law) -> None:
        bets = bets_of_draft(law, draft)
        if bets is None:
            return
        _put(row, bets.table, cell, slice(_DRAFT_AT, _CONTEXT_AT))
        if cell is not None:
            place = bets.starts[cell] + self._rng.random() * law.p[cell]
            self._uniform["place by q/p"].add(place, int(bets.overlap > 0.7))

    def _bet_on_context(self, row: Floats, law: Law, cell: int | None, shown: Shown) -> None:
        met = self._prefixes.get(shown.prefix)
        last = next(reversed(met)) if isinstance(met, dict) else met
        for offset, guess in ((0, shown.lookup), (1, shown.before), (3, last)):
            place = None if guess is None else law.cell(guess)
            if place is not None:
                p = law.p[place]
                ratio = min(1.0 / p, LARGEST_RATIO)
                gain = 0.0 if cell is None else ratio * (place == cell) - ratio * p
                row[:, _CONTEXT_AT + offset] = gain, ratio, p
        previous = None if shown.previous is None else bet_of_previous(law, shown.previous)
        for offset, table in ((2, previous), (4, self._frequencies(law, cell))):
            if table is not None:
                at = _CONTEXT_AT + offset
                _put(row, table, cell, slice(at, at + 1))

    def _frequencies(self, law: Law, cell: int | None) -> BetTable:
        """Bet that tokens stay as rare or frequent, relative to their laws, as they have been."""
        ids = law.ids
        largest = min(int(ids.max(initial=0)), MOST_IDS - 1)
        if largest >= self._expected.shape[1]:
            grown = np.zeros((2, min(2 * largest, MOST_IDS)))
            grown[:, : self._expected.shape[1]] = self._expected
            self._expected = grown
        known = ids % MOST_IDS
        expected, observed = self._expected[:, known]
        weights = law.p.copy()
        weights[: ids.size] *= (observed + TRUST_IN_TOKEN) / (expected + TRUST_IN_TOKEN)
        table = table_of(law.p, [weights / weights.sum()])
        self._expected[0, known] += law.p[: ids.size]
        if cell is not None and cell < ids.size:
            self._expected[1, known[cell]] += 1.0
        return table

    def _learn_prefix(self, prefix: int, token: int, law: Law, cell: int | None) -> None:
        """Bet on the tokens that came after the same text before, and remember this token."""
        met = self._prefixes.get(prefix)
        if met is None:
            if len(self._prefixes) < MOST_PREFIXES:
                self._prefixes[prefix] = token
            return
        counts = {met: 1} if isinstance(met, int) else met
        cells = [(law.cell(x), n) for x, n in counts.items()]
        bets = np.multiply.outer(TRUST_AT_PREFIX, law.p)
        for place, n in cells:
            if place is not None:
                bets[:, place] += n
        bets /= bets.sum(axis=1, keepdims=True)
        table = table_of(law.p, list(bets))
        if cell is not None:
            self._prefix_log += np.log1p(table.gains[:, cell])
        self._prefix_swing += table.swings
        counts[token] = counts.pop(token, 0) + 1  # the last is at the end
        self._prefixes[prefix] = counts

    def _place(self, law: Law, cell: int, shown: Shown) -> float:
        """Place of the token in its law, after bets on it."""
        p = law.p
        logs = np.log(p)
        mean = float(p @ logs)
        self._score += float(logs[cell]) - mean
        self._information += float(p @ (logs - mean) ** 2)
        self._top += (cell == 0) - float(p[0])
        self._top_variance += float(p[0]) * (1.0 - float(p[0]))
        place = float(p[:cell].sum() + self._rng.random() * p[cell])
        place = min(max(place, 0.0), 1.0 - 1e-12)
        uniform = self._uniform
        by_id = law.mass_before(cell) + self._rng.random() * float(p[cell])
        uniform["place by id"].add(by_id, int(p[0] > 0.6))
        uniform["place in the law"].add(place, int(p[0] >= 0.4) + int(p[0] >= 0.8))
        uniform["place by position"].add(place, min(shown.position, 7))
        if self._last is not None:
            uniform["after the last place"].add(place, int(4 * self._last))
        if shown.last_place is not None:
            uniform["place in the same text before"].add(place, int(4 * shown.last_place))
        self._last = place
        return place

    def oddest(self) -> tuple[str, float, float]:
        """Bet whose tokens came most too often or too rarely, their stated and their true share."""
        excess, hits = self._excess.sum(axis=0), self._hits / max(self.num_tokens, 1)
        sizes = np.abs(excess) / np.sqrt(np.maximum(self._variance.sum(axis=0), 1e-12))
        n = int(np.argmax(sizes.round(9)))  # of an event and its opposite, the event
        return _NAMES[n], float(hits[n] - excess[n] / max(self.num_tokens, 1)), float(hits[n])

    def after(self, prefix: int) -> dict[int, int]:
        """Numbers of the tokens that came after a text."""
        met = self._prefixes.get(prefix, {})
        return {met: 1} if isinstance(met, int) else met

    def parts(self, tau: float) -> dict[str, float]:
        """Logarithm of the wealth of each bet, the mean over its stakes."""
        wealth = log_mean(self._log - tau * self._swing)
        parts = dict(zip(_NAMES, wealth.tolist(), strict=True))
        parts[_AT_PREFIX] = float(log_mean(self._prefix_log - tau * self._prefix_swing))
        for name, bets in self._uniform.items():
            parts[name] = bets.log - tau * bets.swing
        return parts

    def log_e(self, tau: float) -> float:
        """Logarithm of the e-value E(tau), the mean wealth of all bets."""
        return float(log_mean(np.array(list(self.parts(tau).values()))))

    def log10_e(self, tau: float) -> float:
        """Common logarithm of E(tau)."""
        return self.log_e(tau) / math.log(10.0)

    def look(self, tau: float) -> float:
        """Current `log_e`, remembered if it is the largest so far."""
        value = self.log_e(tau)
        self.peak = max(self.peak, value)
        return value

    def distance_at_least(self, alpha: float) -> float:
        """Lower bound of the total variation, which exceeds it with probability alpha at most."""
        level = -math.log(alpha)
        low, high = 0.0, 1.0
        if self.log_e(low) < level:
            return 0.0
        for _ in range(30):
            middle = (low + high) / 2.0
            if self.log_e(middle) >= level:
                low = middle
            else:
                high = middle
        return low

    def distance(self) -> float:
        """Estimate of the total variation that on average does not exceed the true one.

        The event that deviates most on one half of the texts is measured on the other.
        """
        if min(self._of_half) == 0:
            return 0.0
        estimate = 0.0
        for chosen in (0, 1):
            sigma = np.sqrt(np.maximum(self._variance[chosen], 1e-12))
            z = np.where(self._variance[chosen] > 1e-9, self._excess[chosen] / sigma, 0.0)
            worst = int(np.argmax(np.abs(z)))
            measured = self._excess[1 - chosen, worst] / self._of_half[1 - chosen]
            estimate += math.copysign(1.0, z[worst]) * measured / 2.0
        return float(min(max(estimate, self.num_impossible / self.num_tokens, 0.0), 1.0))

    def temperature(self, z: float) -> tuple[float, Interval]:
        """Estimate of T as a multiple of the stated one, by one step of Newton, and an interval."""
        information = max(self._information, 1e-9)
        inverse, half = 1.0 + self._score / information, z / math.sqrt(information)
        low, high = (max(inverse + half, 1e-9), inverse - half)
        return (
            1.0 / inverse if inverse > 0 else math.inf,
            Interval(1.0 / low, 1.0 / high if high > 0 else math.inf),
        )

    def top_excess(self, z: float) -> tuple[float, Interval]:
        """Frequency of the likeliest token minus the stated one, and an interval."""
        n = max(self.num_tokens, 1)
        mean, half = self._top / n, z * math.sqrt(self._top_variance) / n
        return mean, Interval(mean - half, mean + half)


def detectable_distance(num_tokens: int, tau: float, alpha: float, z: float) -> float:
    r"""Total variation towards one of the laws bet on that is found in so many tokens.

    It is that of an event of probability a, the worst of several, which comes with
    :math:`a + \delta`: the best stake wins :math:`\log(B/\alpha)`, B the bets and stakes, even z
    standard deviations (the normal quantile of the power) below its mean.
    """
    if num_tokens < 1:
        return 1.0
    needed = math.log(NUM_BETS * STAKES.size / alpha)
    a, delta = np.linspace(0.05, 0.95, 19)[:, None], np.linspace(0, 1, 2_001)[:, None, None]
    won, lost, hit = np.log1p(STAKES * (1 / a - 1)), np.log1p(-STAKES), np.minimum(a + delta, 1)
    mean = num_tokens * (hit * won + (1 - hit) * lost - tau * STAKES / a)
    least = mean - z * np.sqrt(num_tokens * hit * (1 - hit)) * (won - lost)
    is_detectable = ((least.max(axis=2) >= needed) | (a + delta > 1)[:, :, 0]).all(axis=1)
    return float(delta[int(np.argmax(is_detectable)), 0, 0])


def _put(row: Floats, table: BetTable, cell: int | None, where: slice) -> None:
    """Enter gains, swings and shares that gain; a token that the law rules out gains nothing."""
    if cell is not None:
        row[0, where] = table.gains[:, cell]
    row[1:, where] = table.swings, table.favoured


def log_mean(values: Floats) -> Floats:
    """Logarithm of the mean of exponentials, over the last axis."""
    largest = values.max(axis=-1, keepdims=True)
    mean = np.exp(values - largest).mean(axis=-1)
    return np.log(mean) + largest[..., 0]
