"""Looks at a sample: where the evidence points to a fault but settles nothing, calls are added.

Each look examines all outcomes so far, at a share of its own of the rate of false alarms. These add
up to one, so that a faultless sampler is accused in any look with the stated rate at most (union
bound), whatever it is that makes an audit go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mdsd_opt.base.checked import MAX_SAMPLED
from mdsd_opt.evidence import LOSSY, NOT_SETTLED, Options, Report

R = TypeVar("R", bound=Report)

#: Calls up to each look, as a multiple of those asked for, and its share of the false-alarm rate.
LOOKS = ((1, 0.9), (3, 0.09), (9, 0.01))


def settled(
    look: Callable[[Options], list[R]], options: Options, deadline: float = math.inf
) -> list[R]:
    """Reports of the first look after which nothing points to a fault, or of the last one.

    A look reports on all outcomes after ``options.num_trials`` calls in all, at the rate of false
    alarms of the options it is given. No other one begins after the deadline.
    """
    reports: list[R] = []
    for times, share in LOOKS:
        calls, late = options.num_trials * times, time.perf_counter() > deadline
        if reports and (late or calls * options.num_drafts > MAX_SAMPLED):
            if late:
                note = options.up("more calls might have settled it")
                reports = [replace(one, notes=(*one.notes, note)) for one in reports]
            break
        at = replace(options, num_trials=calls, false_alarm=options.false_alarm * share)
        reports = [replace(one, false_alarm=options.false_alarm) for one in look(at)]
        if any(x.verdict_class == LOSSY for x in reports) or not any(x.points_to for x in reports):
            return reports
    return [unsettled(one) for one in reports]


def unsettled(report: R) -> R:
    """The report, "not settled" if it points to a fault."""
    return replace(report, verdict_class=NOT_SETTLED) if report.points_to else report
