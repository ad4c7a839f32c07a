"""Looks at a sample: where the evidence grows but settles nothing, calls are added up to a limit.

Each look examines all outcomes so far, and accuses at a share of the rate of false alarms of its
own. These shares add up to one, so that a faultless sampler is accused in any of the looks with
the stated rate at most (union bound), whatever it is that makes an audit go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mdsd_opt.auditing.report import LOSSY, NOT_SETTLED, Report
from mdsd_opt.auditing.settings import MAX_DRAWN, Options

R = TypeVar("R", bound=Report)

#: Calls up to each look, as a multiple of those asked for, and its share of the false-alarm rate.
LOOKS = ((1, 0.9), (3, 0.09), (9, 0.01))


def settled(
    look: Callable[[Options], list[R]], options: Options, deadline: float = math.inf
) -> list[R]:
    """Reports of the first look after which nothing points to a fault, or of the last one.

    Parameters
    ----------
    look : callable
        Reports on all outcomes after ``options.num_trials`` calls in all, at the false-alarm rate
        of the given options.
    options : Options
    deadline : float
        Time by `time.perf_counter` after which no other look begins.

    Returns
    -------
    list of Report
        Those that still point to something are "not settled".
    """
    found: list[R] = []
    notes: tuple[str, ...] = ()
    for times, share in LOOKS:
        calls = options.num_trials * times
        if found and time.perf_counter() > deadline:
            notes = (options.up("more calls might have settled it"),)
            break
        if found and calls * options.num_drafts > MAX_DRAWN:
            break
        at = replace(options, num_trials=calls, false_alarm=options.false_alarm * share)
        found = [replace(one, false_alarm=options.false_alarm) for one in look(at)]
        is_lossy = any(one.verdict_class == LOSSY for one in found)
        if is_lossy or not any(one.points_to for one in found):
            return found
    return [unsettled(one, notes) for one in found]


def unsettled(report: R, notes: tuple[str, ...] = ()) -> R:
    """The report, "not settled" if it points to a fault that no more outcomes can settle."""
    if not report.points_to:
        return report
    return replace(report, verdict_class=NOT_SETTLED, notes=(*report.notes, *notes))
