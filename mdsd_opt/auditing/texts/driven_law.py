"""Law of the texts that a function writes with one pair of models, found by driving it."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.driving import Budget, Tape
from mdsd_opt.auditing.settings import Options
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.texts.report import Trial
from mdsd_opt.auditing.texts.session import Session, log_failure, log_impossible
from mdsd_opt.auditing.texts.session_tree import SessionTape, SessionTree
from mdsd_opt.auditing.texts.text_law import variations
from mdsd_opt.auditing.texts.toys import Tables
from mdsd_opt.auditing.trees.texts import Texts

Vector = NDArray[np.float64]

#: Total variation that rounding alone, or draws at an end of their range, may cause.
ROUNDING = 1e-5


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DrivenText:
    r"""A law of texts.

    Attributes
    ----------
    law : ndarray, shape (V**length,)
        Completed by the target; it sums to less than one where calls fail.
    distance : float
        Excess over the target's law, :math:`\sum_t \max(\Pr(t) - p(t), 0)`: total variation, and
        where calls fail the least that it can be.
    tolerance : float
        Part of the distance that is rounding.
    edge_mass : float or None
        Probability of the texts that the target rules out, together, or what rounding has changed
        where that is more; None where neither was met.
    num_merged : int
        Nodes of the tree that were taken to be others.
    wrong, failed : ViolationLog
        Impossible texts, however rare; calls that gave none.
    """

    tables: Tables
    texts: Texts
    law: Vector
    distance: float
    tolerance: float
    num_checks: int
    num_merged: int
    seconds: float
    wrong: ViolationLog = field(default_factory=ViolationLog)
    failed: ViolationLog = field(default_factory=ViolationLog)
    edge_mass: float | None = None
    interval: None = None

    @property
    def fits(self) -> bool:
        """Whether the law is the target's, up to rounding."""
        return self.distance <= self.tolerance

    @property
    def is_right(self) -> bool:
        """Whether the law fits, and impossible texts do not come out even once in a lifetime."""
        return self.fits and not self.wrong.count

    @property
    def is_lossy(self) -> bool:
        """Whether the law deviates by more than an edge."""
        return self.distance > max(self.tolerance, ROUNDING)

    @property
    def position(self) -> int | None:
        """First token whose law given those before it is wrong."""
        by_token = variations(self.texts, self.law)
        return next((n for n, tv in enumerate(by_token) if tv > self.tolerance), None)

    @property
    def first_token_variation(self) -> float:
        """Total variation of the first token's law."""
        return variations(self.texts, self.law)[0]

    def trial(self) -> Trial:
        """Trial as reports list it."""
        return Trial.on(
            self.tables,
            method="driven",
            total_variation=self.distance,
            num_checks=self.num_checks,
            seconds=self.seconds,
        )


def driven_text(session: Session, options: Options, merges: bool, deadline: float) -> DrivenText:
    """Law of the texts of a session.

    Raises
    ------
    Undrivable
        Also if the options' calls do not suffice, and after the deadline (of `time.perf_counter`).
    """
    began, texts, tables = time.perf_counter(), session.texts, session.tables
    assert isinstance(tables, Tables)
    budget = Budget(options.max_calls, deadline)

    def run(tape: Tape) -> Hashable:
        assert isinstance(tape, SessionTape)
        return session.outcome(tape.heard)

    tree = SessionTree(run, options.driven_checks, tables.length, merges, budget)
    law, wrong, failed = np.zeros(texts.law.size), ViolationLog(), ViolationLog()
    for leaf in tree.outcomes():
        text = leaf.outcome
        if not isinstance(text, tuple):
            log_failure(text, wrong, failed)
            continue
        here = texts.place(text)
        law[here] += leaf.mass * texts.rest(text)
        if leaf.mass > 0 and not texts.law[here].any():
            where = f" with {leaf.where}" if leaf.where else ""
            log_impossible(text, tables, f"{where}: probability {leaf.mass:.3g}", wrong)
    distance = float(np.maximum(law - texts.law, 0.0).sum())
    tolerance = options.rounding(tree.coarse)
    edges = [float(law[texts.law == 0].sum())] * bool(wrong.count)
    edges += [distance] * (tolerance < distance <= ROUNDING)
    return DrivenText(
        tables=tables,
        texts=texts,
        law=law,
        distance=distance,
        tolerance=tolerance,
        num_checks=tree.num_checks,
        num_merged=tree.num_merged,
        seconds=time.perf_counter() - began,
        wrong=wrong,
        failed=failed,
        edge_mass=max(edges, default=None),
    )
