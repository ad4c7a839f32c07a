"""Audit of a rule for trees on a vocabulary too wide to tell texts apart: one law per place."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.edges import tree_edges
from mdsd_opt.auditing.findings import Findings
from mdsd_opt.auditing.output_checks import acceptance_check
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.seen_texts import ByPlace
from mdsd_opt.auditing.settings import LEAST_CALLS, Options
from mdsd_opt.auditing.subject import (
    HOPELESS_CALLS,
    AlwaysFails,
    Failure,
    TreeVerify,
    ViolationLog,
    answered,
    described,
    outcome_of,
)
from mdsd_opt.auditing.trees.met import Met
from mdsd_opt.auditing.trees.report import TreeAuditReport
from mdsd_opt.auditing.trees.texts import promised_row
from mdsd_opt.base.array_types import Vector
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.drafts.by_name import SchemeMaker
from mdsd_opt.trees.draft_tree import Node, drawn, set_targets
from mdsd_opt.trees.topology import Topology, valued


class WideAudit:
    """Texts that a rule gives on laws by place, counted as they come.

    Parameters
    ----------
    verify : callable
        As in `mdsd_opt.audit_tree`.
    target, draft : sequence of ndarray, shape (V,)
        p at each place of a text, one more than the tree has levels; q at each level. The last row
        stands for all that come after it.
    topology : Topology
    make : callable
        Function from q and K to the drafts.
    options : Options
    promise : Sampling, optional
        Applied by the rule on both sides to what it is shown, see `mdsd_opt.audit_tree`.
    applied : tuple of bool
        Whether the rule is shown p and q under the promise already.
    """

    def __init__(
        self,
        verify: TreeVerify,
        target: Sequence[Vector],
        draft: Sequence[Vector],
        topology: Topology,
        make: SchemeMaker,
        options: Options,
        promise: Sampling | None = None,
        applied: tuple[bool, bool] = (False, False),
    ) -> None:
        self._verify, self._options, self._make = verify, options, make
        self._topology, self._shape = topology, valued(topology)
        self.vocab_size = target[0].size
        length = topology.depth + 1
        shown = [target[min(n, len(target) - 1)] for n in range(length)]
        shown_drafts = [draft[min(n, len(draft) - 1)] for n in range(length - 1)]
        self._shown: tuple[list[Vector], list[Vector]] | None = None
        self._p, self._q = shown, shown_drafts
        if promise is not None:
            self._p, self._q = (
                [promised_row(row, promise) for row in rows] for rows in (shown, shown_drafts)
            )
            self._shown = (
                self._p if applied[0] else shown,
                self._q if applied[1] else shown_drafts,
            )
        self._texts = ByPlace(self._p, self._q)
        self._schemes: dict[tuple[int, int, bool], DraftScheme] = {}
        self._drafted = 0
        self._log, self._met = ViolationLog(), Met(topology.depth)

    def sample(self, number: int, rng: np.random.Generator, deadline: float = math.inf) -> None:
        """Add up to this number of calls to the sample, as long as there is time."""
        with served(rng) as serving:
            for n in range(number):
                if n >= LEAST_CALLS and time.perf_counter() > deadline:
                    break
                root = self.drawn(rng)
                with serving.call():
                    outcome = outcome_of(
                        partial(answered, self._verify, root, rng, self.vocab_size)
                    )
                if n == 0:
                    serving.check()
                self.count(root, outcome, rng)
        self._log.restarting = serving.restarting

    def count(self, root: Node, outcome: object, rng: np.random.Generator) -> None:
        """Add the outcome of one call: tokens, or a `Failure`."""
        if isinstance(outcome, Failure):
            self._log.add(outcome.kind, (), f"{described(root)} {outcome.message}")
            if not self._texts.size and self._log.count == HOPELESS_CALLS:
                raise AlwaysFails(outcome, "It is called with (root, rng).")
            return
        assert isinstance(outcome, tuple)
        wrong = self._texts.add(outcome, rng)
        if wrong is not None:
            told = f"{described(root)} gave {outcome}: token {wrong} has probability zero"
            self._log.add("impossible text", (), told)
            return
        self._met.add(root, outcome, 1.0)
        self._drafted += outcome[0] in root.children

    def drawn(self, rng: np.random.Generator) -> Node:
        """Random tree of drafts, with the laws at its nodes that the rule is shown."""
        root = drawn(self._laws, self._shape, self._scheme_of, rng)
        targets, _ = self._shown or (self._p, ())
        set_targets(root, lambda text: targets[len(text)])
        if self._shown is not None:
            for node in root.walk():
                if node.drafts is not None:
                    node.drafts = self._scheme(node.depth, node.drafts.num_drafts, True)
        return root

    def _laws(self, texts: Sequence[Sequence[int]]) -> Vector:
        # The place stands for the law: a row of a wide vocabulary is not copied for every tree.
        return np.array([[len(text)] for text in texts], dtype=np.float64)

    def _scheme_of(self, place: Vector, num_drafts: int) -> DraftScheme:
        return self._scheme(int(place[0]), num_drafts, False)

    def _scheme(self, place: int, num_drafts: int, shown: bool) -> DraftScheme:
        key = place, num_drafts, shown
        if key not in self._schemes:
            rows = self._shown[1] if shown and self._shown is not None else self._q
            self._schemes[key] = self._make(rows[place], num_drafts)
        return self._schemes[key]

    def report(self, rng: np.random.Generator) -> TreeAuditReport:
        """Report of the sample so far."""
        options, texts = self._options, self._texts
        seen = texts.examined(rng, options.confidence)
        checks = list(seen.checks)
        root = self._scheme(0, self._topology.drafts_at(()), False)
        if isinstance(root, WithReplacement) and root.num_drafts == 1:
            overlap = float(np.minimum(self._p[0], self._q[0]).sum())
            above = statistics.at_most(self._drafted, texts.size, overlap + 1e-12)
            checks.append(acceptance_check(above))
        found = Findings(
            options=options,
            num_trials=texts.size + self._log.count,
            checks=checks,
            distance=seen.distance,
            outcomes=texts.size,
            cells=seen.num_cells,
            certain=texts.certain,
            coverage=self._met.coverage,
            wrong_tokens=self._log,
            accept_length=self._met.mean_length,
            edges=tree_edges(
                self._verify, lambda: self.drawn(rng), self.vocab_size, rng, options.edge_probes
            ),
        )
        own = {"length": len(self._p), "first_token_variation": seen.first}
        report = found.report(TreeAuditReport, **own)
        return report if report.clean else replace(report, cause=seen.cause)
