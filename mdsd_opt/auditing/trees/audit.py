"""Is a rule for trees of drafts lossless? The law of the whole text that it gives, or a sample."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.driving import Tape, Undrivable, driven_tree
from mdsd_opt.auditing.edges import tree_edges
from mdsd_opt.auditing.findings import Findings, FoundLaw
from mdsd_opt.auditing.output_checks import Words, law_checks, length_check, merged_cells
from mdsd_opt.auditing.randomness.serving import served
from mdsd_opt.auditing.settings import COARSE, FINE, Settings, generator_of
from mdsd_opt.auditing.subject import (
    Failure,
    TreeVerify,
    ViolationLog,
    answered,
    described,
    outcome_of,
)
from mdsd_opt.auditing.trees.report import TreeAuditReport, blind_spots
from mdsd_opt.auditing.trees.texts import Laws, Texts, drawn_trees
from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.decoding.draft_tree import Node, grow
from mdsd_opt.decoding.generation import set_targets
from mdsd_opt.decoding.topology import Topology, parse_topology
from mdsd_opt.decoding.tree_optimum import tree_bound
from mdsd_opt.drafts.by_name import SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName, UnsupportedScheme

Vector = NDArray[np.float64]

METHODS = ("auto", "driven", "sampling")

#: Failures on all of the first calls mean that the rule is called in the wrong way.
_HOPELESS_CALLS = 10

_TEXTS = Words(
    "texts",
    "any change of the law of the texts",
    "beginnings",
    "a change after some beginning",
    "likely texts",
    "mass moved between likely texts and others",
    "single texts",
    "one text too often or too rare",
    "succession",
    "texts that depend on earlier steps",
)

#: Seconds for the optimum of the tree.
_OPTIMUM_SECONDS = 5.0


def audit_tree(
    verify: TreeVerify,
    target: Any,
    draft: Any,
    tree: str | Topology,
    rng: np.random.Generator | int,
    num_trials: int = 20_000,
    *,
    scheme: str | SchemeMaker = "with_replacement",
    method: str = "auto",
    seconds: float = 60.0,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    tolerance: float | None = None,
    max_trees: int = 100,
    edge_probes: int = 512,
    driven_checks: int = 100,
) -> TreeAuditReport:
    r"""Settle whether a rule that accepts several drafts at once gives texts of the target's law.

    What one step gives, accepted drafts and one more token, is completed by the target to the most
    tokens that a step can give, n. Lossless means that the law of these n tokens is the target's:

    .. math:: \sum_T \Pr(T) \sum_{y} \Pr(y \mid T) \prod_{i > |y|} p(t_i \mid t_{<i})
              = \prod_i p(t_i \mid t_{<i})

    over the trees T of drafts and the outputs y that the text t begins with. The first token alone
    may be right where the text is not.

    Parameters
    ----------
    verify : callable
        ``(root, rng) -> tokens``: the accepted drafts and one more token. `root` is the
        `mdsd_opt.decoding.Node` of a drawn tree with the target's law at every node (`target`), how
        the drafts after it were drawn (`drafts`, with its law `q`), which they are (`draws`, in
        order) and the nodes they lead to (`children`, by token). Draws from PyTorch, Python's
        `random` and `numpy.random` are answered by the audit, see `mdsd_opt.audit`. The method
        ``verify`` of a rule of `mdsd_opt.decoding.get_rule` is such a callable.
    target, draft : callable
        From a text (tuple of token ids) to the probabilities of the next token, shape (V,): p and
        q. `mdsd_opt.auditing.trees.TableModel` makes random ones; below V = 3 and two levels much
        cannot be seen, and the report says so.
    tree : str or Topology
        "2x3" (drafts x depth), "chain2", ..., see `mdsd_opt.decoding.parse_topology`.
    rng : numpy.random.Generator or int
    num_trials : int
        Steps to be sampled, where the law is not found by driving.
    scheme : str or callable
        How the drafts after a node are drawn.
    method : str
        "driven": all trees are enumerated, and every decision is driven through chosen random
        numbers, exact up to the random checks that the report counts; "sampling"; "auto" drives
        where there are at most `max_trees` trees and the rule can be driven.
    seconds : float
        Sampling ends after this time; the report says what the trials could see.
    false_alarm : float
        Probability, at most, that sampling calls a lossless rule lossy.
    power : float
        With which the reported `detectable_bias` is found.
    tolerance : float, optional
        Total variation put down to rounding: by default 1e-9, and 1e-6 where draws, or the weights
        they go by, are float32 or coarser, or races.
    max_trees : int
        Trees that are driven one by one.
    edge_probes : int
        By sampling: calls at most with a draw at an end of what its type can hold, such as a
        uniform of 0. A driven law has the ends in it.
    driven_checks : int
        Random calls for each tree that its driven law must foretell.

    Returns
    -------
    TreeAuditReport

    Raises
    ------
    InvalidInput
        The rule fails on every call, or cannot be driven where that was asked for.
    UnservedDraw
        It draws random numbers that the audit cannot answer.
    ProblemTooLarge
        More than 200,000 texts.
    """
    if method not in METHODS:
        raise UnknownName.among("method", method, METHODS)
    if not callable(verify):
        raise InvalidInput(
            f"verify is a {type(verify).__name__}: give a callable (root, rng) -> tokens"
        )
    topology = parse_topology(tree) if isinstance(tree, str) else tree
    if not isinstance(topology, Topology):
        raise InvalidInput(
            f"the tree {tree!r} is grown by what is accepted: give a fixed one, such as 2x3"
        )
    settings = Settings(false_alarm, power, 0.99, num_trials)
    checked_amount("seconds", seconds)
    if tolerance is not None:
        checked_tolerance("tolerance", tolerance, or_zero=True)
    p, q, make = Laws(target, "target"), Laws(draft, "draft"), scheme_maker(scheme)
    texts = Texts(p, topology.depth + 1)
    rng = generator_of(rng)
    audit = _TreeAudit(verify, p, q, topology, make, texts, settings)
    if method != "sampling":
        trees = list(islice(drawn_trees(p, q, topology, make), max_trees + 1))
        if len(trees) <= max_trees:
            try:
                return audit.driven(trees, driven_checks, tolerance)
            except Undrivable:
                if method == "driven":
                    raise
        elif method == "driven":
            raise ProblemTooLarge(
                f"there are more than {max_trees:,} trees of drafts to drive one by one "
                "(max_trees): take a smaller tree, or method='sampling'"
            )
    return audit.sampled(rng, seconds, edge_probes)


@dataclass(frozen=True, slots=True, eq=False)
class _TreeAudit:
    verify: TreeVerify
    target: Laws
    draft: Laws
    topology: Topology
    make: SchemeMaker
    texts: Texts
    settings: Settings

    def driven(
        self, trees: list[tuple[Node, float]], checks: int, tolerance: float | None
    ) -> TreeAuditReport:
        """The law of all texts, from that of each tree."""
        texts, log = self.texts, ViolationLog()
        law = np.zeros(texts.law.size)
        accepted = failing = 0.0
        num_checks, coarse = 0, False
        for root, probability in trees:

            def run(tape: Tape, root: Node = root) -> Hashable:
                return self._outcome(root, tape.bit_generator.generator)

            found = driven_tree(run, checks, texts.vocab_size)
            num_checks += found.num_checks
            coarse |= found.coarse
            for leaf in found.outcomes():
                mass = probability * leaf.mass
                outcome = leaf.outcome
                if isinstance(outcome, Failure):
                    failing += mass
                    text = f"{described(root)} {outcome.message}: probability {leaf.mass:.3g}"
                    log.add(outcome.kind, (), f"{text} given these drafts")
                    continue
                assert isinstance(outcome, tuple)
                here = texts.place(outcome)
                law[here] += mass * texts.rest(outcome)
                accepted += mass * len(outcome)
                if mass > 0 and not texts.law[here].any():
                    where = f" with {leaf.where}" if leaf.where else ""
                    text = f"{described(root)}{where} gave {outcome}, which has probability zero"
                    log.add("impossible text", (), f"{text}: probability {mass:.3g} in all")
        if failing > 1 - 1e-9:
            raise InvalidInput(
                f"verify fails on every call: {log.listed[0].message}. It is called with "
                "(root, rng)."
            )
        found_law = FoundLaw(
            distance=0.5 * (float(np.abs(law - texts.law).sum()) + failing),
            tolerance=(COARSE if coarse else FINE) if tolerance is None else tolerance,
            num_checks=num_checks,
        )
        findings = Findings(
            settings=self.settings,
            law=found_law,
            wrong_tokens=log,
            accept_length=accepted,
            optimal_accept_length=self._optimum(),
            edges=(ViolationLog(), None),
        )
        return self._report(findings, law, len(trees))

    def _outcome(self, root: Node, rng: np.random.Generator) -> Hashable:
        """The tokens of a call, or a `Failure`."""
        return outcome_of(lambda: answered(self.verify, root, rng, self.target.vocab_size))

    def sampled(
        self, rng: np.random.Generator, seconds: float, edge_probes: int
    ) -> TreeAuditReport:
        """A sample of texts, until there are enough or time is up."""
        texts, log, deadline = self.texts, ViolationLog(), time.perf_counter() + seconds
        numbers: list[int] = []
        lengths: list[int] = []
        with served(rng) as serving:
            for n in range(self.settings.num_trials):
                if n and time.perf_counter() > deadline:
                    break
                root = self._drawn(rng)
                with serving.call():
                    outcome = self._outcome(root, rng)
                if n == 0:
                    serving.check()
                if isinstance(outcome, Failure):
                    log.add(outcome.kind, (), f"{described(root)} {outcome.message}")
                    if log.count == n + 1 == _HOPELESS_CALLS:
                        raise InvalidInput(
                            f"verify failed on each of its first {_HOPELESS_CALLS} calls: "
                            f"{log.listed[-1].message}. It is called with (root, rng)."
                        )
                    continue
                assert isinstance(outcome, tuple)
                if not texts.law[texts.place(outcome)].any():
                    text = f"{described(root)} gave {outcome}, which has probability zero"
                    log.add("impossible text", (), text)
                    continue
                numbers.append(texts.completed(outcome, rng))
                lengths.append(len(outcome))
        log.restarting = serving.restarting
        drawn, steps = np.array(numbers, dtype=np.int64), np.array(lengths)
        law = np.bincount(drawn, minlength=texts.law.size) / max(drawn.size, 1)
        optimum, in_order = self._optimum(), np.arange(law.size)
        checks = [*law_checks(texts.law, in_order, drawn, rng, _TEXTS)]
        if optimum is not None and steps.size:
            excess = float(steps.mean()) - optimum
            checks.append(length_check(excess, self.topology.depth, steps.size))
        findings = Findings(
            settings=self.settings,
            num_trials=drawn.size + log.count,
            checks=checks,
            distance=(0.5 * float(np.abs(law - texts.law).sum()), None),
            outcomes=drawn.size,
            cells=merged_cells(texts.law, in_order, drawn.size).probabilities.size,
            wrong_tokens=log,
            accept_length=float(steps.mean()) if steps.size else math.nan,
            optimal_accept_length=optimum,
            edges=tree_edges(
                self.verify, lambda: self._drawn(rng), texts.vocab_size, rng, edge_probes
            ),
        )
        return self._report(findings, law)

    def _drawn(self, rng: np.random.Generator) -> Node:
        """A tree of drafts with the target's laws at its nodes."""

        def laws(texts: Any) -> NDArray[Any]:
            return np.stack([self.draft(tuple(text)) for text in texts])

        root = grow(laws, self.topology, self.make, rng)
        set_targets(root, self.target)
        return root

    def _optimum(self) -> float | None:
        """Tokens of a step, at most."""
        try:
            bound = tree_bound(
                self.target, self.draft, self.topology, self.make, time_limit=_OPTIMUM_SECONDS
            )
        except (ProblemTooLarge, UnsupportedScheme):
            return None
        return 1.0 + bound.upper

    def _report(self, findings: Findings, law: Vector, num_trees: int = 0) -> TreeAuditReport:
        texts = self.texts
        first = texts.first_token(law) - texts.first_token(texts.law)
        return findings.report(
            TreeAuditReport,
            length=texts.length,
            first_token_variation=0.5 * float(np.abs(first).sum()),
            num_trees=num_trees,
            blind_spots=blind_spots(texts.vocab_size, self.topology.depth),
        )
