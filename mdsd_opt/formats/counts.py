"""Counts of speculation by engines in one form: accepted drafts, drafts and steps of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.checked import floats
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.errors import InvalidInput

#: Length of a chain that no engine reaches.
DEEPEST = 256

#: Relative error that rounding in a log may make in a count.
_ROUNDED = 1e-6

#: Number of groups that are enough of them, and of stretches of those that share requests.
_MOST_GROUPS, _STRETCHES = 1000, 8

_NO_DRAFT = "no step with a draft, so that nothing was accepted or not"

#: Number of drafts that steps of one length may lack on average.
_CUT = 0.1


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of the target of one batch: their number, their milliseconds in all, if told."""

    running: float | None
    count: float
    ms: float | None = None


class TimedBatch(NamedTuple):
    """Milliseconds of a pass by the requests that ran together; None where not told."""

    running: float | None
    ms: float | None


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens that requests together were given in some seconds, with drafts or without."""

    running: float
    tokens: float
    seconds: float


def passes_of(running: float | None, count: float | None, ms: float | None) -> tuple[Passes, ...]:
    """Passes of one batch; none where neither their batch nor their time is told."""
    return (Passes(running, count, ms),) if count and (running or ms is not None) else ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What an engine wrote of a run beside its drafts.

    Attributes
    ----------
    tokens, seconds, rounds : float or None
        Generated tokens, the time, and rounds of decoding with or without a draft.
    passes : tuple of Passes
        Passes of the target, by the number of requests that ran together.
    drafting : tuple of Passes
        Passes in which the draft ran, with the milliseconds of drafting alone.
    """

    tokens: float | None = None
    seconds: float | None = None
    rounds: float | None = None
    passes: tuple[Passes, ...] = ()
    drafting: tuple[Passes, ...] = ()

    def __add__(self, other: Measured) -> Measured:
        return Measured(
            _sum(self.tokens, other.tokens),
            _sum(self.seconds, other.seconds),
            _sum(self.rounds, other.rounds),
            self.passes + other.passes,
            self.drafting + other.drafting,
        )

    @property
    def by_batch(self) -> dict[float | None, float | None]:
        """Milliseconds of a pass by the requests that ran together; None where not told."""
        return {
            running: _mean([x for x in self.passes if x.running == running])
            for running in dict.fromkeys(x.running for x in self.passes)
        }

    @property
    def batches(self) -> list[TimedBatch]:
        """The same as a list."""
        return [TimedBatch(running, ms) for running, ms in self.by_batch.items()]

    @property
    def draft_ms(self) -> float | None:
        """Milliseconds of drafting in a step."""
        return _mean(self.drafting)

    def __str__(self) -> str:
        """Words such as "8 requests together, 22.2 ms a pass"; "" where nothing is told."""
        words = []
        for running, ms in self.by_batch.items():
            batch = "" if running is None else f"{running:g} requests together"
            time = "" if ms is None else f"{ms:.3g} ms a pass"
            words.append(f"{batch}, {time}" if batch and time else batch or time)
        if self.draft_ms is not None:
            words.append(f"{self.draft_ms:.3g} ms of drafting a step")
        return "; ".join(filter(None, words))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is other is None else (one or 0.0) + (other or 0.0)


def _mean(passes: Iterable[Passes]) -> float | None:
    timed = [(x.ms, x.count) for x in passes if x.ms is not None and x.count > 0]
    return sum(ms for ms, _ in timed) / sum(n for _, n in timed) if timed else None


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedCounts(Result):
    """Counts of one run with chains of drafts, one for each place, in groups such as requests.

    Attributes
    ----------
    accepted : ndarray, shape (G,)
        Accepted drafts of each group, without the token that the target adds to each step.
    drafted, steps : ndarray, shape (G,), optional
        Drafts, and steps that had a draft; None where the engine does not tell.
    depth : int, optional
        K, the longest chain of a step, where that is told.
    reached : ndarray, shape (G, K), optional
        Number of steps with at least 1 .. K accepted drafts, where that is known.
    undrafted : ndarray, shape (G,)
        Number of steps without a draft, which engines have that draft only where confident.
    times : ndarray, shape (G,)
        Number of times that each group came.
    unit : str
        Name of a group in the plural; "runs" where there are only totals. Of all groups,
        requests alone are independent of each other.
    source : str
        Name of the file or engine that the counts come from.
    notes : tuple of str
        Assumptions that reading them took.
    assumed : bool
        Whether only the mean is told, and the number of steps is a weight.
    measured : Measured
        Tokens, time and batches.
    forced : str
        The setting by which acceptance was forced, whatever the drafts were; "" without one.
    """

    accepted: Floats
    drafted: Floats | None
    steps: Floats | None
    depth: int | None
    reached: Floats | None = None
    undrafted: Floats = field(default_factory=lambda: np.zeros(0))
    times: Floats = field(default_factory=lambda: np.zeros(0))
    unit: str = "requests"
    source: str = "counts"
    notes: tuple[str, ...] = ()
    assumed: bool = False
    measured: Measured = Measured()
    forced: str = ""

    columns: ClassVar = (
        "source", "depth", Column("groups", of="num_groups"), "unit",
        *(
            Column(name, of=methodcaller("total", name), holds=float | None)
            for name in ("accepted", "drafted", "steps", "undrafted")
        ),
        "by_position", Column("tokens", of="measured.tokens"),
        Column("seconds", of="measured.seconds"), Column("passes", of="measured.batches"),
        Column("draft_ms", of="measured.draft_ms"),
        Column("forced", of=lambda counts: counts.forced or None, holds=str | None),
    )  # fmt: skip

    def __post_init__(self) -> None:
        count = self.accepted.size
        for name, fill in (("undrafted", 0.0), ("times", 1.0)):
            if not getattr(self, name).size:
                object.__setattr__(self, name, np.full(count, fill))
        for wrong in _faults(self):
            raise InvalidInput(f"{self.source}: {wrong}")

    @property
    def num_groups(self) -> int:
        return round(float(self.times.sum()))

    @property
    def longest(self) -> int:
        """The depth, where it is known."""
        assert self.depth is not None
        return self.depth

    @property
    def mean_drafted(self) -> float:
        """Mean number of drafts of a step that had any."""
        return (self.total("drafted") or 0.0) / (self.total("steps") or np.nan)

    @property
    def has_one_length(self) -> bool:
        """Whether every step drafted K tokens, up to steps that a text's end cut short."""
        return self.depth is not None and self.mean_drafted > self.depth - _CUT

    def total(self, name: str) -> float | None:
        """Sum of a field over all groups; None where it is not told."""
        values = getattr(self, name)
        return None if values is None else float(values @ self.times)

    def sum(self, name: str) -> float:
        """Sum of a field over all groups, which is known."""
        total = self.total(name)
        assert total is not None
        return total

    @property
    def by_position(self) -> list[float] | None:
        """Sum of what reached each position; None where it is not told."""
        return None if self.reached is None else (self.times @ self.reached).tolist()

    def complete(self, how: str = "") -> AcceptedCounts:
        """These counts with steps, drafts and depth, as far as they follow from each other.

        Raises `InvalidInput` where K is not known.
        """
        if self.depth is None:
            raise InvalidInput(
                f"{self.source} does not say how many drafts a step has at most: give depth{how} "
                "(--depth; of llama-server it is --draft-max)"
            )
        if self.drafted is not None and self.steps is not None:
            return self
        note = f"every step drafted {self.depth}: nothing says otherwise"
        drafted, steps, rounds = self.drafted, self.steps, self.measured.rounds
        if drafted is None:
            assert steps is not None
            drafted = steps * self.depth
        else:
            steps = drafted / self.depth
            if rounds is not None and self.accepted.size == 1:
                note = "rounds without a draft, if there were any, are among the steps"
                steps = np.clip(np.array([rounds]), steps, drafted)
        return replace(self, drafted=drafted, steps=steps, notes=(*self.notes, note))

    def with_measured(self, more: Measured) -> AcceptedCounts:
        """These counts with more that is told beside them."""
        return replace(self, measured=self.measured + more)

    def deepened(self, depth: int | None) -> AcceptedCounts:
        """These counts with a depth that is given; `InvalidInput` where they say another."""
        if depth is None or depth == self.depth:
            return self
        full = self.drafted is not None and self.steps is not None and self.has_one_length
        if self.depth is not None and (depth < self.depth or full):
            raise InvalidInput(f"depth is {depth}, but {self.source} has chains of {self.depth}")
        reached = self.reached
        if reached is not None:
            reached = np.pad(reached, ((0, 0), (0, max(depth - reached.shape[1], 0))))
        return replace(self, depth=depth, reached=reached)


def _faults(counts: AcceptedCounts) -> Iterator[str]:
    """What is wrong with counts, each sought where those before it are not wrong."""
    k, reached, room = counts.depth, counts.reached, 1.0 + _ROUNDED
    if k is not None and not (1 <= k <= DEEPEST and k % 1 == 0):
        yield f"depth is {k}: give 1 to {DEEPEST} drafts a step"
    every = (counts.accepted, counts.drafted, counts.steps, counts.undrafted)
    if not all(np.isfinite(x).all() and (x >= 0).all() for x in every if x is not None):
        yield "counts must be finite and at least 0"
    accepted, drafted, steps = (counts.total(x) for x in ("accepted", "drafted", "steps"))
    if counts.accepted.size == 0 or 0 in (drafted, steps):
        yield _NO_DRAFT
    if counts.drafted is not None and (counts.accepted > counts.drafted * room + _ROUNDED).any():
        yield f"{accepted:g} accepted of {drafted:g} drafted, which cannot be"
    if steps is not None and k is not None and not counts.assumed:
        for name, total in (("drafted", drafted), ("accepted", accepted)):
            if total is not None and total > k * steps * room + 1.0:
                yield (
                    f"{total:g} {name} in {steps:g} steps are more than {k} a step: give in depth "
                    "how many a step drafts at most"
                )
    if reached is not None:
        if k is not None and reached.shape != (counts.accepted.size, k):
            yield f"by_position has {reached.shape[-1]} positions, not {k}"
        sums = reached if counts.steps is None else np.hstack([counts.steps[:, None], reached])
        if not np.isfinite(sums).all() or (sums < 0).any() or (np.diff(sums) > _ROUNDED).any():
            yield (
                "a position is accepted more often than the one before it. Give how often each was "
                "accepted of all steps, not of those that came so far"
            )


def merged(parts: Iterable[AcceptedCounts], source: str) -> AcceptedCounts:
    """Groups of several counts as those of one run: sums are taken over all of them.

    Raises `InvalidInput` where there are none.
    """
    counts = list(parts)
    if not counts:
        raise InvalidInput(f"{source}: {_NO_DRAFT}")
    if len({*(float(x) for part in counts for x in part.accepted)}) > 1 and all(
        part.assumed and part.unit == "runs" for part in counts
    ):
        raise InvalidInput(f"{source} has several means without their steps: give one of them")
    lengths = {part.depth for part in counts if part.depth is not None}
    notes = dict.fromkeys(note for part in counts for note in part.notes)
    if len(lengths) > 1:
        notes[f"chains of {', '.join(map(str, sorted(lengths)))} drafts are taken together"] = None
    rows = [part.reached for part in counts if part.reached is not None]
    depth = max([*lengths, *(x.shape[1] for x in rows)]) if lengths else None
    widest = depth or max((x.shape[1] for x in rows), default=0)
    wide = [np.pad(x, ((0, 0), (0, widest - x.shape[1]))) for x in rows]

    def joined(name: str) -> Any:
        parts = [getattr(part, name) for part in counts]
        return None if any(x is None for x in parts) else np.concatenate(parts)

    return AcceptedCounts(
        **{name: joined(name) for name in ("accepted", "drafted", "steps", "undrafted", "times")},
        depth=depth,
        reached=np.vstack(wide) if len(rows) == len(counts) else None,
        unit=counts[0].unit,
        source=source,
        notes=tuple(notes),
        assumed=any(part.assumed for part in counts),
        measured=sum((part.measured for part in counts), Measured()),
        forced=next((part.forced for part in counts if part.forced), ""),
    )


def added_up(counts: AcceptedCounts, block: NDArray[Any]) -> AcceptedCounts:
    """Counts with the groups of each block as one group; blocks are numbers from 0 on."""
    number = int(block.max()) + 1

    def sums(values: Floats | None) -> Any:
        if values is None:
            return None
        totals = np.zeros((number, *values.shape[1:]))
        np.add.at(totals, block, (values.T * counts.times).T)
        return totals

    fields = ("accepted", "drafted", "steps", "reached", "undrafted")
    return replace(
        counts, times=np.ones(number), **{name: sums(getattr(counts, name)) for name in fields}
    )


def in_stretches(counts: AcceptedCounts) -> AcceptedCounts:
    """Counts with neighbouring groups added up, where there are very many or they share requests.

    Lines, passes or steps that follow each other are of the same requests: only long stretches of
    them are nearly independent.
    """
    size = counts.accepted.size
    most = _MOST_GROUPS if counts.unit == "requests" else _STRETCHES
    if size <= most or (counts.times != 1).any():
        return counts
    return added_up(counts, np.arange(size) * most // size)


def of_steps(
    accepted: Any, depth: Any, sequence: Any = None, source: str = "steps"
) -> AcceptedCounts:
    """Counts of chains by the accepted drafts of every step, in groups by the request of each.

    `depth` is the length of all chains, or of each.
    """
    counts = floats(accepted, "accepted").ravel()
    depths = np.broadcast_to(floats(depth, "depth").ravel(), counts.shape)
    sound = (counts >= 0) & (counts % 1 == 0) & (counts <= depths) & (depths % 1 == 0)
    if counts.size == 0:
        raise InvalidInput(f"{source}: {_NO_DRAFT}")
    if not sound.all():
        raise InvalidInput(
            f"{source}: accepted must be integers from 0 to depth = {depths.max():g}"
        )
    k = int(depths.max())
    reached = (counts[:, None] >= np.arange(1, k + 1)).astype(np.float64)
    steps = AcceptedCounts(
        counts, depths.astype(np.float64), np.ones(counts.size), k, reached, unit="steps",
        source=source,
    )  # fmt: skip
    if sequence is None:
        return steps
    texts = floats(sequence, "sequence").ravel()
    if texts.size != counts.size:
        raise InvalidInput(f"sequence names {texts.size} steps, and there are {counts.size}")
    _, group = np.unique(texts, return_inverse=True)
    return replace(added_up(steps, group), unit="requests")


def with_groups(counts: AcceptedCounts) -> AcceptedCounts:
    """Counts in which a single group with positions is split into its steps, by outcome."""
    alone = counts.num_groups < 2 and (counts.total("steps") or 0.0) >= 2
    if not alone or counts.reached is None:
        return counts
    k = counts.reached.shape[1]
    at_least = np.append(counts.sum("steps"), counts.times @ counts.reached)
    times = -np.diff(np.append(at_least, 0.0))
    outcome = np.arange(k + 1.0)
    missed = counts.sum("drafted") - counts.sum("accepted")
    return replace(
        counts,
        accepted=outcome,
        drafted=outcome + missed / at_least[0],
        steps=np.ones(k + 1),
        reached=(outcome[:, None] >= np.arange(1, k + 1)).astype(np.float64),
        undrafted=np.full(k + 1, counts.sum("undrafted") / at_least[0]),
        times=np.maximum(times, 0.0),
        unit="steps",
    )
