r"""Forecasts of what chains of 1, 2, ... drafts accept, from counts and an assumption.

With :math:`r_i` the share of steps that accept at least i drafts, a chain of k accepts
:math:`W(k) = \sum_{i \le k} r_i`. Counts by position give :math:`r_1 \dots r_K`, and all shorter
chains are known; what is not counted takes an assumption of the rates
:math:`c_i = r_i / r_{i-1}` at which the i-th draft is accepted once it is reached. Several
assumptions give several forecasts, and an interval between them, which no number of requests
narrows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Flags, Floats
from mdsd_opt.base.frames import Result
from mdsd_opt.evidence import MeanInterval, groups_alike, students_quantile
from mdsd_opt.formats import AcceptedCounts, in_stretches, with_groups
from mdsd_opt.planning.costs import StepCosts
from mdsd_opt.planning.options import PricedOption, ends_shown

#: Factor by which, under "fading", each draft is rejected more often than the one before.
FADING = 1.15

#: Number of drafts that, under "uneven", the prior belief in a step's rate is worth.
EVENNESS = 4.0

_REJECTED = "undrafted rejected"

#: The ends of what totals leave open: they bound intervals, and have no part in their middle.
_ALL_OR_NOTHING, _STEEP = "all or nothing", "steep"

#: Number of steps below which shares are of an unknown number, and say nothing of chance.
_FEWEST = 2

_HALVINGS = 48

#: Meaning of each assumption, in the words of tables and notes.
MEANING = {
    "as counted": "shorter chains accept what their positions accepted",
    "alike": "every draft is accepted at the same rate",
    "fading": f"every next draft is rejected {FADING:g} times as often as the one before",
    "uneven": "steps differ: some are easy throughout, so that later drafts hold better",
    _ALL_OR_NOTHING: "the least for shorter chains: each step accepts all of its drafts or none",
    _STEEP: "the most for shorter chains: the first drafts are accepted in full, the last are not",
    "like the last": "further drafts are accepted as the last one counted",
    "on its line": "rates go on changing with depth as they do from the first to the last",
    _REJECTED: "where the engine stopped early, further drafts are rejected",
    "undrafted alike": "where it stopped early, further drafts are accepted as those it drafted",
}


class OldWord:
    """The depth of a chain by the word of the last release, which others have for one place."""

    __slots__ = ()
    depth: Any

    @property
    def num_drafts(self) -> Any:
        """Length of the chain: `depth` says it."""
        _warn_of_old_word()
        return self.depth


def _warn_of_old_word() -> None:
    message = "num_drafts of advice by counts is depth: the old word goes with the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


@dataclass(frozen=True, slots=True)
class CountOption(PricedOption, OldWord, Result):
    """A chain of drafts, with its accepted drafts, step time and speed-up.

    Attributes
    ----------
    depth : float
        Drafts of a step; their mean where the engine stopped early, 0 for plain decoding.
    kind : str
        "none", "as run" for the counts themselves, or "chain" for a forecast.
    accepted : MeanInterval
        Drafts that a step accepts, in the middle of the assumptions but for those at the ends of
        what totals leave open. The ends span chance, where the number of steps is known, and all
        assumptions.
    by_assumption : dict of str to float
        Accepted drafts under each assumption, without what chance adds.
    """

    depth: float
    kind: str
    accepted: MeanInterval
    by_assumption: dict[str, float]

    columns: ClassVar = (
        "name", "kind", "depth", "accepted", "step_ms", "tokens_per_second", "speedup",
        "by_assumption",
    )  # fmt: skip

    @classmethod
    def chain(
        cls,
        depth: float,
        accepted: MeanInterval,
        costs: StepCosts | None,
        kind: str = "chain",
        by_assumption: Mapping[str, float] | None = None,
    ) -> CountOption:
        """Option by its depth and the drafts that it accepts."""
        own = {"kind": kind, "accepted": accepted, "by_assumption": dict(by_assumption or {})}
        return cls.of(accepted, costs, depth, depth=depth, **own)

    @property
    def name(self) -> str:
        if self.kind == "none":
            return "none"
        length = f"{self.depth:.3g}" if self.depth % 1 else f"{self.depth:.0f}"
        return f"{length} as run" if self.kind == "as run" else f"chain{length}"

    @property
    def tokens(self) -> float:
        """Tokens that a step brings: the accepted drafts and one more."""
        return 1.0 + self.accepted.mean

    @property
    def cells(self) -> tuple[str, str, str]:
        """First cells of a table: drafts, accepted and their interval."""
        ends = ends_shown(self.accepted.low, self.accepted.high).strip()
        return self.name, f"{self.accepted.mean:.3f}", ends


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Totals of steps, accepted drafts, drafts and positions; the first axis is of replicates."""

    steps: Floats  # (R,)
    accepted: Floats
    drafted: Floats
    reached: Floats | None  # (R, K)

    def without(self, groups: _Sums) -> _Sums:
        reached = None
        if self.reached is not None and groups.reached is not None:
            reached = self.reached - groups.reached
        return _Sums(
            self.steps - groups.steps,
            self.accepted - groups.accepted,
            self.drafted - groups.drafted,
            reached,
        )


Assumption = Callable[[_Sums, int], Floats]


def forecasts(
    counts: AcceptedCounts,
    most: int = 16,
    confidence: float = 0.95,
    costs: StepCosts | None = None,
) -> tuple[CountOption, ...]:
    """Chains of 1 .. `most` drafts; beside chance, intervals span all assumptions."""
    counts = with_groups(counts)
    curves = {
        name: _with_intervals(
            rule, _of_all_steps(counts) if name == _REJECTED else counts, most, confidence
        )
        for name, rule in _assumptions(counts).items()
    }
    rows = []
    for place in range(most):
        ends = [ends[place].within(0.0, place + 1.0) for ends in curves.values()]
        means = {name: each[place].mean for name, each in curves.items()}
        low, high = (f(getattr(x, e) for x in ends) for f, e in ((min, "low"), (max, "high")))
        likely = [x for name, x in means.items() if name not in (_ALL_OR_NOTHING, _STEEP)]
        middle = (min(likely) + max(likely)) / 2
        accepted = MeanInterval(middle, low, high, counts.num_groups)
        rows.append(CountOption.chain(place + 1, accepted, costs, by_assumption=means))
    return tuple(rows)


def accepted_as_run(counts: AcceptedCounts, confidence: float = 0.95) -> MeanInterval:
    """Accepted drafts of a step as the engine ran, with those that drafted nothing."""
    whole = _of_all_steps(counts)
    return _with_intervals(lambda sums, _: _ratio(sums)[:, None], whole, 1, confidence)[0].within(
        0.0, float(counts.longest)
    )


def _of_all_steps(counts: AcceptedCounts) -> AcceptedCounts:
    """Counts with the steps that drafted nothing among the steps."""
    assert counts.steps is not None
    steps = counts.steps + counts.undrafted
    return replace(counts, steps=steps, undrafted=np.zeros(steps.size))


def _assumptions(counts: AcceptedCounts) -> dict[str, Assumption]:
    k = counts.longest
    if not counts.has_one_length:
        if counts.reached is None:
            rejected: Assumption = lambda sums, most: (  # noqa: E731
                _ratio(sums)[:, None] * np.minimum(np.arange(1, most + 1) / k, 1.0)
            )
        else:
            rejected = lambda sums, most: _beyond(sums, most, np.zeros((1, 1)))  # noqa: E731
        assumptions = {_REJECTED: rejected, "undrafted alike": _alike}
        return assumptions if counts.reached is not None else {**assumptions, _STEEP: _steep}
    if counts.reached is None:
        ends = {_ALL_OR_NOTHING: _all_or_nothing, _STEEP: _steep}
        return {"alike": _alike, "fading": _fading, "uneven": _uneven, **ends}
    if k == 1:
        return {"alike": _go_on_alike, "fading": _fading, "uneven": _uneven}
    return {
        "like the last": _go_on_like_the_last,
        "alike": _go_on_alike,
        "on its line": _go_on_on_the_line,
    }


def _ratio(sums: _Sums) -> Floats:
    return sums.accepted / sums.steps


def _length(sums: _Sums) -> Floats:
    """Mean number of drafts of a step, rounded where it is near a whole number."""
    mean = sums.drafted / sums.steps
    near = np.rint(mean)
    return np.where(np.abs(mean - near) < 0.1, near, mean)


# --- from the mean alone: rates of one family, whose first is what gives the mean ---


def _solved(sums: _Sums, most: int, rates: Callable[[Floats, Floats], Floats]) -> Floats:
    """W(1 .. most) of the member of a family that accepts the mean at the length counted.

    `rates` gives c_i by the first of them, shape (R, 1), and i - 1, shape (1, n).
    """
    length, wanted = _length(sums), _ratio(sums)
    deepest = max(most, int(np.ceil(length.max())))
    depth = np.arange(float(deepest))[None]
    weight = np.clip(length[:, None] - depth, 0.0, 1.0)
    low, high = np.zeros((wanted.size, 1)), np.ones((wanted.size, 1))
    for _ in range(_HALVINGS):
        first = (low + high) / 2
        reached = np.cumprod(rates(first, depth), axis=1)
        short = ((reached * weight).sum(axis=1) < wanted)[:, None]
        low, high = np.where(short, first, low), np.where(short, high, first)
    return np.cumsum(np.cumprod(rates((low + high) / 2, depth), axis=1), axis=1)[:, :most]


def _alike(sums: _Sums, most: int) -> Floats:
    return _solved(sums, most, lambda first, depth: first + 0.0 * depth)


def _fading(sums: _Sums, most: int) -> Floats:
    return _solved(
        sums, most, lambda first, depth: np.maximum(1.0 - (1.0 - first) * FADING**depth, 0.0)
    )


def _uneven(sums: _Sums, most: int) -> Floats:
    """W(1 .. most) where each step has a rate of its own, drawn from a Beta law."""
    return _solved(sums, most, lambda first, depth: (first * EVENNESS + depth) / (EVENNESS + depth))


def _all_or_nothing(sums: _Sums, most: int) -> Floats:
    return (_ratio(sums) / _length(sums))[:, None] * np.arange(1.0, most + 1.0)


def _steep(sums: _Sums, most: int) -> Floats:
    return np.minimum(_ratio(sums)[:, None], np.arange(1.0, most + 1.0))


# --- by position: what is counted, and beyond it the rates c_i that are assumed ---


def _beyond(sums: _Sums, most: int, rates: Floats) -> Floats:
    """W(1 .. most) from the shares counted, and further ones by rates, shape (R or 1, 1 or n)."""
    assert sums.reached is not None
    shares = sums.reached / sums.steps[:, None]
    more = most - shares.shape[1]
    if more > 0:
        each = np.broadcast_to(rates, (shares.shape[0], more))
        shares = np.hstack([shares, shares[:, -1:] * np.cumprod(each, axis=1)])
    return np.cumsum(shares[:, :most], axis=1)


def _rates(sums: _Sums) -> Floats:
    assert sums.reached is not None
    before = np.hstack([sums.steps[:, None], sums.reached[:, :-1]])
    return np.divide(sums.reached, before, out=np.zeros_like(before), where=before > 0)


def _go_on_alike(sums: _Sums, most: int) -> Floats:
    assert sums.reached is not None
    tried = sums.steps + sums.reached[:, :-1].sum(axis=1)
    return _beyond(sums, most, (sums.reached.sum(axis=1) / tried)[:, None])


def _go_on_like_the_last(sums: _Sums, most: int) -> Floats:
    return _beyond(sums, most, _rates(sums)[:, -1:])


def _go_on_on_the_line(sums: _Sums, most: int) -> Floats:
    rates = _rates(sums)
    k = rates.shape[1]
    slope = (rates[:, -1:] - rates[:, :1]) / (k - 1)
    further = rates[:, -1:] + slope * np.arange(1, max(most - k, 1) + 1)
    return _beyond(sums, most, np.clip(further, 0.0, 1.0))


# --- chance ---


def _with_intervals(
    rule: Assumption, counts: AcceptedCounts, most: int, confidence: float
) -> list[MeanInterval]:
    r"""Forecasts with intervals over groups: each is left out in turn (the jackknife).

    The variance is :math:`\frac{G-1}{G} \sum_g (\hat\theta_{-g} - \hat\theta)^2`, with Student's t
    on G - 1 degrees of freedom. Totals of a single run have the largest variance that steps with
    such a mean can have, W (K - W), and steps are taken for independent.
    """
    groups, times = _blocks(counts)
    times_of_all = times
    whole = _Sums(
        np.array([groups.steps @ times]),
        np.array([groups.accepted @ times]),
        np.array([groups.drafted @ times]),
        None if groups.reached is None else (times @ groups.reached)[None],
    )
    means = rule(whole, most)[0]
    size = float(times.sum())
    if size < 2:
        known = int(float(whole.steps[0]) >= _FEWEST)
        return [
            MeanInterval(float(x), float(low), float(high), known)
            for x, low, high in zip(means, *_of_totals(rule, whole, most, confidence), strict=True)
        ]
    there = times > 0
    others = whole.without(groups)
    there &= others.steps > 0
    others, times = _rows(others, there), times[there]
    off = rule(others, most) - means
    half = np.sqrt((size - 1) / size * (times @ off**2)) * students_quantile(
        max(int(groups_alike(groups.steps, times_of_all)) - 1, 1), confidence
    )
    if not there.any() or times.sum() < 2:
        half = np.full(most, np.nan)
    return [
        MeanInterval(float(x), float(x - wide), float(x + wide), round(size))
        for x, wide in zip(means, half, strict=True)
    ]


def _of_totals(
    rule: Assumption, whole: _Sums, most: int, confidence: float
) -> tuple[Floats, Floats]:
    mean, length, steps = _ratio(whole)[0], float(_length(whole)[0]), float(whole.steps[0])
    if steps < _FEWEST:
        return rule(whole, most)[0], rule(whole, most)[0]
    half = students_quantile(max(round(steps) - 1, 1), confidence) * np.sqrt(
        max(mean * (length - mean), 0.0) / steps
    )
    ends = []
    for value in (max(mean - half, 0.0), min(mean + half, length)):
        there = _Sums(whole.steps, np.array([value * steps]), whole.drafted, None)
        ends.append(rule(there, most)[0])
    return ends[0], ends[1]


def _rows(sums: _Sums, flags: Flags) -> _Sums:
    reached = None if sums.reached is None else sums.reached[flags]
    return _Sums(sums.steps[flags], sums.accepted[flags], sums.drafted[flags], reached)


def _blocks(counts: AcceptedCounts) -> tuple[_Sums, Floats]:
    counts = in_stretches(counts)
    steps, drafted = counts.steps, counts.drafted
    assert steps is not None
    assert drafted is not None
    return _Sums(steps, counts.accepted, drafted, counts.reached), counts.times
