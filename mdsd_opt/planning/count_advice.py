"""Advice on the length of chains, by what an engine counted and what passes cost.

Counts come in numbers or files, costs are given or read off the run itself and one without drafts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers, to_numpy
from mdsd_opt.base.checked import check_confidence, checked_integer, real
from mdsd_opt.base.frames import Column, Table
from mdsd_opt.base.keywords import formerly
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, interval_note, students_quantile
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
from mdsd_opt.planning.count_forecasts import CountOption, accepted_as_run, assumed, forecasts
from mdsd_opt.planning.options import (
    SHOWN,
    Recommendation,
    ends_shown,
    engine_flags,
    speedup_cell,
)

#: Longest chain, in drafts, that is forecast.
MAX_DRAFTS = 16

#: Ratio from which a time that was told contradicts one that was given: lines of logs have prefills
#: and idling in them.
_SLOWEST = 1.25

#: Difference up to which speed-ups are equal, so that the shorter chain is chosen.
_EQUAL = 1e-9

#: Acceptances that are tried for the one that a speed-up takes.
_ALPHAS = 10_001

#: Stretches of a log that are nearly independent; its lines share requests.
_STRETCHES = 8

_GONE = {
    "conclusion": "take sentences",
    "policies": "give batch=; docs/tutorials/advice.md has lossless stops",
    "lengths_by_batch": "give batch= for the length of each",
    "num_drafts": "take depth",
}


@dataclass(frozen=True, slots=True, eq=False)
class CountAdvice(Recommendation):
    """Recommended number of drafts by counts of an engine, and the decision whether they pay.

    Attributes
    ----------
    best : CountOption
        Chain that is forecast to bring most tokens a second, in the middle of the assumptions.
        Without costs, and where the engine drafted a varying number and no chain is better under
        every assumption, the counts as they are.
    as_run : CountOption
        The counts as they are.
    rows : tuple of CountOption
        Compared options, the fastest first, plain decoding among them.
    worth_it : bool or None
        True where all costs are known and the whole interval of the best is above 1; False where
        every interval is below 1, with what is not known taken in favour of drafts; else None.
    sentence : str
        Decision in words, with its conditions.
    settled_by : str
        Measurement that would narrow it, or "".
    flags : dict of str to str
        Flags that start vLLM, SGLang and llama.cpp with chains of `depth`.
    counts : AcceptedCounts
    costs : StepCosts or None
    wanted : str
        Acceptance that the requested speed-up takes, in words, or "".
    notes : tuple of str
        What the decision rests on, what weighs most first.
    of_costs : str
        What the run itself tells of its costs, in words, or "".
    measured : MeanInterval or None
        Speed of the run relative to the one without drafts that was given as well.
    better_verifier : str
        What another lossless verifier could bring at most, in words.
    """

    best: CountOption
    as_run: CountOption
    rows: tuple[CountOption, ...]
    counts: AcceptedCounts
    costs: StepCosts | None
    wanted: str
    notes: tuple[str, ...]
    of_costs: str = ""
    measured: MeanInterval | None = None

    columns: ClassVar = (
        "best", "worth_it", "depth", "sentence", "settled_by", "wanted", "flags", "counts", "costs",
        "rows", "notes", "measured", "better_verifier", "contradiction",
    )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} left CountAdvice: {_GONE[name]}" if name in _GONE else name)

    @property
    def contradiction(self) -> str:
        """What the run tells of its time against what the costs say, in words, or ""."""
        told = {n: ms for n, ms in self.counts.measured.by_batch.items() if ms is not None}
        if self.costs is None or self.of_costs or not told:
            return ""
        running, ms = max(told.items(), key=lambda x: x[1])
        batch = self.costs.batch_size if running is None else max(round(running), 1)
        given = replace(self.costs, batch_size=batch).drafted(self.as_run.depth)
        if _SLOWEST * given > ms > given / _SLOWEST:
            return ""
        return (
            f"{self.counts.source} tells of {ms:.3g} ms a pass at batch {batch}, where the costs "
            f"given make {given:.3g} ms: one of the two is wrong, or of another batch. Leave the "
            "milliseconds out and give the log of a run without drafts, too"
        )

    @property
    def depth(self) -> int:
        """Number of drafts of a step to set in an engine; 0 where they do not pay."""
        if self.worth_it is False:
            return 0
        return self.counts.longest if self.best.kind == "as run" else int(self.best.depth)

    @property
    def flags(self) -> dict[str, str]:
        return engine_flags(self.depth)

    def is_counted(self, row: CountOption) -> bool:
        """Whether what a row accepts was counted, not forecast."""
        counted = self.counts.has_one_length and self.counts.reached is not None
        return row.kind != "chain" or row.depth == self.counts.longest or (
            counted and row.depth < self.counts.longest
        )  # fmt: skip

    @property
    def sentences(self) -> list[str]:
        """The decision, what was measured, and what would settle it."""
        if self.counts.forced:
            return [self.sentence]
        measured = self.measured and (
            f"Measured: the run was {speedup_cell(self.measured)} times as fast as the one "
            "without drafts, with as many requests together."
        )
        return [x for x in (self.sentence, measured, self.wanted, self.settled_by) if x]

    def tables(self) -> list[Table]:
        """Chains beside each other; what is known without costs is the most that they can bring."""
        name, *others = CountOption.columns
        known = Column(
            "known_by", "known by", of=lambda row: "count" if self.is_counted(row) else "forecast",
            is_text=True,
        )  # fmt: skip
        title = "speed-up over plain decoding" + (
            "" if self.costs is not None else ", without costs: the most it can be"
        )
        timed = () if self.costs is not None else ("step_ms", "tokens_per_second")
        columns = [name, known, *(x for x in others if x.key not in timed)]
        return [Table(title, columns, self.rows, heading="Chains of drafts", most=SHOWN)]

    @property
    def worth_it(self) -> bool | None:
        """Decision, None where it is not settled."""
        if self.costs is None or self.counts.forced:
            return None
        ends = [x.speedup for x in self.rows if x.kind != "none"]
        if max(x.mean if x.high != x.high else x.high for x in ends) < 1.0:
            return False
        return True if self.best.speedup.low > 1.0 and not self.costs.conditions else None

    @property
    def sentence(self) -> str:
        """Decision in words, with its conditions."""
        if self.counts.forced:
            return (
                f"Not settled: acceptance was forced ({self.counts.forced}), so that these counts "
                "say nothing of the drafts: give a run without that setting."
            )
        told = self.contradiction
        return f"{told}. By the costs given: {self._decision}" if told else self._decision

    @property
    def _decision(self) -> str:
        best, costs = self.best, self.costs
        ends = ends_shown(1.0 + best.accepted.low, 1.0 + best.accepted.high)
        if costs is None:
            share = best.accepted.mean / best.depth if best.depth else 0.0
            brings = f"a step brings {best.tokens:.2f} tokens{ends}"
            if self.of_costs:
                return (
                    f"Not settled: {self.of_costs}; {brings}. That pays if it takes less than "
                    f"{best.tokens:.2f} passes without drafts."
                )
            return (
                f"Nothing is known of costs: {best.name}, {brings}. That pays if a step takes less "
                f"than {best.tokens:.2f} passes of the target; if rows are free, if a draft takes "
                f"less than {share:.2f} of one."
            )
        if self.worth_it is False:
            favour = "".join(f", even if {x}" for x in costs.conditions)
            needed = acceptance_needed(1.0, costs, MAX_DRAFTS)
            return (
                f"Not worth it{favour}: the best there is, {best.name}, is {best.times}. {needed}"
            )
        brings = f"{best.name} {best.brings(best.tokens, costs.batch_size)}"
        if costs.conditions:
            return (
                f"If {' and if '.join(costs.conditions)}: {brings}; it pays as long as a step "
                f"takes less than {best.tokens * costs.plain():.1f} ms, and is not settled before "
                "that is measured."
            )
        if self.worth_it:
            chance = "" if self.counts.sum("steps") >= 2 else ", chance left out"
            return f"Worth it: {brings}{chance}."
        return f"Not settled: {best.name} would be {best.times}."

    @property
    def better_verifier(self) -> str:
        r"""Sentence on what another verifier of these drafts could accept, at most.

        Every lossless rule couples a token of law p with drafts of law q. It is the first draft
        with probability at most :math:`\sum \min(p, q)`, the share that rejection accepts, and one
        of K drafts at most with K times that; no later draft is accepted more often than the first.
        """
        counts, as_run = self.counts, self.as_run
        steps = counts.sum("steps") + counts.sum("undrafted")
        first = min(as_run.accepted.mean, 1.0)
        if counts.reached is not None:
            first = float(counts.times @ counts.reached[:, 0]) / steps
        drafts = counts.sum("drafted") / steps
        block, pairs = (1.0 + min(counts.longest * min(k * first, 1.0), k * drafts) for k in (1, 2))
        return (
            "Would a better verifier help? Of single drafts none accepts more than rejection, as "
            f"engines have it: {as_run.tokens:.2f} tokens a step. A block rule brings "
            f"{block:.2f} at most, a tree of two drafts a place {pairs:.2f}: logits of both models "
            "tell how much (mdsd-opt capture, then rates)."
        )

    @property
    def settled_by(self) -> str:
        """Sentence on what to measure next, by what stands in the way first; "" if nothing does."""
        best, counts, costs, worth_it = self.best, self.counts, self.costs, self.worth_it
        if counts.forced or worth_it is False:
            return ""
        if costs is None:
            return "To settle it: the log of a run without drafts, or milliseconds of passes."
        if costs.conditions:
            rows = costs.batch_size * (1 + round(best.depth))
            missing = (
                [] if costs.knows_rows else [f"a target pass over {rows} rows (rows_ms, --rows-ms)"]
            )
            if not costs.knows_batch:
                missing.append(f"a draft pass for {costs.batch_size} texts (draft_ms, --draft-ms)")
            return f"To settle it: {' and '.join(missing)}."
        chains = sorted((x for x in self.rows if x.kind == "chain"), key=lambda x: x.depth)
        favourites = {
            max(chains, key=lambda row: (1 + row.by_assumption[name]) / (row.step_ms or 1)).depth
            for name in chains[0].by_assumption
        }
        longest, always = max(favourites), "" if counts.has_one_length else " always, never fewer"
        unknown = longest > counts.longest or counts.reached is None
        if always or (len(favourites) > 1 and unknown):
            return f"To settle it: a run of {longest} drafts{always}, with acceptance by position."
        least, mean = best.speedup.low, best.speedup.mean
        if worth_it is None and least == least and abs(mean - 1.0) > 0.005:
            more = counts.num_groups * ((mean - least) / abs(mean - 1.0)) ** 2
            return f"To settle it: about {more:.2g} {counts.unit} instead of {counts.num_groups}."
        return ""


def advice_from_counts(
    counts: AcceptedCounts,
    costs: StepCosts | None,
    max_drafts: int = MAX_DRAFTS,
    speedup: float | None = None,
    confidence: float = 0.95,
    of_costs: str = "",
) -> CountAdvice:
    """Advice by checked counts and costs, as `advise_from_counts` gives it.

    `of_costs`, what the run itself tells of its costs, stands among the notes.
    """
    counts = with_groups(counts.complete())
    chains = forecasts(counts, max_drafts, confidence, costs)
    drafted = counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted"))
    if abs(drafted - round(drafted)) < _EQUAL:
        drafted = round(drafted)
    as_run = CountOption.chain(drafted, accepted_as_run(counts, confidence), costs, "as run")
    plain = CountOption.chain(0, MeanInterval(0.0, 0.0, 0.0, 0), costs, "none")
    compared = [plain, *(chains if costs is not None else chains[: counts.longest])]
    if counts.has_one_length and counts.longest <= max_drafts:
        as_run = chains[counts.longest - 1]
    else:
        compared.append(as_run)
    fastest = min(chains, key=lambda row: (-round(row.speedup.mean / _EQUAL), row.depth))
    best = as_run if costs is None else fastest
    if not counts.has_one_length and not best.speedup.low > as_run.speedup.mean:
        best = as_run  # what was measured, where no forecast is surely better
    return CountAdvice(
        best,
        as_run,
        tuple(sorted(compared, key=lambda row: (-row.speedup.mean, row.depth))),
        counts,
        costs,
        "" if speedup is None else acceptance_needed(speedup, costs, max_drafts, chains[0]),
        tuple(_notes(counts, costs, of_costs, confidence)),
        of_costs,
    )


def _notes(
    counts: AcceptedCounts, costs: StepCosts | None, of_costs: str, confidence: float
) -> Iterator[str]:
    """What the decision rests on: first what may turn it, then where numbers are from."""
    total, unit = counts.sum, counts.unit
    if counts.forced:
        yield f"acceptance was forced, whatever the drafts were: {counts.forced}"
    if costs is not None:
        yield from (f"taken in favour of drafts: {x}" for x in costs.conditions)
        if costs.rows_ms is None and costs.knows_rows:
            yield "a pass over n rows is taken for one of plain decoding at batch n"
    if of_costs:
        yield of_costs
    yield assumed(counts)
    yield from counts.notes
    if total("steps") < 2:
        yield f"{counts.source}: {total('accepted'):.3f} drafts accepted a step"
        yield "shares without the number of steps: intervals leave chance out"
    else:
        beside = total("undrafted")
        yield (
            f"{counts.source}: {total('accepted'):.0f} of {total('drafted'):.0f} drafts accepted "
            f"in {total('steps'):.0f} steps that drafted"
            + (f", beside {beside:.0f} that did not" if beside else "")
        )
        if unit == "requests" and counts.num_groups > 1:
            yield interval_note(counts.num_groups, unit, confidence)
        else:
            of = f"{counts.num_groups} {unit}" if counts.num_groups > 1 else "independent steps"
            yield f"intervals are at least what {of} tell: counts by request would widen them"
    if str(counts.measured):
        yield f"{counts.source} tells of the time: {counts.measured}"
    if costs is not None and costs.draft_passes is not None:
        yield f"draft passes of a step: {costs.draft_passes}"


def _fastest_chains(costs: StepCosts, most: int, alphas: Floats) -> tuple[Floats, Integers]:
    """Best speed-up and length at each acceptance of single drafts, all alike."""
    steps = np.array([costs.drafted(k) for k in range(1, most + 1)])
    tokens = 1.0 + np.cumsum(alphas[:, None] ** np.arange(1, most + 1), axis=1)
    gains = tokens * costs.plain() / steps
    return gains.max(axis=1), gains.argmax(axis=1) + 1


def acceptance_needed(
    speedup: float, costs: StepCosts | None, most: int, first: CountOption | None = None
) -> str:
    """Sentence on the least acceptance of single drafts, all alike, that gives the speed-up.

    Raises `InvalidInput` for a speed-up that is not above 0, or without costs.
    """
    if not 0 < real(speedup) < float("inf"):
        raise InvalidInput(f"speedup is {speedup!r}: give a number above 0, such as 2")
    if costs is None:
        raise InvalidInput(
            f"what a speedup of {speedup:g} takes depends on costs: give target_ms and draft_ms"
        )
    alphas = np.linspace(0.0, 1.0, _ALPHAS)
    gains, lengths = _fastest_chains(costs, most, alphas)
    gives, takes = f"gives a speed-up of {speedup:g}", f"A speed-up of {speedup:g} takes"
    if speedup == 1:
        gives, takes = "breaks even", "Breaking even takes"
    free = "".join(f", if {x}" for x in costs.conditions)
    if gains[-1] < speedup:
        return (
            f"No acceptance {gives} at these costs{free}: with every draft accepted, "
            f"chain{lengths[-1]} is {gains[-1]:.2f} times as fast."
        )
    least = int(np.argmax(gains >= speedup))
    text = f"{takes} an acceptance of {alphas[least]:.2f} at these costs{free}"
    ends = [] if first is None else sorted(first.by_assumption.values())
    has = " to ".join(dict.fromkeys(f"{x:.2f}" for x in (*ends[:1], *ends[-1:])))
    return f"{text} (chain{lengths[least]})" + (f"; the first draft has {has}." if has else ".")


# --- runs: their own costs, and how fast they were ---


def run_costs(
    run: Run,
    target_ms: PassCost | None = None,
    draft_ms: PassCost | None = None,
    rows_ms: RowsCost | None = None,
    batch: int | None = None,
    verify_ms: float = 0.0,
    draft_passes: int | None = None,
) -> tuple[StepCosts | None, str]:
    r"""Costs as given or else as a run with complete counts tells, and where those are from.

    A step with L drafts took S milliseconds, one without P: a draft is taken to cost
    :math:`(S - P) / L`, its pass and its row of the target's pass together. Without P it is what
    drafting took beside L rows that are free. The batch is by default that of most steps, among
    those that the run without drafts has, too. One of `target_ms` and `draft_ms` alone takes the
    place of the run's own.
    """
    if batch is not None:
        checked_integer(batch, "batch_size")
    if draft_passes == 0 and draft_ms is None:
        draft_ms = 0.0
    if target_ms is None and isinstance(rows_ms, Mapping):
        target_ms = rows_ms.get(1)
    if target_ms is not None and draft_ms is not None:
        one = 1 if batch is None else batch
        return StepCosts(target_ms, draft_ms, rows_ms, verify_ms, one, draft_passes), ""
    missing = InvalidInput(
        f"costs without {'target_ms' if target_ms is None else 'draft_ms'}: give milliseconds of a "
        "pass of both models"
    )
    if rows_ms is not None:
        raise missing
    if verify_ms:
        raise InvalidInput("verify_ms goes with target_ms and draft_ms")
    counts, without = run.counts, _milliseconds(run.plain)
    steps = {n or 1.0: ms for n, ms in counts.measured.by_batch.items() if ms is not None}
    if batch is None:
        passes = [x for x in counts.measured.passes if x.ms is not None and x.count > 0]
        often = {n: sum((x.count for x in passes if (x.running or 1.0) == n), 0.0) for n in steps}
        shared = {n for n in steps if _between(without, n) is not None} or {*steps, 1.0}
        usual = max(shared, key=lambda n: often.get(n, 0.0))
        batch = max(round(usual), 1)
    length = counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted"))
    num_passes = length if draft_passes is None else min(float(draft_passes), length)
    drafting, plain = counts.measured.draft_ms, _between(without, batch)
    if draft_ms is not None:
        drafting = StepCosts(1.0, draft_ms, batch_size=batch).draft_pass() * num_passes
    if target_ms is not None:
        plain = StepCosts(target_ms, 0.0, batch_size=batch).plain()
    step = _between(steps, batch)
    took = f"at batch {batch} a step of {length:.3g} drafts took {step or 0.0:.4g} ms"
    if step is None or plain is drafting is None:
        note = f"the run has steps of {_range(steps)}, and none at batch {batch}" if steps else ""
        if step is not None:
            note = took + (f", and the run without drafts has {_range(without)}" if without else "")
        if target_ms is draft_ms is None:
            return None, note
        raise InvalidInput(f"{missing}" + (f", and {note}" if note else ""))
    if plain is None:
        assert drafting is not None
        if drafting >= step:
            raise InvalidInput(f"{took}, and {drafting:.4g} of them drafting: that cannot be")
        own: PassCost = {batch: drafting / num_passes} if drafting and num_passes else 0.0
        costs = StepCosts({batch: step - drafting}, own, None, 0.0, batch, draft_passes)
        return costs, f"{took}, {drafting:.3g} of them drafting, the rest a pass of the target"
    more = max(step - plain, 0.0)
    each: PassCost = {batch: more / num_passes} if num_passes and more else 0.0
    rows = {batch: plain, batch * (1 + round(length)): plain + (0.0 if num_passes else more)}
    note = f"{took}, one without {plain:.4g}: the difference is taken for the drafts' cost"
    note += ", as none, for it is below 0" if step < plain else ""
    return StepCosts({batch: plain}, each, rows, 0.0, batch, draft_passes), note


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
    variance, least = 0.0, len(pairs)
    for deviations, sizes in ((tokens - ratio * same, tokens), (seconds - due, seconds)):
        n = sizes.size
        groups = n if run.counts.unit == "requests" else min(n, _STRETCHES)
        least = min(least, groups)
        if groups > 1:
            of_group = np.bincount(np.arange(n) * groups // n, deviations)
            variance += groups / (groups - 1) * (of_group**2).sum() / sizes.sum() ** 2
    if least < 2:
        return MeanInterval(ratio, np.nan, np.nan, least)
    half = float(students_quantile(least - 1, confidence) * ratio * np.sqrt(variance))
    return MeanInterval(ratio, max(ratio - half, 0.0), ratio + half, least)


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


# --- what is given ---


class PriceKeywords(TypedDict, total=False):
    """Keywords of `advise_from_counts` for costs."""

    target_ms: PassCost | None
    draft_ms: PassCost | None
    rows_ms: RowsCost | None
    batch: int | None
    verify_ms: float
    draft_passes: int | None


@formerly("target_ms", "draft_ms", "rows_ms", "batch", num_drafts="depth")
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
    batch : int, optional
        Number of texts that are decoded together; 1 unless given, of costs that the run tells that
        of most of its steps.
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
    if baseline is None:
        counts = counts_given(accepted, drafted, by_position, depth, steps, sequence)
        run = Run(counts, (), ())
    elif isinstance(accepted, (str, os.PathLike)):
        run = read_run([accepted, baseline], depth)
    else:
        raise InvalidInput("baseline goes with a file that an engine wrote in accepted")
    return advice_of_run(run, max_drafts, speedup, confidence, **costs)


def advice_of_run(
    run: Run,
    max_drafts: int = MAX_DRAFTS,
    speedup: float | None = None,
    confidence: float = 0.95,
    costs: StepCosts | None = None,
    **prices: Unpack[PriceKeywords],
) -> CountAdvice:
    """Advice on a run, with the costs that it tells itself where they are not given."""
    if checked_integer(max_drafts, "max_drafts") > DEEPEST:
        raise InvalidInput(f"max_drafts is {max_drafts}: give 1 to {DEEPEST}")
    check_confidence(confidence)
    run, note = replace(run, counts=with_groups(run.counts.complete())), ""
    if costs is None:
        costs, note = run_costs(run, **prices)
    advice = advice_from_counts(run.counts, costs, max_drafts, speedup, confidence, note)
    measured = measured_speedup(run, confidence)
    if not run.plain or measured is not None:
        return replace(advice, measured=measured)
    other = f"{run.plain_name} has other numbers of requests together: nothing to compare"
    return replace(advice, notes=(other, *advice.notes))


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
    beside = (drafted, by_position, steps, sequence)
    if isinstance(accepted, (str, os.PathLike)):
        if any(x is not None for x in beside):
            raise InvalidInput(
                "drafted, by_position, steps and sequence are in the file: leave them out"
            )
        return read_counts(accepted, depth)
    if sequence is not None and (by_position is not None or np.ndim(accepted) == 0):
        raise InvalidInput("sequence goes with accepted of single steps: leave it out with totals")
    if accepted is by_position is None:
        raise InvalidInput("give accepted, by_position, or a file that an engine wrote")
    if by_position is None and np.ndim(accepted):
        if depth is None or (np.ndim(depth) and np.shape(depth) != np.shape(accepted)):
            of = f", one number, or one for each of {np.size(accepted)} steps"
            raise InvalidInput(f"accepted is of single steps: give depth, the drafts of each{of}")
        return of_steps(accepted, depth, sequence, "accepted")
    source, told = "the totals", {"accepted": accepted, "drafted": drafted, "depth": depth}
    positions = None
    if by_position is not None:
        source = "by_position"
        shares, steps = _positions(by_position, steps)
        if depth is not None and depth != len(shares):
            raise InvalidInput(f"by_position has {len(shares)} positions, and depth is {depth}")
        told |= {"accepted": sum(shares), "depth": len(shares)}
        positions = Told("by_position", shares)
    elif depth is None:
        raise InvalidInput("the totals do not say how long a chain is: give depth")
    elif drafted is steps is None:
        raise InvalidInput(
            f"accepted is {accepted}, a total, which says nothing of steps: give drafted, or the "
            "number of steps"
        )
    numbers = {
        name: Told(name, _number(x, name))
        for name, x in (*told.items(), ("steps", steps)) if x is not None
    }  # fmt: skip
    try:
        counts = counts_of(
            source, **numbers, positions=positions, unit="runs",
            assumed=steps is not None and steps <= 1,
        )  # fmt: skip
    except Contradiction as error:
        raise InvalidInput(f"{error.told}, which cannot be: give counts of one run") from None
    if counts is None:
        raise InvalidInput(f"{source}: no step with a draft, so that nothing was accepted or not")
    return with_groups(counts.complete())


def _positions(given: Any, steps: float | None) -> tuple[list[float], float]:
    """Steps that accepted at least 1, 2, ... drafts, and their number: 1 where only shares are."""
    if not isinstance(given, Sequence | np.ndarray):
        raise InvalidInput(f"by_position is {given!r:.60}: give shares, or (counts, steps)")
    if len(given) == 2 and isinstance(given[0], Sequence | np.ndarray):
        given, steps = given
    counts = [_number(x, "by_position") for x in given]
    whole = 1.0 if steps is None else _number(steps, "steps")
    if max(counts, default=0.0) <= 1.0 and (steps is None or any(x % 1 for x in counts)):
        return [x * whole for x in counts], whole
    if steps is None:
        raise InvalidInput("by_position has counts: give (counts, number of steps)")
    return counts, whole


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is {value!r:.60}: give a number") from error
    if not 0 <= number < np.inf:
        raise InvalidInput(f"{name} is {number}: give a number of at least 0")
    return number
