"""Costs of a run's steps, and its speed beside a run without drafts, by what an engine wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, students_quantile
from mdsd_opt.formats import AcceptedCounts, Run, Speed
from mdsd_opt.planning.costs import PassCost, StepCosts

#: Stretches of a log that are nearly independent; its lines share requests.
_STRETCHES = 8


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Milliseconds of a run's steps by the requests together, and what is told beside them.

    Attributes
    ----------
    steps : dict of float to float
        Milliseconds of a step, with drafting, by requests together.
    plain : dict of float to float
        Milliseconds of a step of the run without drafts.
    drafting : float or None
        Milliseconds of drafting in a step.
    drafts : float
        Drafts of a step, on average.
    usual : float or None
        Requests that were together in most steps; those without drafts, if told, among them.
    """

    steps: dict[float, float]
    plain: dict[float, float]
    drafting: float | None
    drafts: float
    usual: float | None

    def at(
        self,
        batch: int | None,
        target_ms: float | None = None,
        draft_ms: float | None = None,
        draft_passes: int | None = None,
    ) -> tuple[StepCosts | None, str]:
        r"""Costs at a batch, by default the usual one, and a sentence on where they are from.

        A step with L drafts took S milliseconds, one without P: a draft is taken to cost
        :math:`(S - P) / L`, its pass and its row of the target's pass together. Without P it is
        what drafting took beside L rows that are free.
        """
        if batch is None:
            batch = max(round(self.usual or 1.0), 1)
        step, plain = _between(self.steps, batch), _between(self.plain, batch)
        if step is None:
            span = _range(self.steps)
            return None, f"the run has steps of {span}, and none at batch {batch}" if span else ""
        drafting, passes = self.drafting, self.drafts
        if draft_passes is not None:
            passes = min(float(draft_passes), passes)
        if draft_ms is not None:
            drafting = draft_ms * passes
        plain = target_ms if target_ms is not None else plain
        took = f"at batch {batch} a step of {self.drafts:.3g} drafts took {step:.4g} ms"
        if plain is None and drafting is None:
            other = f", and the run without drafts has {_range(self.plain)}" if self.plain else ""
            return None, took + other
        if plain is None:
            assert drafting is not None
            if drafting >= step:
                raise InvalidInput(f"{took}, and {drafting:.4g} of them drafting: that cannot be")
            each = drafting / passes if passes else 0.0
            target = {batch: step - drafting}
            costs = StepCosts(
                target, {batch: each} if each else 0.0, None, 0.0, batch, draft_passes
            )
            return costs, f"{took}, {drafting:.3g} of them drafting, the rest a pass of the target"
        more = max(step - plain, 0.0)
        costs = StepCosts(
            {batch: plain}, {batch: more / passes} if passes and more else 0.0,
            {batch: plain, batch * (1 + round(self.drafts)): plain if passes else plain + more},
            0.0, batch, draft_passes,
        )  # fmt: skip
        note = f"{took}, one without {plain:.4g}: the difference is taken for the drafts' cost"
        return costs, note + (", as none, for it is below 0" if step < plain else "")


def run_costs(counts: AcceptedCounts, plain: Sequence[Speed] = ()) -> RunCosts:
    """Costs that complete counts of a run, and speeds without drafts, tell."""
    without = _milliseconds(plain)
    passes = [x for x in counts.measured.passes if x.ms is not None and x.count > 0]
    steps = {n or 1.0: ms for n, ms in counts.measured.by_batch.items() if ms is not None}
    often = {n: sum(x.count for x in passes if (x.running or 1.0) == n) for n in steps}
    shared = {n for n in steps if _between(without, n) is not None} or {*steps}
    return RunCosts(
        steps,
        without,
        counts.measured.draft_ms,
        counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted")),
        max(shared, key=lambda n: often[n]) if shared else None,
    )


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
    if not table:
        return ""
    low, high = min(table), max(table)
    return f"{low:.3g}" + (f" to {high:.3g}" if high > low else "") + " requests together"


def cost_at(cost: PassCost | None, batch: int) -> float | None:
    """Milliseconds of a given cost at a batch; None where it is not given."""
    return None if cost is None else StepCosts(1.0, cost, batch_size=batch).draft_pass()
