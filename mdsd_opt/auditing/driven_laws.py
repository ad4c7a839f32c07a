"""Laws found by driving a function in all its situations, and how far they are from the right one.

A decision is called with every tuple of drafts, a rule with every tree or chain of them, a session
once: what comes of each is spread over the outcomes that are told apart, and added up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from mdsd_opt.auditing.driving import (
    Budget,
    DrawTree,
    Edges,
    Leaf,
    OutOfTime,
    Undrivable,
    driven_tree,
    usual_edges,
)
from mdsd_opt.auditing.findings import FoundLaw
from mdsd_opt.auditing.subject import Failure
from mdsd_opt.base.arrays import Vector
from mdsd_opt.evidence import NOT_DRIVEN, Options, random_checks

Found = TypeVar("Found")


class Space(Protocol):
    """Outcomes that are told apart, with the law (N,) that they shall have."""

    @property
    def law(self) -> Vector: ...

    def spread(self, outcome: Any) -> tuple[Any, Any]:
        """Places among them that an outcome counts for, and its share in each."""


class TokenSpace(NamedTuple):
    """Single tokens."""

    law: Vector

    def spread(self, outcome: Any) -> tuple[Any, Any]:
        return outcome, 1.0


class CheckTally:
    """Random checks of trees of draws, added up, and what all of them say.

    `unseen` is what they miss with 1 - power at most; `coarse` and `restarting` are those of a
    `DrawTree`, of all of them.
    """

    def __init__(self, unseen: float) -> None:
        self.unseen, self.num_checks, self.coarse = unseen, 0, False
        self.restarting: tuple[str, ...] = ()

    def outcomes(self, tree: DrawTree) -> list[Leaf]:
        """Outcomes of a tree, likeliest first."""
        self.num_checks += tree.num_checks
        self.coarse |= tree.coarse
        self.restarting = tuple(dict.fromkeys((*self.restarting, *tree.restarting)))
        return tree.outcomes()


class Driver(CheckTally):
    """Drives a function in situations of given probabilities, which share its random checks."""

    def __init__(
        self,
        shares: Sequence[float] | Vector,
        options: Options,
        budget: Budget,
        rng: np.random.Generator,
        race_width: int,
    ) -> None:
        each, power = options.driven_checks, options.power
        self._checks, unseen = random_checks(np.asarray(shares), each, power)
        super().__init__(unseen)
        self._budget, self._rng, self._race_width = budget, rng, race_width
        self._edges: Edges = {}  # many situations have some in common

    def expect(self, target: Vector, draft: Vector | None, rounds: int = 1) -> None:
        """Look for steps where rules on these laws usually have them, before anywhere else."""
        for grid, points in usual_edges(target, draft, rounds).items():
            self._edges[grid] = sorted({*self._edges.get(grid, ()), *points})

    def leaves(self, n: int, call: Callable[[np.random.Generator], Hashable]) -> list[Leaf]:
        """Outcomes of the calls in the n-th situation, likeliest first."""
        self._budget.begin()
        seed, how = int(self._rng.integers(2**31)), (self._checks[n], self._race_width)
        return self.outcomes(
            driven_tree(lambda tape: call(tape.generator), *how, self._budget, seed, self._edges)
        )


def law_of(
    leaves: Sequence[Leaf],
    space: Space,
    failed: Callable[[Failure, Leaf], None],
    impossible: Callable[[Any, Leaf], None],
) -> Vector:
    """Law (N,) of the outcomes of some leaves; it sums to less than one where calls fail.

    Failures are told, and outcomes that the right law rules out.
    """
    law, right = np.zeros(space.law.size), space.law
    for leaf in leaves:
        if isinstance(leaf.outcome, Failure):
            failed(leaf.outcome, leaf)
            continue
        at, shares = space.spread(leaf.outcome)
        law[at] += leaf.mass * shares
        if leaf.mass > 0 and not np.any(right[at]):
            impossible(leaf.outcome, leaf)
    return law


def settled_law(
    drive: Callable[[Options], tuple[Found, FoundLaw]], options: Options, up: Callable[[str], str]
) -> tuple[tuple[Found, FoundLaw] | None, tuple[str, ...]]:
    """What driving finds, and why that is not all, in the words of `up` where the time was.

    As long as a law may be off only where it was not seen, it is driven again, with more checks.
    """
    found: tuple[Found, FoundLaw] | None = None
    more: Options | None = options
    try:
        while more is not None:
            found = _, law = drive(more)
            more = more.settling(law.distance, law.unseen) if law.is_doubtful else None
    except OutOfTime:
        return found, (up("its law was not driven, and is sampled"),)
    except Undrivable as error:
        return found, (f"{NOT_DRIVEN}, and sampled: {error.reason}",)
    return found, ()


def found_law(
    law: Vector,
    right: Vector,
    options: Options,
    tally: CheckTally | None,
    acceptance_rate: float | None = None,
    is_meant: bool = False,
) -> FoundLaw:
    """Distance of a law from the right one, and what may explain it: no gap if it is meant.

    Without a tally the law was stated.
    """
    difference, is_driven = law - right, tally is not None
    failing = max(1.0 - float(law.sum()), 0.0) if is_driven else 0.0
    unseen = 0.0 if tally is None else tally.unseen
    return FoundLaw(
        distance=0.5 * (float(np.abs(difference).sum()) + failing),
        excess=float(np.maximum(difference, 0.0).sum()),
        tolerance=options.rounding(tally is not None and tally.coarse),
        rounding=options.rounding(is_driven),
        num_checks=None if tally is None else tally.num_checks,
        unseen=unseen,
        gap=0.0 if is_meant else options.gap(unseen),
        acceptance_rate=acceptance_rate,
        impossible_mass=float(law[right <= 0].sum()),
    )
