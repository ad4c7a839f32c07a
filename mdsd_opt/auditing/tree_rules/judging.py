"""Report of a rule for trees on the laws that it was given: driven if possible, else sampled."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from mdsd_opt.auditing.driving import Budget, OutOfTime, Tape, Undrivable, driven_tree
from mdsd_opt.auditing.findings import Findings, FoundLaw
from mdsd_opt.auditing.subject import AlwaysFails, Failure, ViolationLog, described
from mdsd_opt.auditing.tree_rules.report import TreeAuditReport
from mdsd_opt.auditing.tree_rules.rule import AuditedRule, Met, TreeSample
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.evidence import (
    LOSSY,
    NOT_DRIVEN,
    NOT_SETTLED,
    Example,
    Options,
    oddest,
    random_checks,
)


def report_of(rule: AuditedRule, rng: np.random.Generator) -> TreeAuditReport:
    """Report of the rule, driven if that is asked for and possible, else sampled."""
    options, notes, deadline = rule.options, tuple[str, ...](), rule.options.deadline()
    driven: TreeAuditReport | None = None
    if options.method != "sampling":
        trees = list(islice(rule.trees(), options.max_trees + 1))
        if len(trees) > options.max_trees:
            notes = (
                f"{NOT_DRIVEN}: there are more than {options.max_trees:,} trees of drafts "
                "(max_trees)",
            )
        else:
            try:
                more: Options | None = options
                while more is not None:
                    driven = _driven(rule, trees, more, deadline, rng)
                    if driven.verdict_class != NOT_SETTLED:
                        return driven
                    more = more.settling(driven.total_variation, driven.detectable_bias)
            except OutOfTime:
                notes = (options.up("its law was not driven, and is sampled"),)
                deadline = options.deadline()
            except Undrivable as error:
                notes = (f"{NOT_DRIVEN}, and sampled: {error.reason}",)
    report = TreeSample(rule, rng).settled(deadline)
    notes += report.notes
    if driven is not None and report.verdict_class != LOSSY:  # in doubt, which no sample settles
        return replace(driven, num_trials=report.num_trials, notes=notes)
    return replace(report, notes=notes)


def _driven(
    rule: AuditedRule,
    trees: list[tuple[Any, float]],
    options: Options,
    deadline: float,
    rng: np.random.Generator,
) -> TreeAuditReport:
    """Report by the law of all texts, from that of each tree."""
    texts, log = rule.texts, ViolationLog()
    assert texts is not None
    budget = Budget(options.max_calls, deadline)
    law = np.zeros(texts.law.size)
    accepted = failing = impossible = 0.0
    failure: Failure | None = None
    num_checks, coarse, met = 0, False, Met(rule.topology.depth)
    shares = np.array([probability for _, probability in trees])
    checks, unseen = random_checks(shares, options.driven_checks, options.power)
    with progress_bar("trees of drafts", len(trees), options.progress) as advance:
        for (root, probability), of_tree in zip(trees, checks, strict=True):

            def run(tape: Tape, root: Any = root) -> Hashable:
                return rule.outcome(root, tape.generator)

            seed = int(rng.integers(2**31))
            tree = driven_tree(run, of_tree, texts.vocab_size, budget, seed)
            num_checks += tree.num_checks
            coarse |= tree.coarse
            log.restarts(tree.restarting)
            for leaf in tree.outcomes():
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
                    text = f"{described(root)}{where} gave {outcome}, which has probability zero"
                    log.add("impossible text", (), f"{text}: probability {mass:.3g} in all", mass)
                    impossible += mass
            advance(1)
    if failure is not None and failing > 1 - 1e-9:
        raise AlwaysFails(failure, "It is called with (root, rng).")
    found_law = FoundLaw(
        distance=0.5 * (float(np.abs(law - texts.law).sum()) + failing),
        excess=float(np.maximum(law - texts.law, 0.0).sum()),
        impossible_mass=impossible,
        tolerance=options.rounding(coarse),
        rounding=options.rounding(coarse=True),
        num_checks=num_checks,
        unseen=unseen,
        gap=options.gap(unseen),
    )
    odd = oddest(law, texts.law)
    findings = Findings(
        options=options,
        law=found_law,
        example=Example("", texts.text(odd), float(texts.law[odd]), float(law[odd])),
        wrong_tokens=log,
        accept_length=accepted,
        optimal_accept_length=rule.optimum(),
        edges=(ViolationLog(), None),
        coverage=met.coverage,
    )
    first = texts.first_token(law) - texts.first_token(texts.law)
    return rule.report(findings, 0.5 * float(np.abs(first).sum()), len(trees))
