r"""Search for the draft temperature at which most drafts are accepted, with a certificate.

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
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

import numpy as np

from mdsd_opt.base.array_types import Flags, Vector
from mdsd_opt.base.checked import checked_tolerance, floats
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.sampling import Sampling, softmax
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem

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
