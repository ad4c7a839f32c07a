"""Audits of functions that verify a chain of drafts: one line instead of an adapter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.chain_calls import (
    LIBRARIES,
    READ_CALLS,
    READ_TOKENS,
    Caller,
    chain_of,
    chain_rule,
)
from mdsd_opt.auditing.findings import Findings
from mdsd_opt.auditing.on_laws import CALLS, WIDE_CALLS, OnTrees
from mdsd_opt.auditing.portfolio import PortfolioReport, Tried
from mdsd_opt.auditing.rows import audit_rows
from mdsd_opt.auditing.subject import Unread, ViolationLog
from mdsd_opt.auditing.tree_rules.rule import ChainRule
from mdsd_opt.auditing.trial_laws import given_laws, standard_laws, wide_laws
from mdsd_opt.base.checked import checked_integer, is_among
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.seeds import Rng, generator_of
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.evidence import (
    AuditOptions,
    OptionKeywords,
    Options,
    Promise,
    budgeted,
    options_of,
    row_promises,
)

TAKES = ("probabilities", "logits", "log_probabilities")

_MOST_DRAFTS = 16


@foreign("the function under audit")
def audit_chain(
    verify: Callable[..., Any],
    rng: Rng = 0,
    *,
    takes: str = "probabilities",
    batch: bool | int = False,
    library: str | None = None,
    num_drafts: int = 2,
    laws: tuple[Any, Any] | None = None,
    vocab_sizes: Sequence[int] | None = None,
    promise: Promise | Sequence[Promise | None] | None = None,
    draft_promise: Promise | Sequence[Promise | None] | None = None,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[OptionKeywords],
) -> PortfolioReport:
    r"""Decide whether a function that verifies a chain of drafts is lossless, on laws of all kinds.

    The law of the whole text counts, see `mdsd_opt.audit_tree`: accepted drafts and one more token,
    completed by the target. Small laws are driven through chosen random numbers and so exact; wide
    ones (V = 32, and 2,048 with a long tail) are sampled, so that a function that is right has "no
    deviation", and the report says which bias could have stayed hidden. It says on which laws it
    was tried, how often drafts were accepted and refused at each level, and whether answers depend
    on earlier calls.

    Parameters
    ----------
    verify : callable
        ``verify(p, q, drafts)`` with p of shape (n + 1, V), q (n, V), drafts (n,). It may draw from
        PyTorch, `random` or `numpy.random`, which the audit answers, or take an argument ``rng``.
        Its answer may be the tokens (accepted drafts and one more; ids below zero are padding), how
        many were accepted and the last token, the accepted drafts and the last token, or tokens
        padded by whatever it is and how many drafts were accepted, or how many tokens there are,
        before them or behind: the form that fits all of 64 calls is taken, and told; if none does,
        nothing is judged.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    takes : str
        "probabilities", "logits" or "log_probabilities"; impossible tokens have -inf.
    batch : bool or int
        Whether a leading axis of one is expected: p of shape (1, n + 1, V), drafts (1, n). A number
        B of two or more: calls have B rows, each with laws of its own, p of shape (B, n + 1, V) and
        so on. Rows have different numbers of drafts, padded with -1, and their laws are NaN behind
        the last one; each row is judged by its own law, and must not depend on the next one.
    library : str, optional
        "numpy" (float64) or "torch" (float32). Else arrays are NumPy's, and PyTorch's where the
        first call raises with these and not with tensors, which the report says.
    num_drafts : int
        n.
    laws : tuple of two array_like, shape (..., V), optional
        Logits of target and draft to audit on, instead of laws of all kinds: consecutive rows are
        the places of a text, V is 262,144 at most.
    vocab_sizes : sequence of int, optional
        Instead of the wide laws, one with a long tail of each size.
    promise : Sampling or callable, optional
        What the function itself makes of the laws that it is given, which stay as the models give
        them. Temperature and filters of a `Sampling` hold for both sides, and drafts are drawn from
        the draft's law under it. A callable ``(text, logits) -> law`` holds for the target:
        penalties, a grammar, logit biases, least lengths. Of row i it is given the text
        ``drafts[:i]``, a tuple without any prompt, and the logarithms of p's row, shape (V,), -inf
        where p is zero; it returns the probabilities that the token in place i is to follow, shape
        (V,). Laws on which it leaves no token are left out. With ``batch=B``, a list of B promises
        is one for each row, as of greedy and sampled requests together: None promises nothing.
    draft_promise : Sampling or callable, optional
        The same for the draft: its laws under it are those that drafts are drawn from.
    options : AuditOptions
        Its budgets are, for each law that is sampled, 20,000 calls, 14,000 of a wide one or of a
        batch, 21,000 of one with a long tail, fewer above 4,096 tokens; 65 checks of each tuple of
        drafts, and 64 probes of edges. Where all calls would take minutes, and no limit of time
        is given, it is 20 seconds, in which faults are looked for first; it is for all laws
        together. The method "driven" is the same as "auto": what cannot be driven is
        sampled.
    **keywords
        The same by their names, such as ``num_trials=2_000``.

    Returns
    -------
    PortfolioReport

    Raises
    ------
    InvalidInput
        The function fails on every call, or its answers cannot be read.
    """
    for value, name, known in ((takes, "takes", TAKES), (library, "library", LIBRARIES)):
        if not is_among(value, known):
            raise UnknownName.among(name, value, known)
    if not callable(verify):
        raise InvalidInput(
            f"verify is a {type(verify).__name__}: give a callable (p, q, drafts) -> tokens; "
            "audit_portfolio takes a verifier, audit_tree a rule for trees"
        )
    num_drafts = checked_integer(num_drafts, "num_drafts", most=_MOST_DRAFTS)
    asked = options_of(options, keywords)
    own = {"num_trials": CALLS, "edge_probes": 64, "driven_checks": 65}
    settings = budgeted(asked, rng, **own)
    rng, by_row = generator_of(rng), row_promises(promise, draft_promise)
    promises = by_row[0]
    if not isinstance(batch, (bool, int, np.integer)):
        raise InvalidInput(f"batch is {batch!r}: give True, False or a number of rows")
    if not isinstance(batch, bool) and batch != 1:
        if (laws, vocab_sizes) != (None, None):
            raise InvalidInput(
                "laws and vocab_sizes go with one chain at a time: rows of a batch have laws of "
                "their own"
            )
        caller, wanted = Caller(verify, takes, library, rng), asked.num_trials or WIDE_CALLS
        try:
            return audit_rows(caller, batch, num_drafts, settings, rng, wanted, by_row)
        except Unread as unread:
            return _unread(unread, caller, num_drafts, settings)
    if len(by_row) > 1:
        raise InvalidInput("a promise for each row goes with batch=B, for B rows")
    caller = Caller(verify, takes, library, rng, bool(batch))
    own_laws = None if laws is None else given_laws(laws, num_drafts + 1)
    read_at = READ_TOKENS if own_laws is None else own_laws[0].vocab_size
    try:
        rule = chain_rule("verify", caller, num_drafts, rng, read_at)
    except Unread as unread:
        return _unread(unread, caller, num_drafts, settings)
    small = standard_laws(1) if own_laws is None else []
    wide = wide_laws(num_drafts + 1, vocab_sizes) if own_laws is None else own_laws
    tree, drawn = chain_of(num_drafts), WithReplacement
    on_chains = OnTrees(rule, tree, drawn, settings, promises, ChainRule, asked.num_trials)
    return on_chains.report(small, wide, rng, tuple(caller.notes))


def _unread(unread: Unread, caller: Caller, num_drafts: int, settings: Options) -> PortfolioReport:
    """Report that nothing can be judged, as answers have several forms."""
    began, laws, log = time.perf_counter(), standard_laws(1)[0], ViolationLog()
    log.add("not tokens", (), str(unread))
    tree, models = chain_of(num_drafts), (laws.target, laws.draft)
    rule = ChainRule(lambda root, rng: (), *models, tree, WithReplacement, settings)
    report = rule.report(Findings(options=settings, num_trials=READ_CALLS, wrong_tokens=log), 0.0)
    one = Tried.of(laws, f"{num_drafts} drafts", report)
    return PortfolioReport.of([one], began, tuple(caller.notes))
