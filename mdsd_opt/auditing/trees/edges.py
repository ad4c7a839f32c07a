"""Steps with one draw at an end of its range, on trees whose drafts the target rules out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mdsd_opt.auditing.driving.outcomes import Failure
from mdsd_opt.auditing.edges import EdgeCase, probed
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.trees.calls import TreeVerify, answered, described
from mdsd_opt.decoding.draft_tree import Node

#: Trees among which those are sought that hold impossible drafts, and how many are kept.
_GROWN, _TELLING, _ORDINARY = 256, 16, 8


def tree_edges(
    verify: TreeVerify,
    drawn: Callable[[], Node],
    vocab_size: int,
    rng: np.random.Generator,
    max_probes: int,
) -> tuple[ViolationLog, int]:
    """Drive a rule to the edges of its draws, as `auditing.edges` does for single tokens.

    Parameters
    ----------
    verify : callable
    drawn : callable
        Draws a tree, with the target's laws at its nodes.
    vocab_size : int
    rng : numpy.random.Generator
    max_probes : int
    """
    if max_probes <= 0:
        return ViolationLog(), 0
    grown = [drawn() for _ in range(_GROWN)]
    telling = [root for root in grown if _holds_impossible(root)][:_TELLING]
    cases = [
        EdgeCase(np.empty(0, np.int64), described(root), partial(_judge, verify, vocab_size, root))
        for root in [*telling, *grown[:_ORDINARY]]
    ]
    unlikely = {int(token) for root in telling for token in np.flatnonzero(root.target <= 0)}
    return probed(cases, unlikely, rng, max_probes)


def _judge(
    verify: TreeVerify, vocab_size: int, root: Node, generator: np.random.Generator
) -> tuple[str, str]:
    given = answered(verify, root, generator, vocab_size)
    if isinstance(given, Failure):
        return given.kind, given.message
    node = root
    for token in given:
        if node.target[token] <= 0:
            return "impossible text", f"gave {given}, which has probability zero"
        node = node.children.get(token, node)
    return "", ""


def _holds_impossible(root: Node) -> bool:
    return any(node.target[token] <= 0 for node in root.walk() for token in node.children)
