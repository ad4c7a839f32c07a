"""Advice by rates and costs: the scheme and tree that bring most tokens a second, and the gain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import numpy as np

from mdsd_opt.base.checked import checked_integer, checked_names
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.drafts import title_of
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, interval_note, mean_interval
from mdsd_opt.planning.costs import COST_NAMES, CostKeywords, StepCosts
from mdsd_opt.planning.options import (
    PRICED,
    SHOWN,
    PricedOption,
    Recommendation,
    ends_shown,
    engine_flags,
)
from mdsd_opt.planning.tree_forecasts import (
    MAX_WIDTH,
    Paths,
    PositionRates,
    TreeCandidate,
    TreeForecasts,
    rates_config,
    rates_of_paths,
    rates_of_sample,
)
from mdsd_opt.trees import Topology

#: Schemes that are compared unless others are named.
SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")

#: Largest number of drafts of a tree.
MAX_DRAFTS = 64

#: Options by which logits of files are read; their arrays have the others.
_OF_FILES = {
    "temperature", "draft_temperature", "top_k", "top_p", "min_p", "joint", "pad", "kind",
}  # fmt: skip

#: Number of candidates, the best by the mean rates, that are forecast along the texts.
_MOST_FORECAST = 16

#: Batch sizes at which speed-ups are computed.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_ONE = "one draft"

#: Ends of an interval, in a document.
_Ends = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Option(PricedOption, Result):
    """One way to decode, with its forecast accepted drafts, step time and speed-up.

    Attributes
    ----------
    scheme : str
        "none" is plain decoding, "one draft" a chain of drafts that are sampled one by one.
    tree : Topology or None
    accepted : float
        Expected number of drafts that a step accepts. Along texts, the ends of the speed-up span
        what steps that run beyond the end of one may meet.
    """

    scheme: str
    tree: Topology | None
    accepted: float

    columns: ClassVar = (
        Column("scheme", "drafts", lambda scheme: scheme_title(scheme), is_text=True),
        Column("tree", of="tree.name", is_text=True), Column("num_drafts", shown=""),
        Column("depth", shown=""),
        Column("accepted", shown="{0:.3f}"), *PRICED,
    )  # fmt: skip

    @property
    def tree_name(self) -> str:
        return "" if self.tree is None else self.tree.name

    @property
    def num_drafts(self) -> int:
        return 0 if self.tree is None else self.tree.num_nodes

    @property
    def depth(self) -> int:
        return 0 if self.tree is None else self.tree.depth

    @property
    def in_words(self) -> str:
        """The tree in words, such as "8 drafts in 3 levels: 4, 3, 1"."""
        if self.tree is None:
            return "no drafts"
        levels = [0] * self.tree.depth
        for path, count in self.tree.num_drafts.items():
            levels[len(path)] += count
        drafts = f"{self.tree.num_nodes} draft{'s' if self.tree.num_nodes > 1 else ''}"
        if len(levels) == 1:
            return f"{drafts} for one place"
        if max(levels) == 1:
            return f"{drafts}, one after another"
        return f"{drafts} in {len(levels)} levels: {', '.join(map(str, levels))}"


@dataclass(frozen=True, slots=True)
class BatchPoint(Result):
    """Speed-ups over plain decoding of the best chain of single drafts and of the best tree."""

    batch_size: int
    chain: float
    tree: float
    tree_name: str
    scheme: str

    columns: ClassVar = (
        Column("batch_size", "batch"), Column("chain", "single\ndrafts", "{0:.2f}"),
        Column("tree", "best tree", "{0:.2f}"), Column("tree_name", "tree", is_text=True),
        Column("scheme", "drafts", lambda scheme: scheme_title(scheme), is_text=True),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice(Recommendation):
    """Scheme and tree that bring most tokens a second, and the decision whether they are worth it.

    Attributes
    ----------
    best : Option
    scheme : str
    tree : Topology
        "3x1" is three drafts at one position, "chain3" one at each of three.
    num_drafts : int
        Number of drafts of the tree.
    tokens_per_step : float
        Expected tokens of a step: the accepted drafts and one more.
    tokens_per_second : float
        Tokens a second of the whole batch.
    speedup, speedup_interval : float, (float, float)
        Speed relative to plain decoding. The interval is over texts, and NaN where there are not
        two.
    speedup_over_single, speedup_over_single_interval : float, (float, float)
        Speed relative to the best chain of single drafts.
    worth_it : bool
        False where the whole interval of `speedup` lies below 1.
    single_acceptance : float
        Acceptance rate of a single draft.
    break_even_acceptance : float
        Acceptance rate at which one draft at a time is as fast as plain decoding; above one where
        that cannot be.
    rows : tuple of Option
        Compared ways to decode, the fastest first: plain decoding, single drafts, and for every
        scheme the best number of drafts at one position and the best tree.
    batches : tuple of BatchPoint
        Speed-ups by batch size; empty unless passes are known by their rows.
    costs : StepCosts
    flags : dict of str to str
        Flags that start SGLang with such a tree, of a chain vLLM and llama.cpp, too.
    notes : tuple of str
        Assumptions, each with the error that it may make.
    """

    best: Option
    over_single: MeanInterval
    single_acceptance: float
    break_even_acceptance: float
    rows: tuple[Option, ...]
    batches: tuple[BatchPoint, ...]
    costs: StepCosts
    notes: tuple[str, ...]

    columns: ClassVar = (
        "scheme", "num_drafts", "tokens_per_step", "tokens_per_second", "speedup",
        "speedup_over_single", "worth_it", "single_acceptance", "break_even_acceptance",
        "crossover", "sentence",
        Column("speedup_interval", of=lambda x: _known(x.speedup_interval), holds=_Ends),
        Column("speedup_over_single_interval",
            of=lambda x: _known(x.speedup_over_single_interval), holds=_Ends),
        Column("tree", of="tree.name"), Column("nodes", of="tree.placed"),
        "flags", "costs", "rows", "batches", "notes",
    )  # fmt: skip

    @property
    def scheme(self) -> str:
        return self.best.scheme

    @property
    def tree(self) -> Topology:
        assert self.best.tree is not None
        return self.best.tree

    @property
    def num_drafts(self) -> int:
        return self.tree.num_nodes

    @property
    def flags(self) -> dict[str, str]:
        widest = max(self.tree.num_drafts.values())
        return engine_flags(self.tree.depth if self.worth_it else 0, widest, self.num_drafts)

    @property
    def tokens_per_step(self) -> float:
        return 1.0 + self.best.accepted

    @property
    def tokens_per_second(self) -> float:
        assert self.best.tokens_per_second is not None
        return self.best.tokens_per_second

    @property
    def speedup_over_single(self) -> float:
        return self.over_single.mean

    @property
    def speedup_over_single_interval(self) -> tuple[float, float]:
        return self.over_single.low, self.over_single.high

    @property
    def worth_it(self) -> bool:
        high = self.best.speedup.high
        return not (self.speedup if high != high else high) < 1.0

    @property
    def crossover(self) -> int | None:
        """First batch size from which on plain decoding is faster; None without one."""
        slower: list[int] = []
        for point in self.batches:
            slower = [*slower, point.batch_size] if point.tree < 1 else []
        return slower[0] if slower else None

    @property
    def sentences(self) -> list[str]:
        """Decision in words, and the batch at which it turns."""
        return [self.sentence, *([self._crossing] if self.batches else [])]

    @property
    def _crossing(self) -> str:
        if self.crossover is None:
            last = self.batches[-1].batch_size
            return f"Drafts are the faster way up to a batch of {last}, the largest looked at."
        if self.crossover == self.batches[0].batch_size:
            return "Plain decoding is faster at every batch looked at."
        return f"From a batch of {self.crossover} on, plain decoding is faster."

    def tables(self) -> list[Table]:
        """Tables of the options and, where passes are known by their rows, of batches."""
        title = "tokens a second, by the rates of these logits; higher is better"
        options = Table(title, Option.columns, self.rows, heading="Options", most=SHOWN)
        if not self.batches:
            return [options]
        title = "speed-up over plain decoding by the texts that are decoded together"
        return [options, Table(title, BatchPoint.columns, self.batches, heading="Batches")]

    @property
    def sentence(self) -> str:
        """Decision in words."""
        best = f"{self.tree.name} ({scheme_title(self.scheme)})"
        if self.worth_it and not self.best.speedup.low < 1 and self.speedup > 1:
            conditions = " and ".join(self.costs.conditions)
            brings = self.best.brings(self.tokens_per_step, self.costs.batch_size)
            text = f"Worth it{conditions and f' if {conditions}'}: {best} {brings}"
            if self.scheme == _ONE:
                return f"{text}; no tree is faster than single drafts."
            of_single = ends_shown(*self.speedup_over_single_interval)
            return f"{text}, {self.speedup_over_single:.2f} times that of single drafts{of_single}."
        if self.worth_it:
            return f"Not settled: {best} would be {self.best.times}; more texts narrow that."
        even = "no acceptance of one draft would break even"
        if self.break_even_acceptance <= 1:
            even = f"one draft breaks even at acceptance {self.break_even_acceptance:.2f}"
        return (
            f"Not worth it: the best there is, {best}, is {self.best.times}; {even}, and "
            f"{self.single_acceptance:.2f} is what it has."
        )


def scheme_title(scheme: str) -> str:
    """Title of an option in tables."""
    return scheme if scheme in ("none", _ONE) else title_of(scheme)


def _known(ends: tuple[float, float]) -> tuple[float, float] | None:
    return None if ends[0] != ends[0] else ends


class AdviceKeywords(LogitsKeywords, CostKeywords, total=False):
    """Keywords of `advise`."""


@of_logits(
    StepCosts,
    late=("target_ms", "draft_ms", "rows_ms", "verify_ms", "max_drafts", "temperature", "sequence"),
)
def advise(
    target_logits: Any,
    draft_logits: Any = None,
    *,
    max_drafts: int = 16,
    sequence: Any = None,
    position: Any = None,
    schemes: Sequence[str] = SCHEMES,
    verifier: str = "optimal",
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
    **options: Unpack[AdviceKeywords],
) -> Advice:
    r"""Find the drafts that bring most tokens a second at these costs, and whether they pay.

    A step with a tree of n drafts in d levels takes
    :math:`T(b (n + 1)) + d\,c + v` milliseconds, b the texts decoded together, and brings
    :math:`b (1 + W)` tokens, W the drafts that are accepted of the tree.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V) or (B, T, V)
        Logits, as for `acceptance_rates`; tuples of tensors [B, V], one for each step, are B
        texts. Or a pair of them, `mdsd_opt.Logits`, or a path as the first and nothing as the
        second: a file, a sequence of two, or the folder of a corpus.
    max_drafts : int
        Largest number of drafts of a tree, up to 64.
    sequence : array_like of int, optional
        Text of each position, rows of a text one after another; for arrays (B, T, V) it is the
        first axis unless given.
    position : array_like of int, optional
        Place of each position in its text, where not all places are there.
    schemes : sequence of str
        Draft schemes.
    verifier : str
        Whose acceptance rates are taken.
    confidence : float
        Of the intervals.
    num_threads : int, optional
        CPU threads; all by default.
    progress : bool
    target_ms, draft_ms : float, mapping of int to float, or callable
        Milliseconds of one pass of each model, or by the texts that are decoded together.
    rows_ms : mapping of int to float, or callable, optional
        Milliseconds of a target pass by its rows, as {1: 20, 8: 21}; the same for any number of
        rows if left out.
    verify_ms : float
        Milliseconds of a step's decision.
    batch_size : int
        Number of texts that are decoded together.
    draft_passes : int, optional
        Draft passes of a step, whatever the tree: 1 for drafts that come in parallel, 0 for those
        that are looked up. By default one for each level.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`; of files
        temperature, draft_temperature, top_k, top_p, min_p, joint, pad and kind.

    Returns
    -------
    Advice

    Notes
    -----
    Where positions of a text follow each other, a tree is forecast along the text, otherwise with
    independent positions; `Advice.notes` says which, and how far apart the two are. Trees are
    planned by the mean rates, and the best is chosen on the texts it is judged by.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> advice = mo.advise([[2.0, 1.0, 0.0]], [[1.5, 1.0, 0.0]], draft_ms=25.0, max_drafts=2)
    >>> advice.worth_it
    False
    """
    reading: dict[str, Any] = {**options}
    costs = StepCosts(**{name: reading.pop(name) for name in COST_NAMES if name in reading})
    if checked_integer(max_drafts, "max_drafts") > MAX_DRAFTS:
        raise InvalidInput(f"max_drafts is {max_drafts}: give 1 to {MAX_DRAFTS}")
    schemes = checked_names(schemes, "schemes")
    names = list(dict.fromkeys(["with_replacement", *schemes]))
    rated = names, verifier, min(max_drafts, MAX_WIDTH)
    common: dict[str, Any] = {"num_threads": num_threads, "progress": progress}
    if draft_logits is not None or isinstance(target_logits, Logits):
        pair = Logits.of(target_logits, draft_logits, reading)
        sample, reading = LogitsSample.of(pair, sequence, position), pair.reading.options
        rates = rates_of_sample(sample, rates_config(*rated, {}), **common, reading=reading)
    else:
        beside = {"sequence": sequence, "position": position, **reading}
        alone = [name for name, x in beside.items() if x is not None and name not in _OF_FILES]
        if alone:
            raise InvalidInput(
                f"not with files: {', '.join(alone)}. A file has sequence, position and "
                "draft_token_ids of its own, and is masked and lifted as arrays"
            )
        kind = reading.pop("kind", None)
        rates = rates_of_paths(_paths(target_logits), rates_config(*rated, reading), kind, **common)
    return advice_from_rates(rates, costs, schemes, max_drafts, confidence)


def advice_from_rates(
    rates: PositionRates,
    costs: StepCosts,
    schemes: Sequence[str] = SCHEMES,
    max_drafts: int = 16,
    confidence: float = 0.95,
) -> Advice:
    """Advice by known rates, as `advise` gives it; they include those of "with_replacement"."""
    tables = {_ONE: rates.by_scheme["with_replacement"][:, :1]}
    tables |= {name: alphas for name, alphas in rates.by_scheme.items() if name in schemes}
    pools = [
        TreeForecasts(name, alphas, rates.following).candidates(max_drafts)
        for name, alphas in tables.items()
    ]
    every = [x for pool in pools for x in pool]  # of equal ones the first is chosen: single drafts

    def option(candidate: TreeCandidate | None) -> Option:
        if candidate is None:
            plain = mean_interval(np.zeros(rates.num_positions), rates.texts, confidence)
            return Option.of(plain, costs, 0, scheme="none", tree=None, accepted=0.0)
        tree = candidate.tree
        accepted = mean_interval(candidate.accepted, rates.texts, confidence)
        if rates.num_followed and tree.depth > 1:
            lasting = candidate.forecasts.lasting(tree)
            accepted = accepted.spanning(mean_interval(lasting, rates.texts, confidence))
        own = {"scheme": candidate.scheme, "tree": tree, "accepted": accepted.mean}
        return Option.of(accepted, costs, tree.num_nodes, tree.depth, **own)

    best_single = _best(pools[0], costs)
    candidates: list[TreeCandidate | None] = [None, best_single]
    for pool in pools[1:]:
        candidates += [_best([x for x in pool if x.tree.depth == 1], costs), _best(pool, costs)]
    trees: dict[Any, Option] = {}
    for row in map(option, candidates):
        trees.setdefault((row.tree_name, round(row.accepted, 9)), row)  # chains are of all schemes
    rows = sorted(trees.values(), key=lambda row: -row.speedup.mean)
    chosen = _best(every, costs)
    best = option(chosen)
    ours, theirs = ((1.0 + x.accepted) / costs.step(x.tree) for x in (chosen, best_single))
    ratio, below = float(ours.mean() / theirs.mean()), float(theirs.mean())
    linear = ratio + (ours - ratio * theirs) / below  # part of the ratio of two means
    return Advice(
        best,
        mean_interval(linear, rates.texts, confidence),
        float(rates.by_scheme["with_replacement"][:, 0].mean()),
        costs.step(pools[0][0].tree) / costs.plain() - 1.0,
        tuple(rows),
        tuple(_by_batch(pools[0], every, costs)) if costs.knows_rows else (),
        costs,
        tuple(_notes(chosen, rates, costs, best.speedup, confidence)),
    )


def _best(pool: Iterable[TreeCandidate], costs: StepCosts) -> TreeCandidate:
    """Candidate with most tokens a second, forecast along the texts."""
    priced = [(costs.step(x.tree), x) for x in pool]
    priced.sort(key=lambda item: -round((1.0 + item[1].planned) / item[0], 9))
    return max(priced[:_MOST_FORECAST], key=lambda item: round(item[1].tokens / item[0], 9))[1]


def _by_batch(
    single: Iterable[TreeCandidate], every: Iterable[TreeCandidate], costs: StepCosts
) -> Iterable[BatchPoint]:
    for size in BATCHES:
        here = replace(costs, batch_size=size)
        chain, tree = _best(single, here), _best(every, here)
        gained = [x.tokens * here.plain() / here.step(x.tree) for x in (chain, tree)]
        yield BatchPoint(size, gained[0], gained[1], tree.tree.name, tree.scheme)


def _notes(
    chosen: TreeCandidate,
    rates: PositionRates,
    costs: StepCosts,
    speedup: MeanInterval,
    confidence: float,
) -> Iterable[str]:
    """Sentences that state the assumptions of the forecast, what changes it most first."""
    yield from (f"taken in favour of drafts: {x}" for x in costs.conditions)
    tree, forecasts = chosen.tree, chosen.forecasts
    accepted = float(chosen.accepted.mean())
    if tree.depth > 1 and rates.num_followed:
        yield (
            f"deeper drafts: by the next positions of the same texts ({rates.num_followed} of "
            f"{rates.num_positions} are known, the mean elsewhere); as if independent, "
            f"{forecasts.independent(tree):.3f} accepted in place of {accepted:.3f}"
        )
        lasting = float(forecasts.lasting(tree).mean())
        yield (
            f"intervals span what lies beyond the ends of texts: {lasting:.3f} accepted if that is "
            f"as easy as their last position, {accepted:.3f} if as the mean"
        )
    elif tree.depth > 1:
        yield (
            "deeper drafts: taken for independent of the first, as no position here follows "
            f"another; {forecasts.persistent(tree):.3f} accepted in place of {accepted:.3f} if "
            "each were as easy as the first of its step"
        )
    if rates.takes_order:
        yield (
            "rows of a text are taken to follow each other, as sequence is given and position is "
            "not: give position where rows were left out"
        )
    rows = max(costs.batch_size * (1 + tree.num_nodes), 2 * BATCHES[-1])
    if costs.most_rows is not None and rows > costs.most_rows:
        yield f"more rows than the {costs.most_rows} measured: costs go on as between the last two"
    unit = "positions" if rates.texts is None else "texts"
    yield interval_note(speedup.num_groups, unit, confidence)
    if costs.draft_passes is not None:
        yield f"draft passes of a step: {costs.draft_passes}"


def _paths(paths: Any) -> Paths:
    if isinstance(paths, (str, os.PathLike)):
        return paths
    if isinstance(paths, (list, tuple)) and all(isinstance(x, (str, os.PathLike)) for x in paths):
        return paths
    raise InvalidInput("draft_logits is left out: give it, or a path in place of both")
