"""Advice by what is given: counts in numbers or files, runs with their own costs, and costs.

Costs of a run's steps, and its speed beside a run without drafts, by what an engine wrote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.checked import check_confidence, checked_integer
from mdsd_opt.base.keywords import by_place, renamed
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, students_quantile
from mdsd_opt.formats import (
    DEEPEST,
    AcceptedCounts,
    Contradiction,
    Run,
    Speed,
    Told,
    counts_of,
    of_steps,
    read_counts,
    read_run,
    with_groups,
)
from mdsd_opt.planning.costs import PassCost, RowsCost, StepCosts
from mdsd_opt.planning.count_advice import MAX_DRAFTS, CountAdvice, advice_from_counts

#: Stretches of a log that are nearly independent; its lines share requests.
_STRETCHES = 8


def run_costs(
    run: Run,
    batch: int | None = None,
    target_ms: PassCost | None = None,
    draft_ms: PassCost | None = None,
    draft_passes: int | None = None,
) -> tuple[StepCosts | None, str]:
    r"""Costs of a run with complete counts, at a batch, and a sentence on where they are from.

    A step with L drafts took S milliseconds, one without P: a draft is taken to cost
    :math:`(S - P) / L`, its pass and its row of the target's pass together. Without P it is what
    drafting took beside L rows that are free. The batch is by default that of most steps, among
    those that the run without drafts has, too. Milliseconds that are given take the place of those
    of the run; one of them alone does not do without it.
    """
    counts, without = run.counts, _milliseconds(run.plain)
    steps = {n or 1.0: ms for n, ms in counts.measured.by_batch.items() if ms is not None}
    if batch is None:
        passes = [x for x in counts.measured.passes if x.ms is not None and x.count > 0]
        often = {n: sum(x.count for x in passes if (x.running or 1.0) == n) for n in steps}
        shared = {n for n in steps if _between(without, n) is not None} or {*steps}
        usual = max(shared, key=lambda n: often[n]) if shared else 1.0
        batch = max(round(usual), 1)
    target = None if target_ms is None else StepCosts(target_ms, 0.0, batch_size=batch).plain()
    draft = None if draft_ms is None else StepCosts(1.0, draft_ms, batch_size=batch).draft_pass()
    length = counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted"))
    num_passes = length if draft_passes is None else min(float(draft_passes), length)
    drafting = counts.measured.draft_ms if draft is None else draft * num_passes
    plain = _between(without, batch) if target is None else target
    step = _between(steps, batch)
    took = f"at batch {batch} a step of {length:.3g} drafts took {step or 0.0:.4g} ms"
    if step is None or plain is drafting is None:
        note = f"the run has steps of {_range(steps)}, and none at batch {batch}" if steps else ""
        if step is not None:
            other = f", and the run without drafts has {_range(without)}" if without else ""
            note = took + other
        if target is draft is None:
            return None, note
        missing = "draft_ms" if target is not None else "target_ms"
        raise InvalidInput(
            f"costs without {missing}: give milliseconds of a pass of both models"
            + (f", and {note}" if note else "")
        )
    if plain is None:
        assert drafting is not None
        if drafting >= step:
            raise InvalidInput(f"{took}, and {drafting:.4g} of them drafting: that cannot be")
        each = drafting / num_passes if num_passes else 0.0
        own = {batch: each} if each else 0.0
        costs = StepCosts({batch: step - drafting}, own, None, 0.0, batch, draft_passes)
        return costs, f"{took}, {drafting:.3g} of them drafting, the rest a pass of the target"
    more = max(step - plain, 0.0)
    costs = StepCosts(
        {batch: plain}, {batch: more / num_passes} if num_passes and more else 0.0,
        {batch: plain, batch * (1 + round(length)): plain if num_passes else plain + more},
        0.0, batch, draft_passes,
    )  # fmt: skip
    note = f"{took}, one without {plain:.4g}: the difference is taken for the drafts' cost"
    return costs, note + (", as none, for it is below 0" if step < plain else "")


def measured_speedup(run: Run, confidence: float = 0.95) -> MeanInterval | None:
    r"""Tokens of a run over those that the run without drafts brings in the same time.

    .. math:: R = \frac{\sum_i n_i}{\sum_i s_i\,v(b_i)}

    n tokens came in s seconds with b requests together, and v tokens a second come without drafts,
    on a line between the b that were measured. Its relative variance is the sum of those of the two
    runs over their requests, or over stretches of lines. None where no b of the run lies between
    those without drafts.
    """
    without = _milliseconds(run.plain)
    pairs = [(x, ms) for x in run.speeds if (ms := _between(without, x.running)) is not None]
    if not pairs:
        return None
    tokens = np.array([x.tokens for x, _ in pairs])
    same = np.array([1000.0 * x.seconds * x.running / ms for x, ms in pairs])
    ratio = float(tokens.sum() / same.sum())
    seconds = np.array([x.seconds for x in run.plain])
    due = np.array([x.tokens * without[x.running] / (1000.0 * x.running) for x in run.plain])
    whole = run.counts.unit == "requests"
    sides = [
        _relative_variance(tokens - ratio * same, tokens, whole),
        _relative_variance(seconds - due, seconds, whole),
    ]
    groups = min(g for _, g in sides)
    if groups < 2:
        return MeanInterval(ratio, np.nan, np.nan, groups)
    error = ratio * np.sqrt(sum(variance for variance, _ in sides))
    half = float(students_quantile(groups - 1, confidence) * error)
    return MeanInterval(ratio, max(ratio - half, 0.0), ratio + half, groups)


def _relative_variance(deviations: Floats, sizes: Floats, whole: bool) -> tuple[float, int]:
    """Relative variance of a sum by deviations of groups, and the number of these."""
    n = sizes.size
    groups = n if whole else min(n, _STRETCHES)
    if groups < 2:
        return 0.0, groups
    of_group = np.zeros(groups)
    np.add.at(of_group, np.arange(n) * groups // n, deviations)
    return float(groups / (groups - 1) * (of_group**2).sum() / sizes.sum() ** 2), groups


def _milliseconds(speeds: Sequence[Speed]) -> dict[float, float]:
    """Milliseconds of a step without drafts, which brings each request a token, by batch."""
    table = {}
    for running in sorted({x.running for x in speeds}):
        of = [x for x in speeds if x.running == running]
        table[running] = 1000.0 * running * sum(x.seconds for x in of) / sum(x.tokens for x in of)
    return table


def _between(table: dict[float, float], batch: float) -> float | None:
    """Value on the line between two entries; None beyond them, up to half a request."""
    if not table or not min(table) - 0.5 <= batch <= max(table) + 0.5:
        return None
    known = sorted(table)
    return float(np.interp(batch, known, [table[n] for n in known]))


def _range(table: dict[float, float]) -> str:
    low, high = min(table), max(table)
    return f"{low:.3g}" + (f" to {high:.3g}" if high > low else "") + " requests together"


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
    if np.ndim(depth) and np.shape(depth) != np.shape(accepted):
        raise InvalidInput(
            f"depth has shape {np.shape(depth)}, and accepted {np.shape(accepted)}: give one "
            "number, or one for each step"
        )
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
        raise InvalidInput(
            f"accepted is {accepted:g}, a total, which says nothing of steps: give drafted, or the "
            "number of steps"
        )
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
