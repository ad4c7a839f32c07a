"""Acceptance rates from outputs of engines and servers: accepted tokens counted, tokens listed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers, to_numpy, weighted_count
from mdsd_opt.base.checked import check_confidence
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.batch import interval_ends
from mdsd_opt.corpora.sample_rates import RateRow, rate_cell
from mdsd_opt.drafts import title_of
from mdsd_opt.errors import InvalidInput, MdsdError, UnreadableFile
from mdsd_opt.evidence import MeanInterval, interval_of_groups, mean_interval, rate_interval
from mdsd_opt.formats import AcceptedCounts, Answer, in_stretches, read_answers, scored, with_groups


@dataclass(frozen=True, slots=True)
class AcceptedRate(Result):
    """Rate at which one of K drafts was accepted.

    Attributes
    ----------
    num_drafts : int
        K.
    acceptance : MeanInterval
        Accepted places of all that were tried.
    num_steps, num_tries : int
    """

    num_drafts: int
    acceptance: MeanInterval
    num_steps: int
    num_tries: int

    columns: ClassVar = ("num_drafts", "*acceptance", "num_steps", "num_tries")


def accepted_rates(
    accepted: Any, num_drafts: Any, depth: Any = 1, sequence: Any = None, confidence: float = 0.95
) -> list[AcceptedRate]:
    r"""Acceptance rates from counts of accepted tokens.

    A step drafts K tokens for each of `depth` places, one after another, and ends at the first
    place where none is accepted. With a accepted tokens it has tried :math:`\min(a + 1, depth)`
    places, so that the rate of a place that is tried is

    .. math:: \hat\alpha = \frac{\sum_n a_n}{\sum_n \min(a_n + 1, \mathrm{depth}_n)}.

    Parameters
    ----------
    accepted : array_like of int, shape (N,)
        Accepted draft tokens of each step, without the token that the target adds. Totals of a log
        over many steps do not say at how many places drafts were tried.
    num_drafts : int or array_like of int, shape (N,)
        K, drafts for one place; 1 for a chain of drafts.
    depth : int or array_like of int, shape (N,)
        Places that were drafted for; 1 where K drafts compete for one token.
    sequence : array_like of int, shape (N,), optional
        Text of each step; without it every step is independent of the others.
    confidence : float

    Returns
    -------
    list of AcceptedRate
        One for each K, ascending. The interval is that of a ratio of sums over texts, or steps,
        and no narrower than the exact one (Clopper-Pearson) of independent tries.

    Raises
    ------
    InvalidInput
        No steps, counts that do not fit, or totals of a log in place of steps.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> rate = mo.accepted_rates([3, 0, 5, 1, 5, 2], num_drafts=1, depth=5)[0]
    >>> round(rate.acceptance.mean, 3), rate.num_tries
    (0.8, 20)
    """
    counts = _integers(accepted, "accepted")
    if counts.ndim != 1 or counts.size == 0:
        raise InvalidInput(f"accepted has shape {counts.shape}: give one number for each step")
    check_confidence(confidence)
    drafts, depths = (
        _for_each(value, name, counts.size)
        for value, name in ((num_drafts, "num_drafts"), (depth, "depth"))
    )
    texts = np.arange(counts.size) if sequence is None else _integers(sequence, "sequence").ravel()
    if texts.shape != counts.shape:
        raise InvalidInput(f"sequence names {texts.size} steps, and there are {counts.size}")
    if min(drafts.min(), depths.min()) < 1 or counts.min() < 0:
        raise InvalidInput("num_drafts and depth must be at least 1, and accepted at least 0")
    if (counts > depths).any():
        step = int(np.argmax(counts > depths))
        raise InvalidInput(
            f"step {step} has {counts[step]} accepted tokens and depth {depths[step]}: give in "
            "depth for how many places it drafted"
        )
    _refuse_totals(counts, depths)
    tries = np.minimum(counts + 1, depths)
    rates = []
    for k in np.unique(drafts).tolist():
        here = drafts == k
        hits, tried = int(counts[here].sum()), int(tries[here].sum())
        _, group = np.unique(texts[here], return_inverse=True)
        off = counts[here] - hits / tried * tries[here]
        deviations = weighted_count(group, off, int(group.max()) + 1)
        sizes = weighted_count(group, tries[here].astype(np.float64), deviations.size)
        interval = _interval(hits, tried, deviations, sizes, confidence)
        rates.append(AcceptedRate(k, interval, int(here.sum()), tried))
    return rates


def _interval(
    hits: float, tries: float, deviations: Floats, sizes: Floats, confidence: float
) -> MeanInterval:
    """Interval of a ratio of sums over groups, no narrower than that of independent tries."""
    spread = interval_of_groups(hits / tries, deviations, round(tries), confidence, sizes)
    exact = rate_interval(round(hits), round(tries), confidence)
    low, high = np.fmin(spread.low, exact.low), np.fmax(spread.high, exact.high)
    return replace(spread, low=float(low), high=float(high)).within(0.0, 1.0)


def rate_of_counts(counts: AcceptedCounts, confidence: float = 0.95) -> AcceptedRate:
    """Rate of a place that is tried, by an engine's counts of chains of one length, as above.

    Raises `InvalidInput` where it does not tell by position how often a place was tried.
    """
    counts = with_groups(in_stretches(counts.complete()))
    reached = counts.reached
    if reached is None or not counts.has_one_length:
        raise InvalidInput(
            f"{counts.source} does not tell at how many places drafts were tried: that takes "
            "accepted drafts by position, of chains of one length. mdsd-opt advise "
            "forecasts what is known without"
        )
    hits, steps = counts.sum("accepted"), counts.sum("steps")
    tries = (counts.steps if counts.steps is not None else 0.0) + reached[:, :-1].sum(axis=1)
    tried, times = float(tries @ counts.times), np.rint(counts.times).astype(int)
    off = np.repeat(counts.accepted - hits / tried * tries, times)
    interval = _interval(hits, tried, off, np.repeat(tries, times), confidence)
    return AcceptedRate(1, interval, round(steps), round(tried))


#: Places that no engine drafts for in one step, and that are many for the only step of a log.
_TOO_DEEP, _DEEP = 256, 16


def _refuse_totals(counts: Integers, depths: Integers) -> None:
    """Raise `InvalidInput` if a step has so many places that it must be the sum of many."""
    deepest = int(depths.max())
    if deepest <= (_DEEP if counts.size == 1 else _TOO_DEEP):
        return
    step = int(depths.argmax())
    hits, all_drafted = int(counts[step]), deepest
    raise InvalidInput(
        f"step {step} accepts {hits} of {all_drafted} drafts in a row, as totals of a log do. Give "
        "the accepted tokens of each step, with its depth. If each step of the log drafted one "
        f"token, the rate is {hits / all_drafted:.4f}: accepted = numpy.repeat([1, 0], "
        f"[{hits}, {all_drafted - hits}]), depth = 1; if more, totals do not tell the rate"
    )


def _integers(values: Any, name: str) -> Integers:
    array = to_numpy(values, name)
    if array.dtype.kind not in "iub":
        raise InvalidInput(f"{name} has dtype {array.dtype}: give integers")
    return array.astype(np.int64)


def _for_each(values: Any, name: str, num_steps: int) -> Integers:
    array = _integers(values, name)
    if array.shape not in ((), (num_steps,)):
        raise InvalidInput(f"{name} has shape {array.shape}: give one number, or {num_steps}")
    return np.broadcast_to(array, (num_steps,))


@dataclass(frozen=True, slots=True)
class IntervalRow(Result):
    """One scheme at one K: means of the certified ends, with confidence intervals over texts."""

    scheme: str
    num_drafts: int
    lower: MeanInterval
    upper: MeanInterval

    columns: ClassVar = (
        "scheme", "num_drafts", Column("verifier", of=lambda _: "optimal", holds=str),
        *(
            Column(f"{end}_{name}", of=f"{end}.{name}")
            for end in ("lower", "upper")
            for name in ("mean", "low", "high", "num_groups")
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RateIntervals(Result):
    """Intervals from the log-probabilities of two files."""

    rows: tuple[IntervalRow, ...]
    num_positions: int
    num_texts: int
    target_tail: float  # mean mass of the tokens that are not listed
    draft_tail: float

    columns: ClassVar = (
        "num_positions", Column("num_sequences", of="num_texts"), "target_tail", "draft_tail",
        "rows",
    )  # fmt: skip


def rate_intervals(
    target: Path,
    draft: Path,
    schemes: Sequence[str],
    counts: Sequence[int],
    vocab_size: int | None,
    confidence: float,
    progress: bool,
) -> RateIntervals:
    """Intervals for every scheme and K from two files of JSON lines, text by text.

    A text whose lists hold the same tokens at every position and on both sides has them all.
    """
    intervals, texts, tails = [], [], []
    with target.open("rb") as file:
        num_lines = sum(1 for line in file if line.strip())
    with progress_bar("acceptance intervals", num_lines, progress) as advance:
        for number, positions in enumerate(paired_positions(target, draft), start=1):
            size = vocab_size or _size_if_complete(positions)
            for place, (p, q) in enumerate(positions):
                try:
                    ends = [interval_ends(p, q, counts, scheme, size) for scheme in schemes]
                except MdsdError as error:
                    raise type(error)(f"request {number}, list {place + 1}: {error}") from error
                intervals.append([x for x, _, _ in ends])
                tails.append([side.unlisted for side in ends[0][1:]])
                texts.append(number)
            advance(1)
    if not intervals:
        raise UnreadableFile(f"{target} and {draft} have no position with lists on both sides")
    values, groups = np.array(intervals), np.array(texts)
    rows = []
    for (i, scheme), (j, k) in product(enumerate(schemes), enumerate(counts)):
        both = (mean_interval(x, groups, confidence) for x in values[:, i, j].T)
        rows.append(IntervalRow(scheme, k, *(x.within(0.0, 1.0) for x in both)))
    target_tail, draft_tail = np.mean(tails, axis=0).tolist()
    return RateIntervals(tuple(rows), len(intervals), len(set(texts)), target_tail, draft_tail)


def paired_positions(
    target: Path, draft: Path
) -> Iterator[list[tuple[dict[Any, float], dict[Any, float]]]]:
    """Yield, for each text, the lists of both models at the positions where both have one.

    Of a request that scored its prompt these are the positions of the prompt. Raises
    `UnreadableFile` if the files do not score the same texts.
    """
    sides = (_texts(target), _texts(draft))
    for number, (p, q) in enumerate(zip_longest(*sides), start=1):
        where = f"text {number} of {target} and {draft}"
        if p is None or q is None:
            raise UnreadableFile(f"{where}: one of the files has no more requests")
        if p.by_id != q.by_id:
            raise UnreadableFile(
                f"{where}: one names tokens by id, the other by text. Ask both in the same way"
            )
        if len(p.lists) != len(q.lists):
            raise UnreadableFile(
                f"{where}: {len(p.lists)} and {len(q.lists)} positions. Both models must score "
                "the same text, as a prompt"
            )
        if p.tokens is not None and q.tokens is not None and p.tokens != q.tokens:
            raise UnreadableFile(f"{where}: the texts differ. Both models must score the same one")
        yield [(a, b) for a, b in zip(p.lists, q.lists, strict=True) if a and b]


def _texts(path: Path) -> Iterator[Answer]:
    for answers in read_answers(path):
        yield from scored(answers)


def _size_if_complete(positions: Sequence[tuple[dict[Any, float], dict[Any, float]]]) -> int | None:
    if len(positions) < 2:
        return None
    tokens = positions[0][0].keys()
    same = all(side.keys() == tokens for pair in positions for side in pair)
    return len(tokens) if same else None


# --- told ---


def accepted_table(
    measured: Sequence[AcceptedRate], optimal: Sequence[RateRow], title: str
) -> Table:
    """Table of the rates that were counted, beside the optimal ones of each scheme."""
    schemes = list(dict.fromkeys(row.scheme for row in optimal))
    cells = {(row.scheme, row.num_drafts): row for row in optimal}
    rows = (
        (
            str(rate.num_drafts),
            str(rate.num_steps),
            str(rate.num_tries),
            f"{mean.mean:.4f} [{mean.low:.4f}, {mean.high:.4f}]",
            *(rate_cell(cells.get((scheme, rate.num_drafts))) for scheme in schemes),
        )
        for rate in measured
        for mean in [rate.acceptance]
    )
    beside = [f"optimum,\n{title_of(scheme)}" for scheme in schemes]
    asks = "the optimum is that of the logits given: are they of the same texts?"
    headings = ("K", "steps", "places tried", "accepted", *beside)
    return Table.of(title, headings, rows, (), caption=asks if optimal else "")


def intervals_table(intervals: RateIntervals, title: str) -> Table:
    """Table of certified intervals, and of those that hold what chance adds."""

    def line(row: IntervalRow) -> tuple[str, ...]:
        sampled = (
            " .. ".join(_ends(row.lower.low, row.upper.high, 4))
            if intervals.num_texts > 1
            else "takes several texts"
        )
        certified = " .. ".join(_ends(row.lower.mean, row.upper.mean, 4))
        return title_of(row.scheme), str(row.num_drafts), certified, sampled

    return Table.of(
        f"optimal acceptance rate: how often the output can be one of the K drafts\n{title}",
        ("drafts", "K", "certified", "with sampling"),
        map(line, intervals.rows),
        caption="certified: whatever the probabilities of the tokens are that are not listed\n"
        "with sampling: from the lower confidence limit of the one to the upper of the other",
        grouped=True,
    )


def intervals_conclusion(intervals: RateIntervals) -> str:
    """Sentence about what is certain at the largest number of drafts."""
    most = max(row.num_drafts for row in intervals.rows)
    best = max(
        (row for row in intervals.rows if row.num_drafts == most), key=lambda row: row.lower.mean
    )
    low, high = _ends(best.lower.mean, best.upper.mean, 3)
    return (
        f"at K = {most}: {best.scheme.replace('_', ' ')}, at least {low} on average and at most "
        f"{high}; more tokens a list narrow it"
    )


def _ends(low: float, high: float, places: int) -> tuple[str, str]:
    """Ends of an interval, rounded outwards, so that they stay certified."""
    scale = 10.0**places
    low, high = math.floor(low * scale) / scale, math.ceil(high * scale) / scale
    return f"{low:.{places}f}", f"{high:.{places}f}"
