r"""Draft schemes ranked by the acceptance that is possible with them, at equal K.

Search for the draft temperature at which most drafts are accepted, with a certificate.

Let :math:`q_\beta \propto e^{\beta \ell}` with :math:`\beta = 1/T`. The optimal acceptance rate of
K drafts with replacement is :math:`\alpha^*(\beta) = 1 + \min_H [P(H) - q_\beta(H)^K]`, which may
have several local maxima. For any fixed H and any interval of :math:`\beta`

.. math:: \alpha^*(\beta) \le 1 + P(H) - \left( \min_\beta q_\beta(H) \right)^K, \qquad
          \log q_\beta(H) = \log Z_H(\beta) - \log Z(\beta),

where both log-partition functions are convex: the first lies above its tangent, the second below
its chord. The difference of two lines is least at an end of the interval. Branch and bound over
intervals closes the gap between this bound and the best rate found.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np

from mdsd_opt.base.array_types import Flags, Floats, Vector
from mdsd_opt.base.checked import check_truth, checked_names, checked_tolerance, floats
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.sampling import Sampling, softmax
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    DraftScheme,
    FixedPlusDrafts,
    MixtureDrafts,
    SchemeMaker,
    WithoutReplacement,
    WithReplacement,
    checked_num_drafts,
    checked_scheme,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName, UnsupportedScheme
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.planning.draft_search import DraftRows, Rated, ranking
from mdsd_opt.problem import TransportProblem, inclusion_bound

#: Number of intervals after which the search gives up on its tolerance.
MAX_INTERVALS = 4000


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
    The search costs O(V) for each of the intervals, of which there are some dozens.
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


__all__ = [
    "BestTemperature",
    "SchemeComparison",
    "SchemeRate",
    "best_draft_temperature",
    "compare_draft_schemes",
]


#: Factors of the draft's own temperature that are compared.
TEMPERATURE_FACTORS = (0.7, 1.4)

#: Largest K at which all ways to draft are compared, of which there are K + 7.
MAX_DRAFTS = 64

_BEST_TEMPERED = "with_replacement, best draft temperature of each position"


def scheme_label(name: str) -> str:
    """Label of a way to draft, in at most 42 letters if it is one of the package."""
    short = name.replace("best draft temperature of each position", "best draft T of each")
    short = short.replace("draft temperature x ", "draft T x ")
    return short.replace("_", " ").replace("top k", "top-K")


@dataclass(frozen=True, slots=True)
class SchemeRate(Rated):
    """Optimal acceptance rate of one way to draft, and its distance from the best.

    Attributes
    ----------
    scheme : str
    gap : float
        Largest amount that the scheme may reach beyond this on average: it is not zero where its
        best draft temperatures were searched to a tolerance.
    """

    scheme: str
    gap: float = 0.0

    columns: ClassVar = ("scheme", "*acceptance", "behind", "gap")


@dataclass(frozen=True, slots=True)
class SchemeComparison(Result):
    """Draft schemes in order of their optimal acceptance rates, the best first.

    Attributes
    ----------
    num_drafts : int
    num_positions : int
    rates : tuple of SchemeRate
    left_out : tuple of str
        Schemes that do not exist at some position, such as a mixture where there are no more
        tokens than drafts.
    inclusion : MeanInterval or None
        Bound that no law of draft sets exceeds which drafts every token as often as draws without
        replacement do, see `mdsd_opt.inclusion_bound`. None unless asked for.
    """

    num_drafts: int
    num_positions: int
    rates: tuple[SchemeRate, ...]
    left_out: tuple[str, ...]
    inclusion: MeanInterval | None = None

    columns: ClassVar = (
        "num_drafts", "num_positions", "rates", "left_out",
        Column("inclusion_bound", of=lambda compared: compared.inclusion),
    )  # fmt: skip

    @property
    def inclusion_note(self) -> str:
        """Line that states the inclusion bound."""
        assert self.inclusion is not None
        return f"marginals of drafts without replacement allow at most {self.inclusion.shown}"

    def __str__(self) -> str:
        """Table of at most 80 columns."""
        rows = [(scheme_label(row.scheme), row) for row in self.rates]
        table = ranking(f"drafts, K = {self.num_drafts}", rows, self.rates[0])
        return f"{table}\n{self.inclusion_note}" if self.inclusion else table


#: Scheme by its name, or a function that makes one, and the factor of the draft's temperature.
Way = tuple[str | SchemeMaker, float]


def _ways(num_drafts: int) -> dict[str, Way]:
    """Ways to draft that are compared, by their names."""
    sampled = ("with_replacement", "without_replacement")
    ways: dict[str, Way] = {scheme: (scheme, 1.0) for scheme in (*sampled, "greedy", "top_k")}
    for scheme, factor in product(sampled, TEMPERATURE_FACTORS):
        ways[f"{scheme}, draft temperature x {factor:g}"] = scheme, factor
    if num_drafts > 1:
        ways["half with, half without replacement"] = _half_and_half, 1.0
    for fixed in range(1, num_drafts - 1):
        name = f"top {fixed} and {num_drafts - fixed} without replacement"
        ways[name] = partial(_top_and, fixed), 1.0
    return ways


def _rates(rows: DraftRows, num_drafts: int, way: Way) -> Floats:
    """Rates of a way to draft: batched, or by the solver where there are no batched ones."""
    from mdsd_opt.solvers import solve

    scheme, factor = way
    if not callable(scheme):
        warmer = replace(rows.of_draft, temperature=rows.of_draft.temperature * factor)
        return rows.rates(num_drafts, scheme, warmer)

    def rate(problem: TransportProblem) -> float:
        return solve(problem, "subset_selection").acceptance_rate

    return _by_problem(rows, num_drafts, scheme, rate)


def _by_problem(
    rows: DraftRows,
    num_drafts: int,
    make: SchemeMaker,
    measure: Callable[[TransportProblem], float],
) -> Floats:
    """Values of each position's transport problem, shape (N,)."""

    def at(row: int) -> float:
        drafts = make(rows.of_draft.law(rows.draft[row]), num_drafts)
        return measure(TransportProblem(rows.of_target.law(rows.target[row]), drafts))

    return np.array(rows.by_position(at))


def _best_tempered(rows: DraftRows, num_drafts: int) -> tuple[Floats, float]:
    """Rates at the best temperature of each position, and the mean of what they may be short of."""

    def best(row: int) -> BestTemperature:
        return best_draft_temperature(
            rows.target[row], rows.draft[row], num_drafts,
            temperature=rows.of_target.temperature, kind="logits",
        )  # fmt: skip

    _, rates, bounds = np.array(rows.by_position(best)).T
    return rates, float((bounds - rates).mean())


def _half_and_half(q: Floats, num_drafts: int) -> DraftScheme:
    return MixtureDrafts(
        [(0.5, WithReplacement(q, num_drafts)), (0.5, WithoutReplacement(q, num_drafts))]
    )


def _top_and(fixed: int, q: Floats, num_drafts: int) -> DraftScheme:
    """Scheme that drafts the likeliest tokens, and the rest without replacement."""
    likeliest = np.argsort(-q, kind="stable")[:fixed].tolist()
    rest = q.copy()
    rest[likeliest] = 0.0
    if not rest.any():
        raise UnsupportedScheme("no token is left to draw beside the likeliest ones")
    return FixedPlusDrafts(likeliest, WithoutReplacement(rest / rest.sum(), num_drafts - fixed))


def scheme_names(num_drafts: int = 3) -> list[str]:
    """Names of the ways to draft that `compare_draft_schemes` compares."""
    return list(_ways(num_drafts))


@of_logits()
def compare_draft_schemes(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int = 3,
    *,
    schemes: Sequence[str] | None = None,
    best_temperature: bool = False,
    inclusion: bool = False,
    sequence: Any = None,
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
    **options: Unpack[LogitsKeywords],
) -> SchemeComparison:
    """Rank draft schemes by their optimal acceptance rate at equal K.

    Compared are draws with and without replacement at several draft temperatures, greedy, top-K, a
    mixture, and the likeliest tokens beside draws without replacement. The optimum is what the
    `optimal` verifier reaches; what a scheme costs to draw is not part of the comparison.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    num_drafts : int
    schemes : sequence of str, optional
        Names among `scheme_names()`, which are all taken by default; or registered ones, or
        ``"module:attribute"``, see `mdsd_opt.drafts.register`.
    best_temperature : bool
        Whether to compare the best draft temperature of every position too, see
        `best_draft_temperature`. To know it takes the target: it is a limit, not a scheme.
    inclusion : bool
        Whether to bound every law that knows the draft's law alone and drafts each token as often
        as draws without replacement do; it takes longer than their rates.
    sequence : array_like of int, optional
        Sequence of each position, for the intervals; for arrays [B, T, V] it is the first axis
        unless given.
    confidence : float
        Confidence of the intervals.
    num_threads : int, optional
    progress : bool
        Show a progress bar on stderr.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`.

    Returns
    -------
    SchemeComparison

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> compared = mo.compare_draft_schemes([[2.0, 1.0, 0.0]], [[0.0, 1.0, 2.0]], num_drafts=2)
    >>> compared.rates[0].scheme
    'without_replacement, draft temperature x 1.4'
    """
    check_truth(best_temperature=best_temperature, inclusion=inclusion)
    pair = Logits.of(target_logits, draft_logits, options)
    pair.require_open_draft(apart=True)
    if best_temperature:
        require_no_filter(pair.reading.target)
    rows = DraftRows.of(pair, sequence, num_threads)
    if checked_num_drafts(num_drafts) > MAX_DRAFTS and schemes is None:
        raise ProblemTooLarge(
            f"num_drafts is {num_drafts}: all ways to draft are compared up to K = {MAX_DRAFTS}. "
            "Draft fewer tokens, or name some schemes."
        )
    ways = _ways(num_drafts)
    names = [*ways] if schemes is None else checked_names(schemes, "schemes")
    for name in names:
        if name not in ways:
            if name not in SINGLE_MODEL_SCHEMES and ":" not in name:
                raise UnknownName.among("draft scheme", name, [*ways, *SINGLE_MODEL_SCHEMES])
            ways[name] = checked_scheme(name), 1.0
    if not names and not best_temperature:
        raise InvalidInput(f"no schemes given: choose from {', '.join(ways)}")
    by_scheme: dict[str, Floats] = {}
    left_out = []
    gaps: dict[str, float] = {}
    with progress_bar("draft schemes", len(names) + best_temperature, progress) as advance:
        for name in names:
            try:
                by_scheme[name] = _rates(rows, num_drafts, ways[name])
            except UnsupportedScheme:
                left_out.append(name)
            advance(1)
        if best_temperature:
            by_scheme[_BEST_TEMPERED], gaps[_BEST_TEMPERED] = _best_tempered(rows, num_drafts)
    if not by_scheme:
        raise UnsupportedScheme(f"{', '.join(left_out)}: not possible at every position")
    ranked = dict(sorted(by_scheme.items(), key=lambda item: -float(item[1].mean())))
    rated = rows.rated(ranked, next(iter(ranked.values())), confidence)
    rates = tuple(SchemeRate(*means, name, gaps.get(name, 0.0)) for name, means in rated.items())
    bound = None
    if inclusion:
        bounds = _by_problem(rows, num_drafts, WithoutReplacement, inclusion_bound)
        bound = mean_interval(bounds, rows.texts, confidence).within(0.0, 1.0)
    return SchemeComparison(num_drafts, len(rows), rates, tuple(left_out), bound)
