r"""Optimal acceptance rates of ways to draft at the same positions.

A filter leaves a few of the draft's tokens. The others are never drafted, so that the optimum is
attained on a set H without them, and they count as one token of their mass of the target.

The best temperature of a position comes with a certificate. Let
:math:`q_\beta \propto e^{\beta \ell}` with :math:`\beta = 1/T`. The optimal acceptance rate of K
drafts with replacement is :math:`\alpha^*(\beta) = 1 + \min_H [P(H) - q_\beta(H)^K]`, which may
have several local maxima. For any fixed H and any interval of :math:`\beta`

.. math:: \alpha^*(\beta) \le 1 + P(H) - \left( \min_\beta q_\beta(H) \right)^K, \qquad
          \log q_\beta(H) = \log Z_H(\beta) - \log Z(\beta),

where both log-partition functions are convex: the first lies above its tangent, the second below
its chord. The difference of two lines is least at an end of the interval. Branch and bound over
intervals closes the gap between this bound and the best rate found.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Vector
from mdsd_opt.base.checked import checked_tolerance, floats
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Table, one_table
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.long_runs import available_threads, map_rows, threaded
from mdsd_opt.base.sampling import Sampling, bad_row_error, softmax
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.drafts import SchemeMaker, WithReplacement
from mdsd_opt.errors import InvalidDistribution, InvalidInput
from mdsd_opt.problem import TransportProblem

#: Schemes that never draft a token of probability zero, as one that is plugged in may.
_KNOWN = ("with_replacement", "without_replacement", "greedy", "top_k")

#: Number of tokens whose laws a thread holds at once, some megabytes.
_TOKENS_AT_ONCE = 1 << 17

#: Positions whose laws are mixed at once: some 80 MB at V = 150,000.
_AT_ONCE = 64

#: Least probability that is not zero.
_TINY = np.finfo(float).smallest_subnormal

#: Number of intervals after which the search for a temperature gives up on its tolerance.
MAX_INTERVALS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A way to draft.

    Attributes
    ----------
    name : str
    scheme : str or callable
        Name of a scheme, or a function that makes one of a law and K.
    sampling : Sampling, optional
        Temperature and filters of the draft; the pair's unless given.
    draft : Logits or tuple of Logits, optional
        Pair with another draft of the same positions, in place of the one that is asked for; of
        several each token is drawn from one, by a coin.
    """

    name: str
    scheme: str | SchemeMaker = "with_replacement"
    sampling: Sampling | None = None
    draft: Logits | tuple[Logits, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DraftRows:
    """Logits of both models at N positions, each row of the same width, and how they are read."""

    target: NDArray[Any]
    draft: NDArray[Any]
    of_target: Sampling
    of_draft: Sampling
    texts: Integers | None
    num_threads: int

    @classmethod
    def of(cls, pair: Logits, sequence: Any = None, num_threads: int | None = None) -> DraftRows:
        """Rows of a pair; `InvalidInput` where there is none, or leading axes differ."""
        texts = LogitsSample.of(pair, sequence).texts
        target, draft = (x.reshape(-1, x.shape[-1]) for x in pair.placed())
        threads = available_threads() if num_threads is None else num_threads
        return cls(target, draft, pair.reading.target, pair.reading.draft, texts, threads)

    def __len__(self) -> int:
        return len(self.target)

    def rates(
        self, num_drafts: Sequence[int], scheme: str | SchemeMaker, of_draft: Sampling | None = None
    ) -> Floats:
        """Optimal rates at each K, shape (N, len(num_drafts)); those of no name by the solver."""
        if callable(scheme):
            from mdsd_opt.solvers import solve

            rate = lambda problem: solve(problem, "subset_selection").acceptance_rate  # noqa: E731
            return np.stack([self.by_problem(k, scheme, rate) for k in num_drafts], axis=-1)
        rates = acceptance_rates(
            self.target, self.draft, num_drafts, scheme, num_threads=self.num_threads,
            kind="logits", sampling=self.of_target, draft_sampling=of_draft or self.of_draft,
        )  # fmt: skip
        return np.asarray(rates)

    def by_position(self, function: Callable[[int], Any]) -> list[Any]:
        """Values of a function of the position."""
        return map_rows(function, len(self), self.num_threads, "draft_search")

    def by_problem(
        self, num_drafts: int, make: SchemeMaker, measure: Callable[[TransportProblem], float]
    ) -> Floats:
        """Values of each position's transport problem, shape (N,)."""

        def at(row: int) -> float:
            drafts = make(self.of_draft.law(self.draft[row]), num_drafts)
            return measure(TransportProblem(self.of_target.law(self.target[row]), drafts))

        return np.array(self.by_position(at))

    def mixed(self, others: Sequence[DraftRows], num_drafts: Sequence[int], scheme: Any) -> Floats:
        """Rates of tokens that are each drawn from one of several drafts, by a coin."""
        parts = []
        for start in range(0, len(self), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            laws = [x.of_draft.law(x.draft[some]) for x in (self, *others)]
            with np.errstate(divide="ignore"):
                draft = np.log(sum(laws) / len(laws))
            part = replace(self, target=self.target[some], draft=draft, of_draft=Sampling())
            parts.append(part.rates(num_drafts, scheme))
        return np.concatenate(parts)

    def is_shared(self, candidate: Candidate) -> bool:
        """Whether `of_settings` takes a candidate: no scheme drafts what filters leave out."""
        own = candidate.sampling
        masks = own is not None and (own.masks_tokens or self.of_target.masks_tokens)
        return masks and candidate.draft is None and candidate.scheme in _KNOWN

    def of_settings(
        self, settings: Sequence[Sampling], num_drafts: Sequence[int], scheme: str
    ) -> Iterable[Floats]:
        """Rates at temperatures and filters of the draft, (settings, n, len(num_drafts)) by blocks.

        The order of a row's tokens serves all settings, and the law of a temperature all filters.
        Settings stand in the order of `temperature_first`.
        """
        size = max(_TOKENS_AT_ONCE // self.target.shape[-1], 1)
        blocks = [slice(n, n + size) for n in range(0, len(self), size)]
        at = partial(self._of_block, settings=settings, num_drafts=num_drafts, scheme=scheme)
        return threaded(at, blocks, self.num_threads, "draft_search")

    def _of_block(
        self, rows: slice, settings: Sequence[Sampling], num_drafts: Sequence[int], scheme: str
    ) -> Floats:
        """Rates from the tokens that settings keep, ordered by temperature."""
        p = _laws("target_logits", self.target, rows, self.of_target)
        logits = self.draft[rows].astype(np.float64)
        order = np.argsort(-logits) if any(x.masks_tokens for x in settings) else None
        with np.errstate(divide="ignore"):
            log_p = np.log(p)
        rates = []
        for (temperature, is_cut), alike in groupby(settings, key=temperature_first):
            group, plain = [*alike], Sampling(temperature)
            q = _laws("draft_logits", self.draft, rows, plain)
            few = DraftRows(log_p, logits, Sampling(), plain, None, 1)
            if is_cut and order is not None:
                least = _least_kept(np.take_along_axis(q, order, axis=-1), group)
                few = few.kept(q >= np.maximum(least, _TINY)[..., None], p)
            of_group = few.rates(num_drafts, scheme).reshape(-1, len(p), len(num_drafts))
            rates.append(np.broadcast_to(of_group, (len(group), *of_group.shape[1:])))
        return np.concatenate(rates)

    def kept(self, flags: Flags, p: Floats) -> DraftRows:
        """Rows of the tokens that each of several settings keeps, and of the rest in one.

        The flags have shape (settings, N, V), and the targets, of law p, are logarithms.
        """
        count, size = len(self), p.shape[-1]
        places, tokens = np.divmod(np.flatnonzero(flags), size)
        sizes = np.bincount(places, minlength=flags.size // size)
        columns = np.arange(places.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        source = places % count, tokens
        sides = np.full((2, sizes.size, sizes.max() + 1), -np.inf)
        sides[:, places, columns] = self.target[source], self.draft[source]
        rest = 1.0 - np.bincount(places, p[source], sizes.size)
        with np.errstate(divide="ignore"):
            sides[0, np.arange(sizes.size), sizes] = np.log(np.maximum(rest, 0.0))
        return replace(self, target=sides[0], draft=sides[1])


def _laws(name: str, values: NDArray[Any], rows: slice, sampling: Sampling) -> Floats:
    try:
        return sampling.law(values[rows])
    except InvalidDistribution:
        row = rows.start + int(np.argmin(np.isfinite(values[rows].max(axis=-1))))
        raise bad_row_error(name, [row], values[row]) from None


def temperature_first(setting: Sampling) -> tuple[float, bool]:
    """Key by which settings are computed together: those without a filter have wide rows."""
    return setting.temperature, setting.masks_tokens


def _least_kept(descending: Floats, settings: Sequence[Sampling]) -> Floats:
    """Least probabilities that filters keep of rows in descending order, (settings, N)."""
    has_top_p = any(x.top_p is not None for x in settings)
    before = np.cumsum(descending, axis=-1) - descending if has_top_p else descending
    least = np.zeros((len(settings), len(descending)))
    for x, floor in zip(settings, least, strict=True):
        mass: Any = 1.0
        if x.top_k is not None and x.top_k < descending.shape[-1]:
            floor[:] = descending[:, x.top_k - 1]
            if not x.joint:
                mass = np.sum(descending, axis=-1, where=descending >= floor[:, None])[:, None]
        if x.top_p is not None and x.top_p < 1:
            last = np.count_nonzero(before < x.top_p * mass, axis=-1)[:, None] - 1
            np.maximum(floor, np.take_along_axis(descending, last, axis=-1)[:, 0], out=floor)
        np.maximum(floor, (x.min_p or 0.0) * descending[:, 0], out=floor)
    return least


class BestTemperature(NamedTuple):
    """Best draft temperature of one position.

    Attributes
    ----------
    temperature : float
    acceptance_rate : float
        Optimal acceptance rate at this temperature.
    upper_bound : float
        Bound on the rate at any temperature within the bounds.
    """

    temperature: float
    acceptance_rate: float
    upper_bound: float

    def tables(self) -> list[Table]:
        """One table of them."""
        return one_table(self)


@of_logits()
def best_draft_temperature(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int = 3,
    *,
    bounds: tuple[float, float] = (0.2, 5.0),
    tolerance: float = 1e-3,
    **options: Unpack[LogitsKeywords],
) -> BestTemperature:
    """Draft temperature that maximises the optimal acceptance rate of K drafts with replacement.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (V,)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    num_drafts : int
    bounds : (float, float)
        Draft temperatures to search, both positive.
    tolerance : float
        Largest gap to the best temperature at which the search ends.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`: of the target
        a temperature and no filter, and neither of the draft.

    Returns
    -------
    BestTemperature
        Temperature and rate, with the bound that was reached if the tolerance takes too many steps.

    Notes
    -----
    The search costs O(V) for each of some dozens of intervals.
    """
    pair = Logits.of(target_logits, draft_logits, options)
    pair.require_open_draft()
    require_no_filter(pair.reading.target)
    search = _Search(*pair.placed(), num_drafts, pair.reading.target.temperature)
    ends = floats(bounds, "bounds")
    if ends.shape != (2,) or not 0.0 < ends[0] <= ends[1] < np.inf:
        raise InvalidInput(f"bounds is {bounds!r:.60}: give two temperatures above 0, rising")
    coldest, hottest = ends.tolist()
    checked_tolerance("tolerance", tolerance)
    low, high = 1.0 / hottest, 1.0 / coldest
    best = max((search.solved(beta)[0], beta) for beta in (low, high, min(max(1.0, low), high)))
    waiting = [(-1.0, low, high)]
    for _ in range(MAX_INTERVALS):
        upper = -waiting[0][0]
        if upper <= best[0] + tolerance:
            break
        _, low, high = heapq.heappop(waiting)
        middle = float(np.sqrt(low * high))
        rate, subset = search.solved(middle)
        best = max(best, (rate, middle))
        upper = min(search.bound(subset, low, middle, high), upper)
        heapq.heappush(waiting, (-upper, low, middle))
        heapq.heappush(waiting, (-upper, middle, high))
    rate, beta = best
    return BestTemperature(1.0 / beta, rate, max(min(-waiting[0][0], 1.0), rate))


def require_no_filter(sampling: Sampling) -> None:
    """Raise `InvalidInput` where tokens are filtered out, as by top-k."""
    if replace(sampling, temperature=1.0).masks_tokens:
        raise InvalidInput("the best draft temperature is not found under top_k, top_p or min_p")


class _Search:
    """Rates and bounds of one position, as functions of the inverse draft temperature."""

    def __init__(self, target: Any, draft: Any, num_drafts: int, temperature: float) -> None:
        self._target = softmax(target, temperature)
        softmax(draft)  # refuses what is no row of logits
        logits = draft.astype(np.float64)
        if self._target.ndim != 1 or self._target.shape != logits.shape:
            raise InvalidInput(
                f"target_logits has shape {self._target.shape}, draft_logits {logits.shape}: give "
                "one position of each, (V,)"
            )
        self._logits = logits - logits.max()
        self._num_drafts = num_drafts

    def solved(self, beta: float) -> tuple[float, Flags]:
        """Optimal acceptance rate at an inverse temperature, and a set H that attains it."""
        from mdsd_opt.solvers import solve

        drafts = WithReplacement(softmax(self._logits * beta), self._num_drafts)
        solution = solve(TransportProblem(self._target, drafts), "subset_selection")
        assert solution.subset is not None
        return solution.acceptance_rate, solution.subset

    def bound(self, subset: Flags, low: float, middle: float, high: float) -> float:
        """Upper bound between low and high, by a set and its tangent in the middle."""
        outside = 1.0 + float(self._target[subset].sum())
        inside = self._logits[subset]
        if not np.isfinite(inside).any():
            return min(outside, 1.0)
        log_z, mean = _log_partition(inside, middle)
        least = min(
            log_z + mean * (beta - middle) - _log_partition(self._logits, beta)[0]
            for beta in (low, high)
        )
        return min(outside - float(np.exp(min(least, 0.0))) ** self._num_drafts, 1.0)


def _log_partition(logits: Vector, beta: float) -> tuple[float, float]:
    """Value of log sum exp(beta l) and its derivative, the mean logit."""
    finite = logits[np.isfinite(logits)]
    largest = float(finite.max())
    weights = np.exp(beta * (finite - largest))
    total = float(weights.sum())
    return beta * largest + float(np.log(total)), float(weights @ finite) / total
