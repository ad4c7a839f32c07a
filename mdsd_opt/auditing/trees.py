"""Audit of a rule for trees of drafts, by the law of the whole text that it gives, or a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack, overload

import numpy as np

from mdsd_opt import trees
from mdsd_opt.auditing.laws import SmallLaws, TableModel, fixed_laws
from mdsd_opt.auditing.on_laws import audit_portfolio, fixed_tree
from mdsd_opt.auditing.portfolio import PortfolioReport
from mdsd_opt.auditing.subject import TreeVerify, check_arguments
from mdsd_opt.auditing.tree_rule import AuditedRule, TreeAuditReport, report_of
from mdsd_opt.base.checked import Rng, check_function, generator_of
from mdsd_opt.base.foreign import foreign
from mdsd_opt.drafts import SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.evidence import (
    NOT_JUDGED,
    AuditOptions,
    LimitKeywords,
    NoTokenLeft,
    Promise,
    both_sides,
    budgeted,
    options_of,
)
from mdsd_opt.trees import Topology

__all__ = ["TableModel", "TreeAuditReport", "audit_tree"]
#: Vocabulary size, tables (seeds of target and draft) and most calls for driving the added random
#: laws. On these tables a residual that keeps its scale is .03 away or more after every text of up
#: to one token: it is above q for some tokens and below it for others.
_WIDER, _WIDER_TABLES, _WIDER_CALLS = 5, (47, 48), 20_000

#: Steps that are sampled unless their number is given.
_TRIALS = 20_000

#: Vocabulary size of the added fixed laws, and steps on added laws where they are sampled.
_FIXED, _BESIDE_TRIALS = 4, 4_000


@overload
def audit_tree(
    verify: TreeVerify | trees.TreeRule | str,
    target: None = None,
    draft: None = None,
    tree: str | Topology = "2x2",
    rng: Rng = 0,
    num_trials: int | None = None,
    *,
    scheme: str | SchemeMaker = "with_replacement",
    promise: Promise | None = None,
    options: AuditOptions = ...,
    **keywords: Unpack[LimitKeywords],
) -> PortfolioReport: ...


@overload
def audit_tree(
    verify: TreeVerify | trees.TreeRule | str,
    target: Callable[..., Any],
    draft: Callable[..., Any],
    tree: str | Topology,
    rng: Rng = 0,
    num_trials: int | None = None,
    *,
    scheme: str | SchemeMaker = "with_replacement",
    promise: Promise | None = None,
    draft_promise: Promise | None = None,
    options: AuditOptions = ...,
    **keywords: Unpack[LimitKeywords],
) -> TreeAuditReport: ...


@foreign("the function under audit")
def audit_tree(
    verify: TreeVerify | trees.TreeRule | str,
    target: Any = None,
    draft: Any = None,
    tree: str | Topology = "2x2",
    rng: Rng = 0,
    num_trials: int | None = None,
    *,
    scheme: str | SchemeMaker = "with_replacement",
    promise: Promise | None = None,
    draft_promise: Promise | None = None,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[LimitKeywords],
) -> TreeAuditReport | PortfolioReport:
    r"""Decide whether a rule that accepts several drafts at once gives texts of the target's law.

    What one step gives, accepted drafts and one more token, is completed by the target to the most
    tokens that a step can give, n. Lossless means that the law of these n tokens is the target's:

    .. math:: \sum_T \Pr(T) \sum_{y} \Pr(y \mid T) \prod_{i > |y|} p(t_i \mid t_{<i})
              = \prod_i p(t_i \mid t_{<i})

    over the trees T of drafts and the outputs y that the text t begins with. The first token alone
    may be right where the text is not.

    A rule that passes is put to other laws as well: to a flat target, one whose draft is reversed,
    and one equal to its draft, over four tokens after one level of drafts; and where the laws given
    leave something unmet (drafts never accepted or never refused at some level, one token possible
    after every refusal), to random ones over more tokens. What is wrong there is reported, and that
    it was there.

    Parameters
    ----------
    verify : callable
        ``(root, rng) -> tokens``: the accepted drafts and one more token. `root` is the
        `mdsd_opt.decoding.Node` of a drawn tree with the target's law at every node (`target`), how
        the drafts after it were drawn (`drafts`, with its law `q`), which they are (`draws`, in
        order) and the nodes they lead to (`children`, by token). Draws from PyTorch, Python's
        `random` and `numpy.random` are answered by the audit, see `mdsd_opt.audit`. Or a rule of
        `mdsd_opt.decoding.get_rule`, or its name.
    target, draft : callable, optional
        Function from a text (tuple of token ids) to the probabilities of the next token, shape
        (V,): p and q. `mdsd_opt.auditing.trees.TableModel` makes random ones; below V = 3 and two
        levels much cannot be seen, and the report says so. Without
        them laws of all kinds are taken, see `mdsd_opt.auditing.audit_portfolio`.
    tree : str or Topology
        "2x3" (drafts x depth), "chain2", ..., see `mdsd_opt.decoding.parse_topology`.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    num_trials : int, optional
        Steps to be sampled, where the law is not found by driving: by default 20,000.
    scheme : str or callable
        Scheme by which the drafts after a node are drawn.
    promise, draft_promise : Sampling or callable, optional
        What the rule itself makes of the models' logits, see `mdsd_opt.audit_chain`: nodes hold the
        laws of the models, drafts are drawn from `draft` under its promise, and texts are to follow
        `target` under its own. The text of a node is its `tokens`.
    options : AuditOptions
        With the method "driven", all trees are enumerated, and every decision is driven through
        chosen random numbers, exact up to the random checks that the report counts, where there are
        at most `max_trees` trees and the rule can be driven (a note says why not); "auto" is the
        same. There are 512 probes of edges, and 100 checks of each tree. Time has no limit unless
        one is given, which holds for driving, and again for the sample of what was not driven by
        then.
    **keywords
        The same by their names, such as ``method="sampling"``.

    Returns
    -------
    TreeAuditReport, or PortfolioReport without laws

    Raises
    ------
    InvalidInput
        The rule fails on every call.
    ProblemTooLarge
        More than 200,000 texts.
    """
    if isinstance(verify, str):
        verify = trees.get_rule(verify)
    if isinstance(verify, trees.TreeRule):
        verify = verify.verify
    check_function("a callable (root, rng) -> tokens", verify=verify)
    asked = options_of(options, {**keywords, "num_trials": num_trials})
    topology = fixed_tree(tree)
    if target is None and draft is None:
        if draft_promise is not None:
            raise InvalidInput("draft_promise goes with laws of a target and a draft")
        return audit_portfolio(
            verify, rng, tree=topology, scheme=scheme, promise=promise, options=asked
        )
    if target is None or draft is None:
        raise InvalidInput("give the laws of both target and draft, or of neither")
    check_arguments(verify, "root, rng")
    settings = budgeted(asked, rng, num_trials=_TRIALS, edge_probes=512, driven_checks=100)
    make = scheme_maker(scheme)
    promises = both_sides(promise, draft_promise)
    rule = AuditedRule(verify, target, draft, topology, make, settings, promises)
    rng = generator_of(rng)
    report = report_of(rule, rng)
    most = max(topology.num_drafts.values())
    others = [(laws, topology.cut(1)) for laws in fixed_laws(max(_FIXED, most + 1))]
    if report.coverage_unmet:
        size = max(_WIDER, most + 3)
        target, draft = (TableModel(size, table) for table in _WIDER_TABLES)
        wider = SmallLaws("random", size, target, draft)
        others.insert(0, (wider, topology))
    for laws, tree_there in others:
        if report.clean:
            report = _beside(report, rule, laws, tree_there, rng)
    return report


def _beside(
    report: TreeAuditReport,
    rule: AuditedRule,
    laws: SmallLaws,
    topology: Topology,
    rng: np.random.Generator,
) -> TreeAuditReport:
    """Report of other laws than those given, if these show something; else the given one."""
    where = f"on {laws.name} laws with V = {laws.vocab_size}, tried beside those given"
    options = rule.options
    rarely = replace(
        options,
        method="sampling" if options.method == "sampling" else "auto",
        num_trials=min(options.num_trials, _BESIDE_TRIALS),
        max_calls=min(options.max_calls, _WIDER_CALLS),
        false_alarm=options.false_alarm / 10,  # a second look is a second chance of a false alarm
    )
    try:
        other = AuditedRule(
            rule.verify, laws.target, laws.draft, topology, rule.make, rarely, rule.promises
        )
    except (ProblemTooLarge, NoTokenLeft):
        return report
    try:
        beside = report_of(other, rng)
    except InvalidInput as error:
        return replace(report, verdict_class=NOT_JUDGED, laws=f"{where}: {error}")
    return report if beside.clean else replace(beside, laws=where)
