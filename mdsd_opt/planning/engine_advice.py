"""Advice by what is given: counts in numbers or files, runs with their own costs, and costs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.checked import check_confidence, checked_integer
from mdsd_opt.base.keywords import by_place, renamed
from mdsd_opt.errors import InvalidInput
from mdsd_opt.formats import (
    DEEPEST,
    AcceptedCounts,
    Contradiction,
    Run,
    Told,
    counts_of,
    of_steps,
    read_counts,
    read_run,
    with_groups,
)
from mdsd_opt.planning.costs import PassCost, RowsCost, StepCosts
from mdsd_opt.planning.count_advice import MAX_DRAFTS, CountAdvice, advice_from_counts
from mdsd_opt.planning.run_costs import measured_speedup, run_costs


class PriceKeywords(TypedDict, total=False):
    """Keywords of `advise_from_counts` for costs."""

    target_ms: PassCost | None
    draft_ms: PassCost | None
    rows_ms: RowsCost | None
    batch: int
    verify_ms: float
    draft_passes: int | None


@renamed("num_drafts", "depth")
@by_place("target_ms", "draft_ms", "rows_ms", "batch")
def advise_from_counts(
    accepted: Any = None,
    drafted: float | None = None,
    by_position: Any = None,
    depth: int | None = None,
    *,
    steps: float | None = None,
    sequence: Any = None,
    max_drafts: int = MAX_DRAFTS,
    speedup: float | None = None,
    confidence: float = 0.95,
    baseline: str | os.PathLike[str] | None = None,
    **costs: Unpack[PriceKeywords],
) -> CountAdvice:
    r"""Find how many drafts pay, from what an engine counted and what its passes cost.

    A chain of k drafts brings :math:`1 + W(k)` tokens in
    :math:`T(b (k + 1)) + k\,c(b) + v` milliseconds, b the texts decoded together, T a target pass
    by its rows and c a draft pass. :math:`W(k) = \sum_{i \le k} r_i` with :math:`r_i` the share of
    steps that accept at least i drafts: counted, or as an assumption has it.

    Parameters
    ----------
    accepted : float, array_like of int, path, or AcceptedCounts
        Accepted drafts: in total, with `drafted` or `steps`; of every step, with `depth`; or
        a file that an engine wrote, as for `read_counts`.
    drafted : float, optional
        Number of drafts in total.
    by_position : (sequence of float, float), optional
        Steps that accepted at least 1, 2, ... drafts, and the number of steps; or shares of the
        steps, with `steps` if their number is known.
    depth : int, optional
        K of the run, which a file says as a rule.
    steps : float, optional
        Number of steps that drafted, where totals are given.
    sequence : array_like of int, optional
        Request of each step.
    max_drafts : int
        Longest chain that is forecast.
    speedup : float, optional
        Speed-up for which `CountAdvice.wanted` says the acceptance that it takes.
    confidence : float
        Confidence of what chance adds to the intervals.
    baseline : path, optional
        With a path in `accepted`: what the engine wrote of a run without drafts. The measured
        speed-up is then beside the forecast; costs that are not given are those of both runs.
    target_ms, draft_ms : float, mapping of int to float, or callable, optional
        Milliseconds of a pass, or by the texts decoded together. Without them nothing is said to be
        worth it.
    rows_ms : mapping of int to float, or callable, optional
        Milliseconds of a target pass by its rows; without it, those of `target_ms` by batch.
    batch : int
        Number of texts that are decoded together.
    verify_ms : float
        Milliseconds of the decision of a step.
    draft_passes : int, optional
        Draft passes of a step: 1 where all drafts come in one pass, 0 where they are looked up;
        one for each draft unless given.

    Returns
    -------
    CountAdvice

    Raises
    ------
    InvalidInput
        Counts cannot be, or K or the number of steps is not known.
    UnreadableFile
        A file is no log of a known engine, or is cut.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> advice = mo.advise_from_counts(
    ...     by_position=([720, 500, 340], 1000), target_ms=20, draft_ms=2, rows_ms={1: 20, 8: 22}
    ... )
    >>> advice.worth_it, advice.best.name
    (True, 'chain4')
    """
    check_asked(max_drafts, confidence)
    if baseline is not None:
        if not isinstance(accepted, (str, os.PathLike)):
            raise InvalidInput("baseline goes with a file that an engine wrote in accepted")
        run = read_run([accepted, baseline], depth)
        return advice_of_run(run, None, max_drafts, speedup, confidence, **costs)
    counts = counts_given(accepted, drafted, by_position, depth, steps, sequence)
    return advice_from_counts(counts, costs_given(**costs), max_drafts, speedup, confidence)


def advice_of_run(
    run: Run,
    costs: StepCosts | None = None,
    max_drafts: int = MAX_DRAFTS,
    speedup: float | None = None,
    confidence: float = 0.95,
    **prices: Unpack[PriceKeywords],
) -> CountAdvice:
    """Advice on a run, with the costs that it tells itself where they are not given.

    One of `target_ms` and `draft_ms` alone takes the place of the run's own.
    """
    counts, note = with_groups(run.counts.complete()), ""
    target_ms, draft_ms = prices.get("target_ms"), prices.get("draft_ms")
    passes, rows_ms = prices.get("draft_passes"), prices.get("rows_ms")
    one_alone = (target_ms is None) != (draft_ms is None) and passes != 0 and rows_ms is None
    if costs is None and not one_alone:
        costs = costs_given(**prices)
    if costs is None:
        if prices.get("verify_ms"):
            raise InvalidInput("verify_ms goes with target_ms and draft_ms")
        whole, batch = replace(run, counts=counts), prices.get("batch")
        costs, note = run_costs(whole, batch, target_ms, draft_ms, passes)
    advice = advice_from_counts(counts, costs, max_drafts, speedup, confidence, note)
    measured = measured_speedup(run, confidence)
    notes = advice.notes
    if run.plain and measured is None:
        notes += (f"{run.plain_name} has other numbers of requests together: nothing to compare",)
    return replace(advice, measured=measured, notes=notes)


def check_asked(max_drafts: int, confidence: float) -> None:
    """Raise `InvalidInput` for lengths or a confidence that cannot be."""
    if checked_integer(max_drafts, "max_drafts") > DEEPEST:
        raise InvalidInput(f"max_drafts is {max_drafts}: give 1 to {DEEPEST}")
    check_confidence(confidence)


def counts_given(
    accepted: Any = None,
    drafted: float | None = None,
    by_position: Any = None,
    depth: int | None = None,
    steps: float | None = None,
    sequence: Any = None,
) -> AcceptedCounts:
    """Counts that the arguments of `advise_from_counts` describe."""
    if isinstance(accepted, AcceptedCounts):
        return accepted
    for name, value in (("accepted", accepted), ("depth", depth)):
        if isinstance(value, (list, tuple)):
            to_numpy(value, name)  # which refuses ragged ones
    if depth is not None and np.ndim(depth) == 0 and _number(depth, "depth") % 1:
        raise InvalidInput(f"depth is {depth}: give an integer")
    if isinstance(accepted, (str, os.PathLike)):
        if any(x is not None for x in (drafted, by_position, steps, sequence)):
            raise InvalidInput(
                "drafted, by_position, steps and sequence are in the file: leave them out"
            )
        return read_counts(accepted, depth)
    if sequence is not None and (by_position is not None or np.ndim(accepted) == 0):
        raise InvalidInput("sequence goes with accepted of single steps: leave it out with totals")
    if by_position is not None:
        return _of_positions(by_position, drafted, depth, steps)
    if accepted is None:
        raise InvalidInput("give accepted, by_position, or a file that an engine wrote")
    if np.ndim(accepted) == 0:
        return _of_totals(_number(accepted, "accepted"), drafted, depth, steps)
    if depth is None:
        raise InvalidInput("accepted is of single steps: give depth, the drafts of each")
    return of_steps(accepted, depth, sequence, "accepted")


def _of_totals(
    accepted: float,
    drafted: float | None,
    depth: int | None,
    steps: float | None,
    by_position: list[float] | None = None,
) -> AcceptedCounts:
    """Counts of one run by its sums alone; steps and drafts follow from each other by K."""
    if depth is None:
        raise InvalidInput("the totals do not say how long a chain is: give depth")
    if drafted is None and steps is None:
        raise InvalidInput("the totals say nothing of steps: give drafted, or the number of steps")
    source = "the totals" if by_position is None else "by_position"
    totals = {"accepted": accepted, "drafted": drafted, "steps": steps, "depth": depth}
    told = {name: Told(name, _number(x, name)) for name, x in totals.items() if x is not None}
    try:
        counts = counts_of(
        source,
        **told,
        positions=None if by_position is None else Told("by_position", by_position),
        unit="runs", assumed=steps is not None and steps <= 1,
        )  # fmt: skip
    except Contradiction as error:
        raise InvalidInput(f"{error.told}, which cannot be: give counts of one run") from None
    if counts is None:
        raise InvalidInput(f"{source}: no step with a draft, so that nothing was accepted or not")
    return with_groups(counts.complete())


def _of_positions(
    positions: Any, drafted: float | None, depth: int | None, steps: float | None
) -> AcceptedCounts:
    if not isinstance(positions, Sequence | np.ndarray):
        raise InvalidInput(f"by_position is {positions!r:.60}: give shares, or (counts, steps)")
    if len(positions) == 2 and isinstance(positions[0], Sequence | np.ndarray):
        positions, steps = positions
    shares = [_number(x, "by_position") for x in positions]
    if depth is not None and depth != len(shares):
        raise InvalidInput(f"by_position has {len(shares)} positions, and depth is {depth}")
    if max(shares, default=0.0) <= 1.0 and (steps is None or any(x % 1 for x in shares)):
        whole = 1.0 if steps is None else _number(steps, "steps")
        shares, steps = [x * whole for x in shares], whole
    if steps is None:
        raise InvalidInput("by_position has counts: give (counts, number of steps)")
    return _of_totals(sum(shares), drafted, len(shares), _number(steps, "steps"), shares)


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is {value!r:.60}: give a number") from error
    if not 0 <= number < np.inf:
        raise InvalidInput(f"{name} is {number}: give a number of at least 0")
    return number


def costs_given(
    target_ms: PassCost | None = None,
    draft_ms: PassCost | None = None,
    rows_ms: RowsCost | None = None,
    batch: int = 1,
    verify_ms: float = 0.0,
    draft_passes: int | None = None,
) -> StepCosts | None:
    """Costs that the arguments of `advise_from_counts` describe; None without any."""
    if draft_ms is None and draft_passes == 0:
        draft_ms = 0.0
    if target_ms is None and isinstance(rows_ms, Mapping) and min(rows_ms, default=0) == 1:
        target_ms = rows_ms[1]
    if target_ms is None or draft_ms is None:
        if batch < 1 or batch % 1:
            raise InvalidInput(f"batch_size is {batch}: give an integer of at least 1")
        if not (target_ms is draft_ms is rows_ms is None):
            missing = "draft_ms" if target_ms is not None else "target_ms"
            raise InvalidInput(
                f"costs without {missing}: give milliseconds of a pass of both models"
            )
        return None
    return StepCosts(target_ms, draft_ms, rows_ms, verify_ms, batch, draft_passes)
