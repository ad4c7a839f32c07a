r"""Forecasts of what chains of 1, 2, ... drafts accept, from counts and four assumptions.

With :math:`r_i` the share of steps that accept at least i drafts, a chain of k accepts
:math:`W(k) = \sum_{i \le k} r_i`. Counts by position give :math:`r_1 \dots r_K`, and all shorter
chains are known. What is not counted takes an assumption of the rates
:math:`c_i = r_i / r_{i-1}` at which the i-th draft is accepted once it is reached:

============= ========================= ========================= ============================
assumption    by position, beyond K     totals alone              the engine stopped early
============= ========================= ========================= ============================
alike         the mean rate             one rate for all          more drafts do as those drafted
fading        on their line if it falls rejected 1.15 times as    more drafts are rejected
                                        often, draft by draft
uneven        on their line if it rises steps have rates of a
                                        Beta law
like the last the last rate
============= ========================= ========================= ============================

Their forecasts differ, and the interval between them no number of requests narrows. It also holds
what totals allow at the ends, where :math:`r_i` falls with i and no more is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.evidence import MeanInterval, groups_alike, students_quantile
from mdsd_opt.formats import AcceptedCounts, in_stretches, with_groups
from mdsd_opt.planning.costs import StepCosts
from mdsd_opt.planning.options import PRICED, PricedOption

#: Factor by which, under "fading" by totals, each draft is rejected more often than the one before.
FADING = 1.15

#: Number of drafts that, under "uneven" by totals, the prior belief in a step's rate is worth.
EVENNESS = 4.0

#: Number of steps below which shares are of an unknown number, and say nothing of chance.
_FEWEST = 2

_HALVINGS = 48


@dataclass(frozen=True, slots=True)
class CountOption(PricedOption, Result):
    """A chain of drafts, with its accepted drafts, step time and speed-up.

    Attributes
    ----------
    depth : float
        Drafts of a step; their mean where the engine stopped early, 0 for plain decoding.
    kind : str
        "none", "as run" for the counts themselves, or "chain" for a forecast.
    accepted : MeanInterval
        Drafts that a step accepts, in the middle of the assumptions. The ends span chance, where
        the number of steps is known, all assumptions, and what totals leave open.
    by_assumption : dict of str to float
        Accepted drafts under each assumption, without what chance adds.
    """

    depth: float
    kind: str
    accepted: MeanInterval
    by_assumption: dict[str, float]

    columns: ClassVar = (
        Column("name", "drafts", is_text=True), Column("kind", shown=""), Column("depth", shown=""),
        Column("accepted", shown="{0.mean:.3f}"), *PRICED, Column("by_assumption", shown=""),
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


class _Sums(NamedTuple):
    """Totals of steps, accepted drafts, drafts and positions; the first axis is of replicates."""

    steps: Floats  # (R,)
    accepted: Floats
    drafted: Floats
    reached: Floats | None  # (R, K)

    def each(self, change: Callable[[Floats], Floats]) -> _Sums:
        reached = None if self.reached is None else change(self.reached)
        return _Sums(change(self.steps), change(self.accepted), change(self.drafted), reached)

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


#: W(1 .. most) by the sums of replicates, shape (R, most).
Rule = Callable[[_Sums, int], Floats]


def forecasts(
    counts: AcceptedCounts,
    most: int = 16,
    confidence: float = 0.95,
    costs: StepCosts | None = None,
) -> tuple[CountOption, ...]:
    """Chains of 1 .. `most` drafts; beside chance, intervals span all assumptions."""
    counts = with_groups(counts)
    early, by_position = not counts.has_one_length, counts.reached is not None
    rules: dict[str, Rule] = {**_TOTALS}
    ends: list[Rule] = []
    if early:
        rejected = _none_further if by_position else partial(_in_proportion, upto=counts.longest)
        rules = {"alike": _TOTALS["alike"], "fading": rejected}
        ends = [] if by_position else [_first_in_full]
    elif not by_position:
        ends = [_in_proportion, _first_in_full]
    elif counts.longest > 1:
        rules = {name: partial(_beyond, rates=rates) for name, rates in _FURTHER.items()}

    def curve(rule: Rule) -> list[MeanInterval]:
        whole = early and rule is rules["fading"]
        of = _of_all_steps(counts) if whole else counts
        return _with_intervals(rule, of, most, confidence)

    curves = {name: curve(rule) for name, rule in rules.items()}
    every = [*curves.values(), *map(curve, ends)]
    rows = []
    for place in range(most):
        means = {name: each[place].mean for name, each in curves.items()}
        each = [x[place].within(0.0, place + 1.0) for x in every]
        middle = (min(means.values()) + max(means.values())) / 2
        low, high = min(x.low for x in each), max(x.high for x in each)
        accepted = MeanInterval(middle, low, high, counts.num_groups)
        rows.append(CountOption.chain(place + 1, accepted, costs, by_assumption=means))
    return tuple(rows)


def assumed(counts: AcceptedCounts) -> str:
    """Sentence on what the forecasts of chains assume that were not counted."""
    if not counts.has_one_length:
        return (
            "the engine stopped some chains early: intervals span that the drafts it left out are "
            "accepted as those it drafted, and that they are rejected"
        )
    if counts.reached is None or counts.longest == 1:
        return (
            "other lengths were not run: intervals span that all drafts of a step are accepted "
            f"equally often, that each is rejected {FADING:g} times as often as the one before, "
            "and that later ones hold better, as steps differ"
        )
    return (
        f"more than {counts.longest} drafts were not run: intervals span that later ones are "
        "accepted as often as the last one, as the mean, less and less often, or more and more"
    )


def accepted_as_run(counts: AcceptedCounts, confidence: float = 0.95) -> MeanInterval:
    """Accepted drafts of a step as the engine ran, with those that drafted nothing."""
    (mean,) = _with_intervals(
        lambda sums, _: _ratio(sums)[:, None], _of_all_steps(counts), 1, confidence
    )
    return mean.within(0.0, float(counts.longest))


def _of_all_steps(counts: AcceptedCounts) -> AcceptedCounts:
    """Counts with the steps that drafted nothing among the steps."""
    assert counts.steps is not None
    steps = counts.steps + counts.undrafted
    return replace(counts, steps=steps, undrafted=np.zeros(steps.size))


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
    depth = np.arange(float(max(most, int(np.ceil(length.max())))))[None]
    weight = np.clip(length[:, None] - depth, 0.0, 1.0)
    low, high = np.zeros((wanted.size, 1)), np.ones((wanted.size, 1))
    for _ in range(_HALVINGS):
        first = (low + high) / 2
        reached = np.cumprod(rates(first, depth), axis=1)
        short = ((reached * weight).sum(axis=1) < wanted)[:, None]
        low, high = np.where(short, first, low), np.where(short, high, first)
    return np.cumsum(np.cumprod(rates((low + high) / 2, depth), axis=1), axis=1)[:, :most]


_TOTALS: dict[str, Rule] = {
    "alike": partial(_solved, rates=lambda first, depth: first + 0.0 * depth),
    "fading": partial(
        _solved, rates=lambda first, depth: np.maximum(1.0 - (1.0 - first) * FADING**depth, 0.0)
    ),
    "uneven": partial(
        _solved, rates=lambda first, depth: (first * EVENNESS + depth) / (EVENNESS + depth)
    ),
}


def _in_proportion(sums: _Sums, most: int, upto: float = np.inf) -> Floats:
    """W(1 .. most) where each step accepts all of its drafts or none, of chains up to a length."""
    length = upto if np.isfinite(upto) else _length(sums)[:, None]
    return _ratio(sums)[:, None] / length * np.minimum(np.arange(1.0, most + 1.0), upto)


def _first_in_full(sums: _Sums, most: int) -> Floats:
    """W(1 .. most) where the first drafts are all accepted, and the last are not."""
    return np.minimum(_ratio(sums)[:, None], np.arange(1.0, most + 1.0))


# --- by position: what is counted, and beyond it the rates c_i that are assumed ---


def _beyond(sums: _Sums, most: int, rates: Callable[[_Sums, Floats], Floats]) -> Floats:
    """W(1 .. most) from the shares counted, and further ones by rates, shape (R or 1, 1 or n)."""
    assert sums.reached is not None
    shares = sums.reached / sums.steps[:, None]
    more = most - shares.shape[1]
    if more > 0:
        further = rates(sums, np.arange(1.0, more + 1.0))
        each = np.broadcast_to(further, (shares.shape[0], more))
        shares = np.hstack([shares, shares[:, -1:] * np.cumprod(each, axis=1)])
    return np.cumsum(shares[:, :most], axis=1)


def _counted(sums: _Sums) -> Floats:
    """Rates c_1 .. c_K."""
    assert sums.reached is not None
    before = np.hstack([sums.steps[:, None], sums.reached[:, :-1]])
    return np.divide(sums.reached, before, out=np.zeros_like(before), where=before > 0)


def _mean_rate(sums: _Sums, _: Floats) -> Floats:
    assert sums.reached is not None
    tried = sums.steps + sums.reached[:, :-1].sum(axis=1)
    return (sums.reached.sum(axis=1) / tried)[:, None]


def _on_their_line(sums: _Sums, further: Floats, least: float, most: float) -> Floats:
    """Rates that go on as from the first to the last, where the slope is within the bounds."""
    rates = _counted(sums)
    slope = (rates[:, -1:] - rates[:, :1]) / (rates.shape[1] - 1)
    return np.clip(rates[:, -1:] + np.clip(slope, least, most) * further, 0.0, 1.0)


_FURTHER: dict[str, Callable[[_Sums, Floats], Floats]] = {
    "like the last": lambda sums, _: _counted(sums)[:, -1:],
    "alike": _mean_rate,
    "fading": partial(_on_their_line, least=-1.0, most=0.0),
    "uneven": partial(_on_their_line, least=0.0, most=1.0),
}

_none_further: Rule = partial(_beyond, rates=lambda _, __: np.zeros((1, 1)))


# --- chance ---


def _with_intervals(
    rule: Rule, counts: AcceptedCounts, most: int, confidence: float
) -> list[MeanInterval]:
    r"""Forecasts with intervals over groups: each is left out in turn (the jackknife).

    The variance is :math:`\frac{G-1}{G} \sum_g (\hat\theta_{-g} - \hat\theta)^2`, with Student's t
    on G - 1 degrees of freedom. Totals of a single run have the largest variance that steps with
    such a mean can have, W (K - W), and steps are taken for independent.
    """
    blocks = in_stretches(counts)
    steps, drafted, times = blocks.steps, blocks.drafted, blocks.times
    assert steps is not None
    assert drafted is not None
    groups = _Sums(steps, blocks.accepted, drafted, blocks.reached)
    whole = groups.each(lambda x: (times @ x)[None])
    means, size = rule(whole, most)[0], float(times.sum())
    if size < 2:
        known = float(whole.steps[0]) >= _FEWEST
        ends = _of_totals(rule, whole, most, confidence) if known else (means, means)
        return [
            MeanInterval(float(x), float(low), float(high), int(known))
            for x, low, high in zip(means, *ends, strict=True)
        ]
    others = whole.without(groups)
    there = (times > 0) & (others.steps > 0)
    half = np.full(most, np.nan)
    if times[there].sum() >= 2:
        off = rule(others.each(lambda x: x[there]), most) - means
        freedom = max(int(groups_alike(steps, times)) - 1, 1)
        half = np.sqrt((size - 1) / size * (times[there] @ off**2))
        half *= students_quantile(freedom, confidence)
    return [
        MeanInterval(float(x), float(x - wide), float(x + wide), round(size))
        for x, wide in zip(means, half, strict=True)
    ]


def _of_totals(rule: Rule, whole: _Sums, most: int, confidence: float) -> tuple[Floats, Floats]:
    """Forecasts at the ends of what chance lets the mean be."""
    mean, length, steps = _ratio(whole)[0], float(_length(whole)[0]), float(whole.steps[0])
    quantile = students_quantile(max(round(steps) - 1, 1), confidence)
    half = quantile * np.sqrt(max(mean * (length - mean), 0.0) / steps)
    low, high = (
        rule(whole._replace(accepted=np.array([x * steps])), most)[0]
        for x in (max(mean - half, 0.0), min(mean + half, length))
    )
    return low, high
