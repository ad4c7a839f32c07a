"""Compares a rule that is lossy on purpose with the frontier: what it gives away and wastes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mdsd_opt.base.array_types import Vector
from mdsd_opt.evidence import Interval
from mdsd_opt.solvers import CostCurve, distances


@dataclass(frozen=True, slots=True)
class Standing:
    """Place of a rule relative to the frontier of acceptance and distance, see `mdsd_opt.relax`.

    Intervals are those of the report's own numbers, carried over; None where these are known.

    Attributes
    ----------
    lossless_acceptance_rate : float
        alpha*.
    best_acceptance_rate : float
        Largest rate of all rules whose output law is no farther from the target in total variation.
    best_acceptance_interval : Interval or None
    least_tv, least_kl : float
        Least distances of the output laws of all rules that accept as often; KL(output || target)
        in nats.
    least_tv_interval, least_kl_interval : Interval or None
    kl : float or None
        KL(output || target) of the rule; None where its law is not known.
    best_acceptance_rate_at_kl : float or None
        Largest rate of all rules whose output law is no farther in KL.
    """

    lossless_acceptance_rate: float
    best_acceptance_rate: float
    best_acceptance_interval: Interval | None
    least_tv: float
    least_tv_interval: Interval | None
    least_kl: float
    least_kl_interval: Interval | None
    kl: float | None
    best_acceptance_rate_at_kl: float | None


def standing_of(
    tv: float,
    rate: float,
    intervals: tuple[Interval | None, Interval | None],
    costs: CostCurve,
    target: Vector,
    law: Vector | None = None,
) -> Standing:
    """Place of a rule by its distance and rate, their intervals, and its law where that is known.

    The costs are those of the problem's frontier.
    """
    tv_interval, rate_interval = intervals if law is None else (None, None)
    kl = None if law is None else distances(law, target).kl

    def rate_at_tv(tv: float) -> float:
        return min(costs.least + tv, costs.most)

    def tv_of(rate: float) -> float:
        return max(rate - costs.least, 0.0)

    def kl_of(rate: float) -> float:
        return costs.cost("kl", min(rate, costs.most))

    return Standing(
        lossless_acceptance_rate=costs.least,
        best_acceptance_rate=rate_at_tv(tv),
        best_acceptance_interval=_mapped(rate_at_tv, tv_interval),
        least_tv=tv_of(rate),
        least_tv_interval=_mapped(tv_of, rate_interval),
        least_kl=kl_of(rate),
        least_kl_interval=_mapped(kl_of, rate_interval),
        kl=kl,
        best_acceptance_rate_at_kl=None if kl is None else costs.rate_within("kl", kl),
    )


def _mapped(function: Callable[[float], float], interval: Interval | None) -> Interval | None:
    """Image of an interval under a non-decreasing function."""
    return None if interval is None else Interval(function(interval.low), function(interval.high))
