"""Audit of a rule for trees of drafts, by the law of the whole text that it gives, or a sample."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing import statistics
from mdsd_opt.auditing.driving import Budget, OutOfTime, Tape, Undrivable, driven_tree
from mdsd_opt.auditing.edges import tree_edges
from mdsd_opt.auditing.findings import Findings, FoundLaw
from mdsd_opt.auditing.output_checks import TEXTS, law_checks, length_check, merged_cells
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.report import NOT_DRIVEN, NOT_JUDGED
from mdsd_opt.auditing.settings import COARSE, FINE, LEAST_CALLS, MAX_CALLS, Options, generator_of
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
from mdsd_opt.auditing.trees.report import TreeAuditReport, blind_spots
from mdsd_opt.auditing.trees.texts import ModelLaws, TableModel, Texts, drawn_trees, promised
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.drafts.by_name import SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnsupportedScheme
from mdsd_opt.trees.draft_tree import Node, set_targets
from mdsd_opt.trees.draft_tree import drawn as drawn_tree
from mdsd_opt.trees.optimum import tree_bound
from mdsd_opt.trees.topology import Topology, ValuedTopology, parse_topology, valued

#: Vocabulary size, tables (seeds of target and draft) and seconds of the added random laws. On
#: these tables a residual that keeps its scale is .03 away or more after every text of up to one
#: token: it is above q for some tokens and below it for others.
_WIDER, _WIDER_TABLES, _WIDER_SECONDS = 5, (47, 48), 10.0

#: Time limit in seconds for the optimum of the tree.
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
    seconds: float | None = None,
    max_calls: int = MAX_CALLS,
    promise: Sampling | None = None,
    false_alarm: float = 1e-6,
    power: float = 0.99,
    tolerance: float | None = None,
    max_trees: int = 100,
    edge_probes: int = 512,
    driven_checks: int = 100,
    progress: bool | None = None,
) -> TreeAuditReport:
    r"""Decide whether a rule that accepts several drafts at once gives texts of the target's law.

    What one step gives, accepted drafts and one more token, is completed by the target to the most
    tokens that a step can give, n. Lossless means that the law of these n tokens is the target's:

    .. math:: \sum_T \Pr(T) \sum_{y} \Pr(y \mid T) \prod_{i > |y|} p(t_i \mid t_{<i})
              = \prod_i p(t_i \mid t_{<i})

    over the trees T of drafts and the outputs y that the text t begins with. The first token alone
    may be right where the text is not.

    Where the laws given leave something unmet (drafts never accepted or never refused at some
    level, one token possible after every refusal), a rule that passes is put to random laws over
    more tokens as well: what is wrong there is reported, and that it was there.

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
        Function from a text (tuple of token ids) to the probabilities of the next token, shape
        (V,): p and q. `mdsd_opt.auditing.trees.TableModel` makes random ones; below V = 3 and two
        levels much cannot be seen, and the report says so.
    tree : str or Topology
        "2x3" (drafts x depth), "chain2", ..., see `mdsd_opt.decoding.parse_topology`.
    rng : numpy.random.Generator or int
    num_trials : int
        Steps to be sampled, where the law is not found by driving.
    scheme : str or callable
        Scheme by which the drafts after a node are drawn.
    method : str
        "driven": all trees are enumerated, and every decision is driven through chosen random
        numbers, exact up to the random checks that the report counts, where there are at most
        `max_trees` trees and the rule can be driven (a note says why not); "sampling"; "auto" is
        "driven".
    seconds : float, optional
        Time limit for driving, and again for the sample of what was not driven by then; a note says
        so.
    max_calls : int
        Most calls for driving the law.
    promise : Sampling, optional
        Temperature and filters that the rule itself applies on both sides: nodes hold the laws of
        the models, drafts are drawn from `draft` under the promise, and texts are to follow
        `target` under the promise.
    false_alarm : float
        Probability, at most, that sampling calls a lossless rule lossy.
    power : float
        Power with which the reported `detectable_bias` is found.
    tolerance : float, optional
        Total variation put down to rounding: by default 1e-9, and 1e-6 where draws, or the weights
        they go by, are float32 or coarser, or races.
    max_trees : int
        Trees that are driven one by one.
    edge_probes : int
        Most calls, with sampling, that have a draw at an end of what its type can hold, such as a
        uniform of 0. A driven law has the ends in it.
    driven_checks : int
        Random calls for each tree that its driven law must foretell.
    progress : bool, optional
        Whether to draw a bar on stderr; by default on a terminal, if it takes longer than a second.

    Returns
    -------
    TreeAuditReport

    Raises
    ------
    InvalidInput
        The rule fails on every call.
    UnservedDraw
        It draws random numbers that the audit cannot answer.
    ProblemTooLarge
        More than 200,000 texts.
    """
    if not callable(verify):
        raise InvalidInput(
            f"verify is a {type(verify).__name__}: give a callable (root, rng) -> tokens"
        )
    topology = parse_topology(tree) if isinstance(tree, str) else tree
    if not isinstance(topology, Topology):
        raise InvalidInput(
            f"the tree {tree!r} is grown by what is accepted: give a fixed one, such as 2x3"
        )
    options = Options(
        method=method,
        num_trials=num_trials,
        max_calls=max_calls,
        seconds=math.inf if seconds is None else seconds,
        false_alarm=false_alarm,
        power=power,
        tolerance=tolerance,
        max_trees=max_trees,
        edge_probes=edge_probes,
        driven_checks=driven_checks,
        progress=progress,
    )
    make = scheme_maker(scheme)
    audit = TreeAudit.of(verify, target, draft, topology, make, options, promise)
    rng = generator_of(rng)
    report = audit.run(rng)
    if not report.clean or not report.coverage_unmet:
        return report
    return _beside_wider_laws(report, audit, rng)


def _making_once(make: SchemeMaker) -> SchemeMaker:
    """Scheme maker that makes the drafts of one law once: thousands of trees have them."""
    made: dict[tuple[bytes, int], DraftScheme] = {}

    def known(law: NDArray[np.float64], num_drafts: int) -> DraftScheme:
        key = law.tobytes(), num_drafts
        if key not in made:
            made[key] = make(law, num_drafts)
        return made[key]

    return known


def _beside_wider_laws(
    report: TreeAuditReport, audit: TreeAudit, rng: np.random.Generator
) -> TreeAuditReport:
    """Report of random laws over more tokens, if these show something; else the given one."""
    most = max(audit.topology.num_drafts.values())
    vocab_size = max(_WIDER, most + 3)
    target, draft = (TableModel(vocab_size, table) for table in _WIDER_TABLES)
    options = audit.options
    rarely = replace(
        options,
        method="sampling" if options.method == "sampling" else "auto",
        seconds=min(options.seconds, _WIDER_SECONDS),
        false_alarm=options.false_alarm / 10,  # a second look is a second chance of a false alarm
    )
    where = f"on random laws with V = {vocab_size}, as those given leave something unmet"
    try:
        wider = TreeAudit.of(
            audit.verify, target, draft, audit.topology, audit.make, rarely, audit.promise
        )
    except ProblemTooLarge:
        return report
    try:
        found = wider.run(rng)
    except InvalidInput as error:
        return replace(report, verdict_class=NOT_JUDGED, laws=f"{where}: {error}")
    return report if found.clean else replace(found, laws=where)


@dataclass(frozen=True, slots=True, eq=False)
class TreeAudit:
    """A rule on two models, and the settings of its audit.

    `target` is the law that texts are to follow, `draft` the one that drafts are drawn from. Where
    sampling was promised, `shown` are the laws of the models, to which the rule has to apply it.
    """

    verify: TreeVerify
    target: ModelLaws
    draft: ModelLaws
    topology: Topology
    shape: ValuedTopology
    make: SchemeMaker
    texts: Texts
    options: Options
    promise: Sampling | None = None
    shown: tuple[ModelLaws, ModelLaws] | None = None

    @classmethod
    def of(
        cls,
        verify: TreeVerify,
        target: Any,
        draft: Any,
        topology: Topology,
        make: SchemeMaker,
        options: Options,
        promise: Sampling | None = None,
    ) -> TreeAudit:
        """Audit of a rule on two models."""
        p, q = ModelLaws(target, "target"), ModelLaws(draft, "draft")
        shown = None if promise is None else (p, q)
        if promise is not None:
            p, q = (ModelLaws(promised(law, promise), law.name) for law in (p, q))
        texts = Texts(p, topology.depth + 1)
        once = _making_once(make)
        shape = valued(topology)
        return cls(verify, p, q, topology, shape, once, texts, options, promise, shown)

    def run(self, rng: np.random.Generator) -> TreeAuditReport:
        """Report of the rule, driven if that is asked for and possible, else sampled."""
        options, notes, deadline = self.options, tuple[str, ...](), self.options.deadline()
        if options.method != "sampling":
            drawn = drawn_trees(self.target, self.draft, self.topology, self.make)
            trees = list(islice(drawn, options.max_trees + 1))
            if len(trees) > options.max_trees:
                notes = (
                    f"{NOT_DRIVEN}: there are more than {options.max_trees:,} trees of drafts "
                    "(max_trees)",
                )
            else:
                try:
                    return self.driven(trees, deadline)
                except OutOfTime:
                    notes = (options.up("its law was not driven, and is sampled"),)
                    deadline = options.deadline()
                except Undrivable as error:
                    notes = (f"{NOT_DRIVEN}, and sampled: {error.reason}",)
        found = self.sampled(rng, deadline)
        return replace(found, notes=(*notes, *found.notes))

    def driven(self, trees: list[tuple[Node, float]], deadline: float) -> TreeAuditReport:
        """Report by the law of all texts, from that of each tree."""
        options, texts, log = self.options, self.texts, ViolationLog()
        budget = Budget(options.max_calls, deadline)
        law = np.zeros(texts.law.size)
        accepted = failing = impossible = 0.0
        failure: Failure | None = None
        num_checks, coarse, met = 0, False, Met(self.topology.depth)
        with progress_bar("trees of drafts", len(trees), options.progress) as advance:
            for root, probability in trees:
                self._show(root)

                def run(tape: Tape, root: Node = root) -> Hashable:
                    return self._outcome(root, tape.bit_generator.generator)

                found = driven_tree(run, options.driven_checks, texts.vocab_size, budget)
                num_checks += found.num_checks
                coarse |= found.coarse
                log.restarting = tuple(dict.fromkeys((*log.restarting, *found.restarting)))
                for leaf in found.outcomes():
                    mass = probability * leaf.mass
                    outcome = leaf.outcome
                    if isinstance(outcome, Failure):
                        failing, failure = failing + mass, outcome
                        text = f"{described(root)} {outcome.message}: probability {leaf.mass:.3g}"
                        log.add(outcome.kind, (), f"{text} given these drafts", mass)
                        continue
                    assert isinstance(outcome, tuple)
                    here = texts.place(outcome)
                    law[here] += mass * texts.rest(outcome)
                    accepted += mass * len(outcome)
                    met.add(root, outcome, mass)
                    if mass > 0 and not texts.law[here].any():
                        where = f" with {leaf.where}" if leaf.where else ""
                        text = (
                            f"{described(root)}{where} gave {outcome}, which has probability zero"
                        )
                        log.add(
                            "impossible text", (), f"{text}: probability {mass:.3g} in all", mass
                        )
                        impossible += mass
                advance(1)
        if failure is not None and failing > 1 - 1e-9:
            raise AlwaysFails(failure, "It is called with (root, rng).")
        found_law = FoundLaw(
            distance=0.5 * (float(np.abs(law - texts.law).sum()) + failing),
            excess=float(np.maximum(law - texts.law, 0.0).sum()),
            impossible_mass=impossible,
            tolerance=options.tolerance
            if options.tolerance is not None
            else (COARSE if coarse else FINE),
            rounding=COARSE if options.tolerance is None else options.tolerance,
            num_checks=num_checks,
        )
        findings = Findings(
            options=options,
            law=found_law,
            wrong_tokens=log,
            accept_length=accepted,
            optimal_accept_length=self._optimum(),
            edges=(ViolationLog(), None),
            coverage=met.coverage,
        )
        first = texts.first_token(law) - texts.first_token(texts.law)
        return self._report(findings, 0.5 * float(np.abs(first).sum()), len(trees))

    def _outcome(self, root: Node, rng: np.random.Generator) -> Hashable:
        """Tokens of a call, or a `Failure`."""
        return outcome_of(lambda: answered(self.verify, root, rng, self.target.vocab_size))

    def sampled(
        self,
        rng: np.random.Generator,
        deadline: float = math.inf,
        counts: Callable[[], bool] = lambda: True,
    ) -> TreeAuditReport:
        """Report by a sample of texts, until there are enough or time is up.

        `counts` tells after each call whether its text belongs to the sample.
        """
        options, texts, log = self.options, self.texts, ViolationLog()
        wanted = options.num_trials
        met = Met(self.topology.depth)
        numbers: list[int] = []
        lengths: list[int] = []
        notes: tuple[str, ...] = ()
        with (
            served(rng) as serving,
            progress_bar("steps", wanted, options.progress) as advance,
        ):
            for n in range(wanted):
                advance(1)
                if n >= LEAST_CALLS and time.perf_counter() > deadline:
                    notes = (options.up(f"{n:,} of {wanted:,} calls were made"),)
                    break
                root = self.drawn(rng)
                with serving.call():
                    outcome = self._outcome(root, rng)
                if n == 0:
                    serving.check()
                if not counts():
                    continue
                if isinstance(outcome, Failure):
                    log.add(outcome.kind, (), f"{described(root)} {outcome.message}")
                    if log.count == n + 1 == HOPELESS_CALLS:
                        raise AlwaysFails(outcome, "It is called with (root, rng).")
                    continue
                assert isinstance(outcome, tuple)
                if not texts.law[texts.place(outcome)].any():
                    text = f"{described(root)} gave {outcome}, which has probability zero"
                    log.add("impossible text", (), text)
                    continue
                numbers.append(texts.completed(outcome, rng))
                lengths.append(len(outcome))
                met.add(root, outcome, 1.0)
        log.restarting = serving.restarting
        drawn, steps = np.array(numbers, dtype=np.int64), np.array(lengths)
        law = np.bincount(drawn, minlength=texts.law.size) / max(drawn.size, 1)
        optimum, in_order = self._optimum(), np.arange(law.size)
        checks = [*law_checks(texts.law, in_order, drawn, rng, TEXTS)]
        if optimum is not None and steps.size:
            excess = float(steps.mean()) - optimum
            checks.append(length_check(excess, self.topology.depth, steps.size))
        cells = merged_cells(texts.law, in_order, drawn.size)
        findings = Findings(
            options=options,
            num_trials=drawn.size + log.count,
            checks=checks,
            distance=statistics.distance(drawn, texts.law, options.confidence, cells.of_token),
            outcomes=drawn.size,
            cells=cells.probabilities.size,
            certain=int((texts.law > 0).sum()) == 1,
            coverage=met.coverage,
            wrong_tokens=log,
            accept_length=float(steps.mean()) if steps.size else math.nan,
            optimal_accept_length=optimum,
            edges=tree_edges(
                self.verify, lambda: self.drawn(rng), texts.vocab_size, rng, options.edge_probes
            ),
            notes=notes,
        )
        width = texts.law.size // texts.vocab_size
        first, _ = statistics.distance(
            drawn // width, texts.first_token(texts.law), options.confidence
        )
        return self._report(findings, first)

    def drawn(self, rng: np.random.Generator) -> Node:
        """Random tree of drafts, with the laws at its nodes that the rule is shown."""

        def laws(texts: Any) -> NDArray[Any]:
            return np.array([self.draft(tuple(text)) for text in texts])

        root = drawn_tree(laws, self.shape, self.make, rng)
        set_targets(root, self.target)
        self._show(root)
        return root

    def _show(self, root: Node) -> None:
        """Replace the promised laws of a tree by those that the rule is shown."""
        if self.shown is None:
            return
        target, draft = self.shown
        for node in root.walk():
            node.target = target(node.tokens)
            if node.drafts is not None:
                node.drafts = self.make(draft(node.tokens), node.drafts.num_drafts)

    def _optimum(self) -> float | None:
        """Upper bound of the mean number of tokens of a step, or None if it is not known."""
        try:
            bound = tree_bound(
                self.target, self.draft, self.topology, self.make, time_limit=_OPTIMUM_SECONDS
            )
        except (ProblemTooLarge, UnsupportedScheme):
            return None
        return 1.0 + bound.upper

    def _report(self, findings: Findings, first: float, num_trees: int = 0) -> TreeAuditReport:
        texts = self.texts
        return findings.report(
            TreeAuditReport,
            length=texts.length,
            first_token_variation=first,
            num_trees=num_trees,
            blind_spots=blind_spots(texts.vocab_size, self.topology.depth),
        )
