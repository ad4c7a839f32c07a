"""Advice on the length of chains, by what an engine counted and what passes cost."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np

from mdsd_opt.base.checked import check_confidence
from mdsd_opt.base.frames import data_frame, flat
from mdsd_opt.base.keywords import by_place, renamed
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, interval_note
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
from mdsd_opt.planning.advice import ends_shown, speedup_cell
from mdsd_opt.planning.costs import PassCost, RowsCost, StepCosts
from mdsd_opt.planning.count_forecasts import MEANING, Forecast, accepted_as_run, forecasts
from mdsd_opt.planning.policies import (
    Policy,
    acceptance_needed,
    lengths_by_batch,
    policies_of,
)
from mdsd_opt.planning.run_costs import cost_at, measured_speedup, run_costs

#: Longest chain, in drafts, that is forecast.
MAX_DRAFTS = 16

#: Difference up to which speed-ups are equal, so that the shorter chain is chosen.
_EQUAL = 1e-9


class _OldWord:
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
class CountOption(_OldWord):
    """A chain of drafts, with its accepted drafts, step time and speed-up.

    Attributes
    ----------
    depth : float
        Drafts of a step; their mean where the engine stopped early, 0 for plain decoding.
    kind : str
        "none", "as run" for the counts themselves, or "chain" for a forecast.
    accepted : MeanInterval
        Drafts that a step accepts; ends span chance and all assumptions.
    step_ms, tokens_per_second : float, optional
        Milliseconds of a step and tokens a second of the whole batch; None without costs.
    speedup : MeanInterval
        Speed relative to plain decoding. Without costs, the speed where a step is as dear as a
        pass of the target, which is the most that it can be.
    by_assumption : dict of str to float
        Accepted drafts under each assumption.
    """

    depth: float
    kind: str
    accepted: MeanInterval
    step_ms: float | None
    tokens_per_second: float | None
    speedup: MeanInterval
    by_assumption: dict[str, float]

    @property
    def name(self) -> str:
        if self.kind == "none":
            return "none"
        length = f"{self.depth:.3g}" if self.depth % 1 else f"{self.depth:.0f}"
        return f"{length} as run" if self.kind == "as run" else f"chain{length}"

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON; unknown ones are None."""
        return {
            "name": self.name,
            "kind": self.kind,
            "depth": self.depth,
            "accepted": self.accepted.to_dict(),
            "step_ms": self.step_ms,
            "tokens_per_second": self.tokens_per_second,
            "speedup": self.speedup.to_dict(),
            "by_assumption": self.by_assumption,
        }


@dataclass(frozen=True, slots=True, eq=False)
class CountAdvice(_OldWord):
    """Recommended number of drafts by counts of an engine, and the decision whether they pay.

    Attributes
    ----------
    best : CountOption
        Chain that is forecast to bring most tokens a second, in the middle of the assumptions.
        Without costs, and where the engine drafted a varying number and no chain is better under
        every assumption, the counts as they are.
    rows : tuple of CountOption
        Compared options, the fastest first, plain decoding among them.
    worth_it : bool or None
        True where all costs are known and the whole interval of the best is above 1; False where
        every interval is below 1, with what is not known taken in favour of drafts; else None.
    sentence : str
        Decision in words, with its conditions.
    settled_by : str
        Measurement that would narrow it, or "".
    counts : AcceptedCounts
    costs : StepCosts or None
    policies : tuple of Policy
        Ways to vary the number of drafts, with thresholds.
    lengths_by_batch : tuple of (int, int, int)
        (from, to, drafts) for every batch up to 256, where costs are known by batch.
    wanted : str
        Acceptance that the requested speed-up takes, in words, or "".
    notes : tuple of str
        Assumptions of the forecast.
    measured : MeanInterval or None
        Speed of the run relative to the one without drafts that was given as well.
    better_verifier : str
        What another lossless verifier could bring at most, in words.
    """

    best: CountOption
    rows: tuple[CountOption, ...]
    worth_it: bool | None
    sentence: str
    settled_by: str
    counts: AcceptedCounts
    costs: StepCosts | None
    policies: tuple[Policy, ...]
    lengths_by_batch: tuple[tuple[int, int, int], ...]
    wanted: str
    notes: tuple[str, ...]
    measured: MeanInterval | None = None
    better_verifier: str = ""

    @property
    def speedup(self) -> float:
        return self.best.speedup.mean

    @property
    def speedup_interval(self) -> tuple[float, float]:
        return self.best.speedup.low, self.best.speedup.high

    @property
    def depth(self) -> int:
        """Number of drafts of a step to set in an engine; 0 where they do not pay."""
        if self.worth_it is False:
            return 0
        return self.counts.longest if self.best.kind == "as run" else int(self.best.depth)

    def to_pandas(self) -> Any:
        """Data frame with a line for each option; `MissingExtra` without pandas."""
        return data_frame([flat(row.to_dict()) for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON; missing interval ends are None."""
        return {
            "best": self.best.to_dict(),
            "worth_it": self.worth_it,
            "depth": self.depth,
            "sentence": self.sentence,
            "settled_by": self.settled_by,
            "wanted": self.wanted,
            "counts": self.counts.to_dict(),
            "costs": None if self.costs is None else self.costs.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
            "policies": [policy.to_dict() for policy in self.policies],
            "lengths_by_batch": [list(part) for part in self.lengths_by_batch],
            "notes": list(self.notes),
            "measured": None if self.measured is None else self.measured.to_dict(),
            "better_verifier": self.better_verifier,
        }

    def is_counted(self, row: CountOption) -> bool:
        """Whether what a row accepts was counted, not forecast."""
        counted = self.counts.has_one_length and self.counts.reached is not None
        return row.kind != "chain" or row.depth == self.counts.longest or (
            counted and row.depth < self.counts.longest
        )  # fmt: skip

    def __str__(self) -> str:
        """Table of at most 80 columns, with the sentences below."""
        form = "{:<12} {:>8}  {:<15} {:>8} {:>9}  {}"
        lines = [form.format("drafts", "accepted", "", "ms/step", "tokens/s", "speed-up")]
        for row in self.rows:
            numbers = (row.step_ms, row.tokens_per_second)
            lines.append(
                form.format(
                    row.name,
                    f"{row.accepted.mean:.3f}",
                    ends_shown(row.accepted.low, row.accepted.high).strip(),
                    *("" if x is None else f"{x:.2f}" for x in numbers),
                    speedup_cell(row.speedup),
                )
            )
        return "\n".join([*lines, *(x for x in (self.sentence, self.wanted, self.settled_by) if x)])

    @property
    def conclusion(self) -> list[str]:
        """Sentences of the decision, and on what was measured and could be changed."""
        sentences = [self.sentence, self.wanted]
        if self.measured is not None:
            sentences.append(
                f"Measured: the run was {speedup_cell(self.measured)} times as fast as the one "
                "without drafts, with as many requests together."
            )
        return [x for x in (*sentences, self.settled_by, self.better_verifier) if x]


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
        batch, run = costs.get("batch", 1), read_run([accepted, baseline], depth)
        target_ms, draft_ms = costs.get("target_ms"), costs.get("draft_ms")
        known = target_ms is not None and draft_ms is not None
        return advice_of_run(
            run, costs_given(**costs) if known else None, None if batch == 1 else batch, target_ms,
            draft_ms, costs.get("draft_passes"), max_drafts, speedup, confidence,
        )  # fmt: skip
    counts = counts_given(accepted, drafted, by_position, depth, steps, sequence)
    return advice_from_counts(counts, costs_given(**costs), max_drafts, speedup, confidence)


def advice_of_run(
    run: Run,
    costs: StepCosts | None,
    batch: int | None = None,
    target_ms: PassCost | None = None,
    draft_ms: PassCost | None = None,
    draft_passes: int | None = None,
    max_drafts: int = MAX_DRAFTS,
    speedup: float | None = None,
    confidence: float = 0.95,
) -> CountAdvice:
    """Advice on a run, with the costs that it tells itself where they are not given."""
    counts = with_groups(run.counts.complete())
    note = ""
    if costs is None:
        of_run = run_costs(counts, run.plain)
        here = max(round(of_run.usual or 1.0), 1) if batch is None else batch
        passes = (cost_at(target_ms, here), cost_at(draft_ms, here))
        costs, note = of_run.at(here, *passes, draft_passes)
        if costs is None and passes != (None, None):
            missing = "draft_ms" if passes[0] is not None else "target_ms"
            why = f", and {note}" if note else ""
            raise InvalidInput(
                f"costs without {missing}: give milliseconds of a pass of both models{why}"
            )
    advice = advice_from_counts(counts, costs, max_drafts, speedup, confidence, note)
    measured = measured_speedup(run, confidence)
    notes = advice.notes
    if run.plain and measured is None:
        notes += (f"{run.plain_name} has other numbers of requests together: nothing to compare",)
    return replace(advice, measured=measured, notes=notes)


def advice_from_counts(
    counts: AcceptedCounts,
    costs: StepCosts | None,
    max_drafts: int = MAX_DRAFTS,
    speedup: float | None = None,
    confidence: float = 0.95,
    told: str = "",
) -> CountAdvice:
    """Advice by checked counts and costs, as `advise_from_counts` gives it.

    What is told of the costs by the run itself stands among the notes.
    """
    counts = with_groups(counts.complete())
    curve = forecasts(counts, max(max_drafts, counts.longest), confidence)
    chains = [_option(x, costs, counts.num_groups) for x in curve[:max_drafts]]
    as_run = _as_run(counts, costs, confidence)
    plain = _priced(0, "none", MeanInterval(0.0, 0.0, 0.0, 0), costs, {})
    compared = chains if costs is not None else chains[: counts.longest]
    if counts.has_one_length and counts.longest <= max_drafts:
        as_run = chains[counts.longest - 1]
    else:
        compared = [*compared, as_run]
    best = as_run if costs is None else _fastest(chains)
    if not counts.has_one_length and not best.speedup.low > as_run.speedup.mean:
        best = as_run  # what was measured, where no forecast is surely better
    worth_it = _worth_it(best, compared, costs)
    rows = sorted([plain, *compared], key=lambda row: (-row.speedup.mean, row.depth))
    by_batch = () if costs is None else lengths_by_batch(curve[:max_drafts], costs)
    return CountAdvice(
        best=best,
        rows=tuple(rows),
        worth_it=worth_it,
        sentence=_sentence(best, worth_it, counts, costs, told),
        settled_by=_settled_by(best, chains, worth_it, counts, costs),
        counts=counts,
        costs=costs,
        policies=policies_of(curve[:max_drafts], best.depth, costs, by_batch),
        lengths_by_batch=by_batch,
        wanted="" if speedup is None else acceptance_needed(speedup, costs, max_drafts, curve),
        notes=(*_notes(counts, costs, curve, confidence), *([told] if told else [])),
        better_verifier=_better_verifier(counts, as_run),
    )


def _fastest(chains: Sequence[CountOption]) -> CountOption:
    """Fastest chain; of equally fast ones the shortest."""
    return min(chains, key=lambda row: (-round(row.speedup.mean / _EQUAL), row.depth))


# --- what was given ---


def check_asked(max_drafts: int, confidence: float) -> None:
    """Raise `InvalidInput` for lengths or a confidence that cannot be."""
    if not 1 <= max_drafts <= DEEPEST:
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
    if isinstance(accepted, (str, os.PathLike)):
        if any(x is not None for x in (drafted, by_position, steps, sequence)):
            raise InvalidInput(
                "drafted, by_position, steps and sequence are in the file: leave them out"
            )
        return read_counts(accepted, depth)
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
    try:
        counts = counts_of(
        source,
        *(None if x is None else Told(name, float(x)) for name, x in totals.items()),
        positions=None if by_position is None else Told("by_position", by_position),
        unit="runs", assumed=steps is not None and steps <= 1,
        )  # fmt: skip
    except Contradiction as error:
        raise InvalidInput(f"{error.told}, which cannot be: give counts of one run") from None
    if counts is None:
        raise InvalidInput(f"{source}: no step with a draft, so that nothing was accepted or not")
    return with_groups(counts.complete())


def _of_positions(
    given: Any, drafted: float | None, depth: int | None, steps: float | None
) -> AcceptedCounts:
    if len(given) == 2 and np.ndim(given[0]) == 1:
        given, steps = given
    shares = [_number(x, "by_position") for x in given]
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
        if batch < 1:
            raise InvalidInput(f"batch_size is {batch}: give at least 1")
        if not (target_ms is draft_ms is rows_ms is None):
            missing = "draft_ms" if target_ms is not None else "target_ms"
            raise InvalidInput(
                f"costs without {missing}: give milliseconds of a pass of both models"
            )
        return None
    return StepCosts(target_ms, draft_ms, rows_ms, verify_ms, batch, draft_passes)


# --- options ---


def _option(forecast: Forecast, costs: StepCosts | None, groups: int) -> CountOption:
    accepted = MeanInterval(forecast.accepted, forecast.low, forecast.high, groups)
    return _priced(forecast.depth, "chain", accepted, costs, forecast.by_assumption)


def _as_run(counts: AcceptedCounts, costs: StepCosts | None, confidence: float) -> CountOption:
    accepted = accepted_as_run(counts, confidence)
    steps = counts.sum("steps") + counts.sum("undrafted")
    drafted = counts.sum("drafted") / steps
    if abs(drafted - round(drafted)) < _EQUAL:
        drafted = round(drafted)
    return _priced(drafted, "as run", accepted, costs, {})


def _priced(
    depth: float,
    kind: str,
    accepted: MeanInterval,
    costs: StepCosts | None,
    by_assumption: dict[str, float],
) -> CountOption:
    ratio, step, per_second = 1.0, None, None
    if costs is not None:
        step = costs.drafted(depth) if depth else costs.plain()
        ratio = costs.plain() / step
        per_second = 1e3 * costs.batch_size * (1.0 + accepted.mean) / step
    mean, low, high = ((1.0 + x) * ratio for x in (accepted.mean, accepted.low, accepted.high))
    speedup = MeanInterval(mean, low, high, accepted.num_groups)
    return CountOption(depth, kind, accepted, step, per_second, speedup, by_assumption)


# --- the decision ---


def _worth_it(
    best: CountOption, compared: Sequence[CountOption], costs: StepCosts | None
) -> bool | None:
    if costs is None:
        return None
    highest = [
        x.speedup.high if x.speedup.high == x.speedup.high else x.speedup.mean for x in compared
    ]
    if max(highest) < 1.0:
        return False
    low = best.speedup.low
    return True if low > 1.0 and not costs.conditions else None


def _sentence(
    best: CountOption,
    worth_it: bool | None,
    counts: AcceptedCounts,
    costs: StepCosts | None,
    note: str,
) -> str:
    tokens = 1.0 + best.accepted.mean
    ends = ends_shown(1.0 + best.accepted.low, 1.0 + best.accepted.high)
    if costs is None:
        share = best.accepted.mean / best.depth if best.depth else 0.0
        if note:
            return (
                f"Not settled: {note}; a step brings {tokens:.2f} tokens{ends}. That pays if it "
                f"takes less than {tokens:.2f} passes without drafts."
            )
        return (
            f"Nothing is known of costs: {best.name}, a step brings {tokens:.2f} tokens{ends}. "
            f"That pays if a step takes less than {tokens:.2f} passes of the target; if rows are "
            f"free, if a draft takes less than {share:.2f} of one."
        )
    times = (
        f"{best.speedup.mean:.2f} times the speed of plain decoding"
        f"{ends_shown(best.speedup.low, best.speedup.high)}"
    )
    if worth_it is False:
        favour = "".join(f", even if {x}" for x in costs.conditions)
        needed = acceptance_needed(1.0, costs, MAX_DRAFTS, ())
        return f"Not worth it{favour}: the best there is, {best.name}, is {times}. {needed}"
    whole = f" from {costs.batch_size} texts" if costs.batch_size > 1 else ""
    brings = (
        f"{best.name} brings {tokens:.2f} tokens a step, {best.tokens_per_second:.0f} a "
        f"second{whole}, {times}"
    )
    if costs.conditions:
        most = (1.0 + best.accepted.mean) * costs.plain()
        return (
            f"If {' and if '.join(costs.conditions)}: {brings}; it pays as long as a step takes "
            f"less than {most:.1f} ms, and is not settled before that is measured."
        )
    if worth_it:
        chance = "" if counts.sum("steps") >= 2 else ", chance left out"
        return f"Worth it: {brings}{chance}."
    return f"Not settled: {best.name} would be {times}."


def _better_verifier(counts: AcceptedCounts, as_run: CountOption) -> str:
    r"""Sentence on what another verifier of these drafts could accept, at most.

    Every lossless rule couples a token of law p with drafts of law q. It is the first draft with
    probability at most :math:`\sum \min(p, q)`, the share that rejection accepts, and one of K
    drafts at most with K times that; no later draft is accepted more often than the first.
    """
    first = min(as_run.accepted.mean, 1.0)
    if counts.reached is not None:
        first = float(counts.times @ counts.reached[:, 0])
        first /= counts.sum("steps") + counts.sum("undrafted")
    drafts = counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted"))
    block, pairs = (1.0 + min(counts.longest * min(k * first, 1.0), k * drafts) for k in (1, 2))
    return (
        "Would a better verifier help? No lossless one accepts more of single drafts, taken one by "
        f"one, than rejection, which such engines have. A block rule brings at most {block:.2f} "
        f"tokens a step in place of {1.0 + as_run.accepted.mean:.2f} (none more where drafts are "
        f"the likeliest tokens, not drawn), a tree of two drafts a place at most {pairs:.2f}: "
        "logits tell how much."
    )


def _settled_by(
    best: CountOption,
    chains: Sequence[CountOption],
    worth_it: bool | None,
    counts: AcceptedCounts,
    costs: StepCosts | None,
) -> str:
    """Sentence on what to measure next, by what stands in the way first; "" if nothing does."""
    if costs is None:
        return (
            "To settle it: milliseconds of a pass of the target and of the draft at your batch, "
            "and of the target over the rows of a step (--measure writes them)."
        )
    if worth_it is False:
        return ""
    if costs.conditions:
        rows = costs.batch_size * (1 + round(best.depth))
        missing = [] if costs.knows_rows else [f"a target pass over {rows} rows (rows_ms)"]
        if not costs.knows_batch:
            missing.append(f"a draft pass for {costs.batch_size} texts (draft_ms by batch)")
        return f"To settle it: {' and '.join(missing)}."
    names = chains[0].by_assumption
    favourites = {
        round(max(chains, key=lambda row: (1 + row.by_assumption[name]) / (row.step_ms or 1)).depth)
        for name in names
    }
    longest = max(favourites)
    if not counts.has_one_length:
        return (
            f"To settle it: a run that always drafts {longest}, without a stop by confidence, with "
            "acceptance by position."
        )
    if len(favourites) > 1 and (longest > counts.longest or counts.reached is None):
        low = min(favourites)
        return (
            f"Between {low} and {longest} drafts the assumptions differ; to settle it: a run with "
            f"{longest} drafts and acceptance by position."
        )
    least, mean = best.speedup.low, best.speedup.mean
    if worth_it is None and least == least and abs(mean - 1.0) > 0.005:
        more = counts.num_groups * ((mean - least) / abs(mean - 1.0)) ** 2
        return f"To settle it: about {more:.2g} {counts.unit} instead of {counts.num_groups}."
    return ""


def _notes(
    counts: AcceptedCounts,
    costs: StepCosts | None,
    curve: Sequence[Forecast],
    confidence: float,
) -> list[str]:
    total = counts.sum
    notes = [
        f"{counts.source}: {total('accepted'):.0f} of {total('drafted'):.0f} drafts "
        f"accepted in {total('steps'):.0f} steps that drafted"
        + (f", beside {total('undrafted'):.0f} that did not" if counts.undrafted.any() else "")
    ]
    if str(counts.measured):
        notes.append(f"{counts.source} tells of the time: {counts.measured}")
    if total("steps") < 2:
        notes[0] = f"{counts.source}: {total('accepted'):.3f} drafts accepted a step"
        notes.append("shares without the number of steps: intervals leave chance out")
    elif counts.num_groups > 1:
        notes.append(
            interval_note(counts.num_groups, counts.unit, confidence)
            if counts.unit == "requests"
            else f"intervals are at least what {counts.num_groups} {counts.unit} tell: they share "
            "requests, so that counts by request would give wider ones"
        )
    else:
        notes.append(
            "intervals are at least what steps that are independent would tell: counts of each "
            "request would give wider ones"
        )
    notes += [f"{name}: {MEANING[name]}" for name in curve[0].by_assumption]
    notes += counts.notes
    if costs is not None:
        passes = costs.draft_passes
        notes.append(
            "draft passes of a step: " + ("one a draft" if passes is None else f"{passes}")
        )
        notes += [f"taken in favour of drafts: {x}" for x in costs.conditions]
        if costs.rows_ms is None and costs.knows_rows:
            notes.append("a pass over n rows is taken for one of plain decoding at batch n")
    return notes
