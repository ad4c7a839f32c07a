"""Costs of a run's steps, and its speed beside a run without drafts, by what an engine wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, students_quantile
from mdsd_opt.formats import Run, Speed
from mdsd_opt.planning.costs import PassCost, StepCosts

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
