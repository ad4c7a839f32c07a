"""Acceptance rates from what an engine counted: accepted tokens of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.auditing.statistics import rate_interval
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.corpora.intervals import MeanInterval, interval_of_groups
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem.solution import weighted_count


@dataclass(frozen=True, slots=True)
class AcceptedRate:
    """How often one of K drafts was accepted.

    Attributes
    ----------
    num_drafts : int
        K.
    acceptance : MeanInterval
        Accepted places of all that were tried.
    num_steps, num_tries : int
    """

    num_drafts: int
    acceptance: MeanInterval
    num_steps: int
    num_tries: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; missing interval ends are None."""
        return {
            "num_drafts": self.num_drafts,
            **self.acceptance.to_dict(),
            "num_steps": self.num_steps,
            "num_tries": self.num_tries,
        }


def accepted_rates(
    accepted: Any, num_drafts: Any, depth: Any = 1, sequence: Any = None, confidence: float = 0.95
) -> list[AcceptedRate]:
    r"""Acceptance rates from counts of accepted tokens.

    A step drafts K tokens for each of `depth` places, one after another, and ends at the first
    place where none is accepted. With a accepted tokens it has tried :math:`\min(a + 1, depth)`
    places, so that the rate of a place that is tried is

    .. math:: \hat\alpha = \frac{\sum_n a_n}{\sum_n \min(a_n + 1, \mathrm{depth}_n)}.

    Parameters
    ----------
    accepted : array_like of int, shape (N,)
        Accepted draft tokens of each step, without the token that the target adds.
    num_drafts : int or array_like of int, shape (N,)
        K, drafts for one place; 1 for a chain of drafts.
    depth : int or array_like of int, shape (N,)
        Places that were drafted for; 1 where K drafts compete for one token.
    sequence : array_like of int, shape (N,), optional
        Text of each step; without it every step is independent of the others.
    confidence : float

    Returns
    -------
    list of AcceptedRate
        One for each K, ascending. The interval is that of a ratio of sums over texts, or steps,
        and no narrower than the exact one (Clopper-Pearson) of independent tries.

    Raises
    ------
    InvalidInput
        No steps, or counts that do not fit.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> rate = mo.accepted_rates([3, 0, 5, 1, 5, 2], num_drafts=1, depth=5)[0]
    >>> round(rate.acceptance.mean, 3), rate.num_tries
    (0.8, 20)
    """
    counts = _integers(accepted, "accepted")
    if counts.ndim != 1 or counts.size == 0:
        raise InvalidInput(f"accepted has shape {counts.shape}: give one number for each step")
    drafts, depths = (
        _for_each(value, name, counts.size)
        for value, name in ((num_drafts, "num_drafts"), (depth, "depth"))
    )
    texts = np.arange(counts.size) if sequence is None else _integers(sequence, "sequence").ravel()
    if texts.shape != counts.shape:
        raise InvalidInput(f"sequence names {texts.size} steps, and there are {counts.size}")
    if min(drafts.min(), depths.min()) < 1 or counts.min() < 0:
        raise InvalidInput("num_drafts and depth must be at least 1, and accepted at least 0")
    if (counts > depths).any():
        step = int(np.argmax(counts > depths))
        raise InvalidInput(
            f"step {step} has {counts[step]} accepted tokens and depth {depths[step]}: give in "
            "depth for how many places it drafted"
        )
    tries = np.minimum(counts + 1, depths)
    found = []
    for k in np.unique(drafts).tolist():
        here = drafts == k
        hits, tried = int(counts[here].sum()), int(tries[here].sum())
        mean = hits / tried
        _, group = np.unique(texts[here], return_inverse=True)
        off = counts[here] - mean * tries[here]
        deviations = weighted_count(group, off, int(group.max()) + 1)
        spread = interval_of_groups(mean, deviations, tried, confidence)
        exact = rate_interval(hits, tried, confidence)
        interval = MeanInterval(
            mean,
            max(float(np.fmin(spread.low, exact.low)), 0.0),
            min(float(np.fmax(spread.high, exact.high)), 1.0),
            spread.num_groups,
        )
        found.append(AcceptedRate(k, interval, int(here.sum()), tried))
    return found


def _integers(values: Any, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    array = to_numpy(values, name)
    if array.dtype.kind not in "iub":
        raise InvalidInput(f"{name} has dtype {array.dtype}: give integers")
    return array.astype(np.int64)


def _for_each(values: Any, name: str, num_steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    array = _integers(values, name)
    if array.shape not in ((), (num_steps,)):
        raise InvalidInput(f"{name} has shape {array.shape}: give one number, or {num_steps}")
    return np.broadcast_to(array, (num_steps,))
