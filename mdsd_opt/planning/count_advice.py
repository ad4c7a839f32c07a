"""Advice on the length of chains, by what an engine counted and what passes cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from mdsd_opt.evidence import MeanInterval, interval_note
from mdsd_opt.formats import AcceptedCounts, with_groups
from mdsd_opt.planning.costs import StepCosts
from mdsd_opt.planning.count_forecasts import (
    MEANING,
    CountOption,
    OldWord,
    accepted_as_run,
    forecasts,
)
from mdsd_opt.planning.options import Recommendation, ends_shown, speedup_cell
from mdsd_opt.planning.policies import Policy, acceptance_needed, lengths_by_batch, policies_of

#: Longest chain, in drafts, that is forecast.
MAX_DRAFTS = 16

#: Ratio from which a time that was told contradicts one that was given: lines of logs have prefills
#: and idling in them.
_SLOWEST = 1.25

#: Difference up to which speed-ups are equal, so that the shorter chain is chosen.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class CountAdvice(Recommendation, OldWord):
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
    of_costs : str
        What the run itself tells of its costs, in words, or "".
    measured : MeanInterval or None
        Speed of the run relative to the one without drafts that was given as well.
    better_verifier : str
        What another lossless verifier could bring at most, in words.
    """

    FORM = "{:<12} {:>8}  {:<15} {:>8} {:>9}  {}"
    HEADINGS = ("drafts", "accepted", "", "ms/step", "tokens/s", "speed-up")
    BELOW = ("sentence", "wanted", "settled_by")

    best: CountOption
    as_run: CountOption
    rows: tuple[CountOption, ...]
    counts: AcceptedCounts
    costs: StepCosts | None
    policies: tuple[Policy, ...]
    lengths_by_batch: tuple[tuple[int, int, int], ...]
    wanted: str
    notes: tuple[str, ...]
    of_costs: str = ""
    measured: MeanInterval | None = None

    columns: ClassVar = (
        "best", "worth_it", "depth", "sentence", "settled_by", "wanted", "counts", "costs", "rows",
        "policies", "lengths_by_batch", "notes", "measured", "better_verifier", "contradiction",
    )  # fmt: skip

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

    def is_counted(self, row: CountOption) -> bool:
        """Whether what a row accepts was counted, not forecast."""
        counted = self.counts.has_one_length and self.counts.reached is not None
        return row.kind != "chain" or row.depth == self.counts.longest or (
            counted and row.depth < self.counts.longest
        )  # fmt: skip

    @property
    def conclusion(self) -> list[str]:
        """Sentences of the decision, and on what was measured and could be changed."""
        if self.counts.forced:
            return [self.sentence]
        sentences = [self.sentence, self.wanted]
        if self.measured is not None:
            sentences.append(
                f"Measured: the run was {speedup_cell(self.measured)} times as fast as the one "
                "without drafts, with as many requests together."
            )
        return [x for x in (*sentences, self.settled_by, self.better_verifier) if x]

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
            needed = acceptance_needed(1.0, costs, MAX_DRAFTS, ())
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
        first = min(as_run.accepted.mean, 1.0)
        if counts.reached is not None:
            first = float(counts.times @ counts.reached[:, 0])
            first /= counts.sum("steps") + counts.sum("undrafted")
        drafts = counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted"))
        block, pairs = (1.0 + min(counts.longest * min(k * first, 1.0), k * drafts) for k in (1, 2))
        return (
            "Would a better verifier help? No lossless one accepts more of single drafts, taken "
            "one by one, than rejection, which such engines have. A block rule brings at most "
            f"{block:.2f} tokens a step in place of {as_run.tokens:.2f} (none more where drafts "
            "are the likeliest tokens, not drawn), a tree of two drafts a place at most "
            f"{pairs:.2f}: logits tell how much."
        )

    @property
    def settled_by(self) -> str:
        """Sentence on what to measure next, by what stands in the way first; "" if nothing does."""
        best, counts, costs, worth_it = self.best, self.counts, self.costs, self.worth_it
        if counts.forced:
            return ""
        if costs is None:
            return (
                "To settle it: milliseconds of a pass of the target and of the draft at your "
                "batch, and of the target over the rows of a step (--measure writes them)."
            )
        if worth_it is False:
            return ""
        if costs.conditions:
            rows = costs.batch_size * (1 + round(best.depth))
            missing = [] if costs.knows_rows else [f"a target pass over {rows} rows (rows_ms)"]
            if not costs.knows_batch:
                missing.append(f"a draft pass for {costs.batch_size} texts (draft_ms by batch)")
            return f"To settle it: {' and '.join(missing)}."
        chains = sorted((x for x in self.rows if x.kind == "chain"), key=lambda x: x.depth)
        favourites = [
            max(chains, key=lambda row: (1 + row.by_assumption[name]) / (row.step_ms or 1)).depth
            for name in chains[0].by_assumption
        ]
        low, longest = min(favourites), max(favourites)
        if not counts.has_one_length:
            return (
                f"To settle it: a run that always drafts {longest}, without a stop by confidence, "
                "with acceptance by position."
            )
        if low < longest and (longest > counts.longest or counts.reached is None):
            return (
                f"Between {low} and {longest} drafts the assumptions differ; to settle it: a run "
                f"with {longest} drafts and acceptance by position."
            )
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
    as_run = _as_run(counts, costs, confidence)
    plain = CountOption.chain(0, MeanInterval(0.0, 0.0, 0.0, 0), costs, "none")
    compared = [plain, *(chains if costs is not None else chains[: counts.longest])]
    if counts.has_one_length and counts.longest <= max_drafts:
        as_run = chains[counts.longest - 1]
    else:
        compared.append(as_run)
    best = as_run if costs is None else _fastest(chains)
    if not counts.has_one_length and not best.speedup.low > as_run.speedup.mean:
        best = as_run  # what was measured, where no forecast is surely better
    rows = sorted(compared, key=lambda row: (-row.speedup.mean, row.depth))
    by_batch = () if costs is None else lengths_by_batch(chains, costs)
    return CountAdvice(
        best,
        as_run,
        tuple(rows),
        counts,
        costs,
        policies_of(chains, best.depth, costs, by_batch),
        by_batch,
        "" if speedup is None else acceptance_needed(speedup, costs, max_drafts, chains),
        (*_notes(counts, costs, chains[0], confidence), *([of_costs] if of_costs else [])),
        of_costs,
    )


def _fastest(chains: Sequence[CountOption]) -> CountOption:
    """Fastest chain; of equally fast ones the shortest."""
    return min(chains, key=lambda row: (-round(row.speedup.mean / _EQUAL), row.depth))


def _as_run(counts: AcceptedCounts, costs: StepCosts | None, confidence: float) -> CountOption:
    drafted = counts.sum("drafted") / (counts.sum("steps") + counts.sum("undrafted"))
    if abs(drafted - round(drafted)) < _EQUAL:
        drafted = round(drafted)
    return CountOption.chain(drafted, accepted_as_run(counts, confidence), costs, "as run")


def _notes(
    counts: AcceptedCounts,
    costs: StepCosts | None,
    first: CountOption,
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
    if counts.forced:
        notes.insert(0, f"acceptance was forced, whatever the drafts were: {counts.forced}")
    notes += [f"{name}: {MEANING[name]}" for name in first.by_assumption]
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
