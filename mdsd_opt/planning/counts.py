"""Counts of speculation by engines in one form: accepted drafts, drafts and steps of requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.checked import floats
from mdsd_opt.errors import InvalidInput

#: Number of drafts of a step that no engine reaches.
MOST_DRAFTS = 256

#: Relative error that rounding in a log may make in a count.
_ROUNDED = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedCounts:
    """Counts of one run with chains of drafts, in groups that are independent of each other.

    Attributes
    ----------
    accepted, drafted, steps : ndarray, shape (G,)
        Accepted drafts, drafts, and steps that had a draft, of each group, such as a request. A
        step brings its accepted drafts and one token more.
    num_drafts : int
        K, the longest chain of a step.
    reached : ndarray, shape (G, K), optional
        Number of steps with at least 1 .. K accepted drafts, where that is known.
    undrafted : ndarray, shape (G,)
        Number of steps without a draft, which engines have that draft only where confident.
    times : ndarray, shape (G,)
        Number of times that each group came.
    unit : str
        Name of a group in the plural; "runs" where there are only totals.
    source : str
        Name of the file or engine that the counts come from.
    notes : tuple of str
        Assumptions that reading them took.
    """

    accepted: Floats
    drafted: Floats
    steps: Floats
    num_drafts: int
    reached: Floats | None = None
    undrafted: Floats = field(default_factory=lambda: np.zeros(0))
    times: Floats = field(default_factory=lambda: np.zeros(0))
    unit: str = "requests"
    source: str = "counts"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = self.accepted.size
        for name, fill in (("undrafted", 0.0), ("times", 1.0)):
            if not getattr(self, name).size:
                object.__setattr__(self, name, np.full(count, fill))
        _check(self)

    @property
    def num_groups(self) -> int:
        return round(float(self.times.sum()))

    @property
    def mean_drafted(self) -> float:
        """Mean number of drafts of a step that had any."""
        return self.total(self.drafted) / self.total(self.steps)

    @property
    def has_one_length(self) -> bool:
        """Whether every step drafted K tokens, up to steps that a text's end cut short."""
        return self.mean_drafted > self.num_drafts - _CUT

    def total(self, values: Floats) -> float:
        """Sum over all groups."""
        return float(values @ self.times)

    def to_dict(self) -> dict[str, Any]:
        """Totals, ready for JSON."""
        by_position = None
        if self.reached is not None:
            by_position = (self.times @ self.reached).tolist()
        return {
            "source": self.source,
            "num_drafts": self.num_drafts,
            "groups": self.num_groups,
            "unit": self.unit,
            **{
                name: self.total(getattr(self, name))
                for name in ("accepted", "drafted", "steps", "undrafted")
            },
            "by_position": by_position,
        }


#: Number of drafts that steps of one length may lack on average.
_CUT = 0.1


def _check(counts: AcceptedCounts) -> None:
    k, source = counts.num_drafts, counts.source
    if not 1 <= k <= MOST_DRAFTS:
        raise InvalidInput(f"num_drafts is {k}: give 1 to {MOST_DRAFTS}")
    if counts.accepted.size == 0 or not counts.total(counts.steps) > 0:
        raise InvalidInput(f"{source}: no step with a draft, so that nothing was accepted or not")
    every = (counts.accepted, counts.drafted, counts.steps, counts.undrafted)
    if not all(np.isfinite(x).all() and (x >= 0).all() for x in every):
        raise InvalidInput(f"{source}: counts must be finite and at least 0")
    accepted, drafted, steps = (counts.total(x) for x in every[:3])
    room = 1.0 + _ROUNDED
    if (counts.accepted > counts.drafted * room + _ROUNDED).any():
        raise InvalidInput(
            f"{source}: {accepted:g} accepted of {drafted:g} drafted, which cannot be"
        )
    if drafted > k * steps * room + 1.0:
        raise InvalidInput(
            f"{source}: {drafted:g} drafts in {steps:g} steps are more than {k} a step: give in "
            "num_drafts how many a step drafts at most"
        )
    reached = counts.reached
    if reached is not None:
        if reached.shape != (counts.accepted.size, k):
            raise InvalidInput(f"{source}: by_position has {reached.shape[-1]} positions, not {k}")
        sums = np.hstack([counts.steps[:, None], reached])
        if not np.isfinite(sums).all() or (sums < 0).any() or (np.diff(sums) > _ROUNDED).any():
            raise InvalidInput(
                f"{source}: a position is accepted more often than the one before it. Give how "
                "often each was accepted of all steps, not of those that came so far"
            )


def merged(parts: Iterable[AcceptedCounts], source: str) -> AcceptedCounts:
    """Groups of several counts as those of one run: sums are taken over all of them.

    Raises `InvalidInput` where there are none.
    """
    given = list(parts)
    if not given:
        raise InvalidInput(f"{source}: no counts")
    k = max(part.num_drafts for part in given)
    lengths = {part.num_drafts for part in given}
    notes = dict.fromkeys(note for part in given for note in part.notes)
    if len(lengths) > 1:
        notes[f"chains of {', '.join(map(str, sorted(lengths)))} drafts are taken together"] = None
    reached = None
    if all(part.reached is not None for part in given):
        reached = np.vstack(
            [np.pad(part.reached, ((0, 0), (0, k - part.num_drafts)))  # type: ignore[arg-type]
             for part in given]
        )  # fmt: skip

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(part, name) for part in given])

    return AcceptedCounts(
        joined("accepted"),
        joined("drafted"),
        joined("steps"),
        k,
        reached,
        joined("undrafted"),
        joined("times"),
        given[0].unit,
        source,
        tuple(notes),
    )


def added_up(counts: AcceptedCounts, block: NDArray[Any]) -> AcceptedCounts:
    """Counts with the groups of each block as one group; blocks are numbers from 0 on."""
    number = int(block.max()) + 1
    weighted = (counts.accepted, counts.drafted, counts.steps, counts.undrafted)
    accepted, drafted, steps, undrafted = (
        np.bincount(block, weights=x * counts.times, minlength=number).astype(np.float64)
        for x in weighted
    )
    reached = None
    if counts.reached is not None:
        reached = np.zeros((number, counts.num_drafts))
        np.add.at(reached, block, counts.reached * counts.times[:, None])
    return replace(
        counts,
        accepted=accepted,
        drafted=drafted,
        steps=steps,
        reached=reached,
        undrafted=undrafted,
        times=np.ones(number),
    )


def one(
    accepted: float,
    drafted: float,
    steps: float,
    num_drafts: int,
    reached: Floats | None = None,
    undrafted: float = 0.0,
    unit: str = "requests",
    source: str = "counts",
    notes: tuple[str, ...] = (),
) -> AcceptedCounts:
    """Counts of a single group; `reached` has shape (K,)."""
    return AcceptedCounts(
        np.array([float(accepted)]),
        np.array([float(drafted)]),
        np.array([float(steps)]),
        num_drafts,
        None if reached is None else np.asarray(reached, dtype=np.float64)[None],
        np.array([undrafted]),
        unit=unit,
        source=source,
        notes=notes,
    )


def of_histogram(
    histogram: Sequence[float], drafted: float, num_drafts: int, source: str
) -> AcceptedCounts:
    """Counts of one request by the number of steps that accepted exactly 0, 1, ... drafts."""
    counts = np.zeros(num_drafts + 1)
    given = np.asarray(histogram, dtype=np.float64)
    if given.size > num_drafts + 1 and given[num_drafts + 1 :].any():
        raise InvalidInput(
            f"{source}: steps with {given.size - 1} accepted drafts, and num_drafts is {num_drafts}"
        )
    counts[: given.size] = given[: num_drafts + 1]
    reached = counts[::-1].cumsum()[::-1][1:]
    total = float(counts.sum())
    return one(reached.sum(), drafted, total, num_drafts, reached, source=source)


def of_steps(
    accepted: Any, num_drafts: int, sequence: Any = None, source: str = "steps", unit: str = ""
) -> AcceptedCounts:
    """Counts of chains of one length by the accepted drafts of every step of each request."""
    counts = floats(accepted, "accepted").ravel()
    if counts.size == 0 or (counts < 0).any() or (counts % 1).any() or counts.max() > num_drafts:
        raise InvalidInput(
            f"{source}: accepted must be integers from 0 to num_drafts = {num_drafts}"
        )
    reached = (counts[:, None] >= np.arange(1, num_drafts + 1)).astype(np.float64)
    texts = np.arange(counts.size) if sequence is None else floats(sequence, "sequence").ravel()
    if texts.size != counts.size:
        raise InvalidInput(f"sequence names {texts.size} steps, and there are {counts.size}")
    _, group = np.unique(texts, return_inverse=True)
    number = int(group.max()) + 1
    sums = np.zeros((number, num_drafts))
    np.add.at(sums, group, reached)
    steps = np.bincount(group, minlength=number).astype(np.float64)
    return AcceptedCounts(
        sums.sum(axis=1),
        steps * num_drafts,
        steps,
        num_drafts=num_drafts,
        reached=sums,
        unit=unit or ("steps" if sequence is None else "requests"),
        source=source,
    )


def of_totals(
    accepted: float,
    drafted: float | None = None,
    num_drafts: int | None = None,
    by_position: Sequence[float] | None = None,
    steps: float | None = None,
    source: str = "the totals",
) -> AcceptedCounts:
    """Counts of one run by its sums alone; steps and drafts follow from each other by K.

    With counts by position, steps that accepted the same number are groups, each as often as it
    came: steps are then independent of each other.
    """
    if by_position is not None:
        num_drafts = len(by_position) if num_drafts is None else num_drafts
    if num_drafts is None:
        raise InvalidInput(f"{source}: give num_drafts, the drafts of a step")
    if steps is None:
        if drafted is None:
            raise InvalidInput(f"{source}: give drafted, or the number of steps")
        steps = drafted / num_drafts
        notes: tuple[str, ...] = (f"every step drafted {num_drafts}: nothing says otherwise",)
    else:
        drafted = steps * num_drafts if drafted is None else drafted
        notes = ()
    assert drafted is not None
    if by_position is None:
        return one(accepted, drafted, steps, num_drafts, unit="runs", source=source, notes=notes)
    reached = np.asarray(by_position, dtype=np.float64)
    whole = one(reached.sum(), drafted, steps, num_drafts, reached, source=source, notes=notes)
    return by_outcome(whole)


def with_groups(counts: AcceptedCounts) -> AcceptedCounts:
    """Counts in which a single group with positions is split into the steps it is made of."""
    alone = counts.num_groups < 2 and counts.total(counts.steps) >= 2
    return by_outcome(counts) if alone and counts.reached is not None else counts


def by_outcome(counts: AcceptedCounts) -> AcceptedCounts:
    """Counts of one group with the steps of each outcome as a group of its own."""
    assert counts.reached is not None
    k = counts.num_drafts
    at_least = np.append(counts.total(counts.steps), counts.times @ counts.reached)
    times = -np.diff(np.append(at_least, 0.0))
    outcome = np.arange(k + 1.0)
    missed = counts.total(counts.drafted) - counts.total(counts.accepted)
    return replace(
        counts,
        accepted=outcome,
        drafted=outcome + missed / at_least[0],
        steps=np.ones(k + 1),
        reached=(outcome[:, None] >= np.arange(1, k + 1)).astype(np.float64),
        undrafted=np.full(k + 1, counts.total(counts.undrafted) / at_least[0]),
        times=np.maximum(times, 0.0),
        unit="steps",
    )
