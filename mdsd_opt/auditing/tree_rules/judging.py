"""Report of a rule for trees on the laws that it was given: driven if possible, else sampled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from mdsd_opt.auditing.driven_laws import Driver, found_law, law_of
from mdsd_opt.auditing.driving import Budget, OutOfTime, Undrivable
from mdsd_opt.auditing.driving.draw_tree import Leaf
from mdsd_opt.auditing.findings import Findings
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
    texts, log, met = rule.texts, ViolationLog(), Met(rule.topology.depth)
    assert texts is not None
    shares = [share for _, share in trees]
    driver = Driver(shares, options, Budget(options.max_calls, deadline), rng, texts.vocab_size)
    law, failure = np.zeros(texts.law.size), [Failure("", "", "")]
    with progress_bar("trees of drafts", len(trees), options.progress) as advance:
        for n, (root, share) in enumerate(trees):

            def failed(one: Failure, leaf: Leaf, root: Any = root, share: float = share) -> None:
                failure[0] = one
                text = f"{described(root)} {one.message}: probability {leaf.mass:.3g}"
                log.add(one.kind, (), f"{text} given these drafts", share * leaf.mass)

            def impossible(text: Any, leaf: Leaf, root: Any = root, share: float = share) -> None:
                where, mass = f" with {leaf.where}" if leaf.where else "", share * leaf.mass
                told = f"{described(root)}{where} gave {text}, which has probability zero"
                log.add("impossible text", (), f"{told}: probability {mass:.3g} in all", mass)

            leaves = driver.leaves(n, partial(rule.outcome, root))
            law += share * law_of(leaves, texts, failed, impossible)
            for leaf in leaves:
                if isinstance(leaf.outcome, tuple):
                    met.add(root, leaf.outcome, share * leaf.mass)
            log.restarts(driver.restarting)
            advance(1)
    if not law.sum() > 1e-9:
        raise AlwaysFails(failure[0], "It is called with (root, rng).")
    found = found_law(law, texts.law, options, driver)
    odd = oddest(law, texts.law)
    findings = Findings(
        options=options,
        law=found,
        example=Example("", texts.text(odd), float(texts.law[odd]), float(law[odd])),
        wrong_tokens=log,
        accept_length=met.tokens,
        optimal_accept_length=rule.optimum(),
        edges=(ViolationLog(), None),
        coverage=met.coverage,
    )
    first = texts.first_token(law) - texts.first_token(texts.law)
    return rule.report(findings, 0.5 * float(np.abs(first).sum()), len(trees))
