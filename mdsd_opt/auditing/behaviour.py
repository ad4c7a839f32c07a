"""Causes of a wrong rule's deviation: one is named only where its signature was tested."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.auditing.draft_chain import DraftChain
from mdsd_opt.auditing.driving import Tape
from mdsd_opt.auditing.driving.tape import Tail
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.subject import Failure, TreeVerify, answered, outcome_of
from mdsd_opt.base.array_types import Vector
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.evidence import Promises
from mdsd_opt.trees import Node

#: Calls that are examined, and the least number of calls in which a signature has to hold.
_CALLS, _LEAST = 400, 20


class _Call(NamedTuple):
    """A tree of drafts, the tokens of the answer, and how many numbers were drawn for them."""

    root: Any
    tokens: tuple[int, ...]
    draws: int

    @property
    def last_node(self) -> Any:
        """The node whose law the last token should follow."""
        node = self.root
        for token in self.tokens[:-1]:
            node = node.children[token]
        return node

    @property
    def is_likeliest(self) -> bool:
        """Whether the last token is the target's likeliest."""
        return self.tokens[-1] == int(np.argmax(self.last_node.target))


def behaviour(
    verify: TreeVerify,
    drawn: Callable[[np.random.Generator], Any],
    vocab_size: int,
    rng: np.random.Generator,
    deadline: float = math.inf,
) -> str:
    """Causes of a deviation whose signatures hold in every call that could contradict them.

    Parameters
    ----------
    verify : callable
        As in `mdsd_opt.audit_tree`; known to be wrong.
    drawn : callable
        Draws a tree of drafts, with the laws at its nodes.
    vocab_size : int
    rng : numpy.random.Generator
    deadline : float
        Time by `time.perf_counter` after which no more calls are made.

    Returns
    -------
    str
        Empty where no signature fits.
    """
    calls, without_q = [], []
    tape = Tape()
    with served(tape) as serving:
        for n in range(_CALLS):
            if time.perf_counter() > deadline:
                break
            root = drawn(rng)
            answers = []
            for _ in range(2):
                tape.restart((), Tail(n))
                with serving.call():
                    tokens = outcome_of(
                        lambda root=root: answered(  # type: ignore[misc]
                            verify, root, serving.rng, vocab_size
                        )
                    )
                answers.append(tokens)
                draws = len(tape.seen)
                _forget_draft(root)
            if isinstance(answers[0], Failure) or not isinstance(answers[0], tuple):
                continue
            calls.append(_Call(root, answers[0], draws))
            without_q.append(answers[0] == answers[1])
    signs = []
    if len(calls) >= _LEAST:
        if all(len(call.tokens) == 1 for call in calls):
            signs.append("no draft is ever accepted")
        if all(without_q):
            signs.append("the draft's law is not used")
    whole = [call for call in calls if not call.last_node.children]
    refused = [call for call in calls if call.last_node.children]
    for where, some in (("all drafts were accepted", whole), ("a draft was refused", refused)):
        if len(some) >= _LEAST and all(call.is_likeliest for call in some):
            signs.append(f"where {where}, the target's likeliest token comes, always")
    deciding = [call for call in calls if len(call.tokens) > 1]
    if len(deciding) >= _LEAST and all(call.draws == 1 for call in deciding):
        signs.append("one random number decides about all drafts and the last token")
    return "; ".join(signs)


def broken_side(is_right: Callable[[tuple[bool, bool]], bool], promises: Promises) -> str:
    """Side whose promise is not kept: what deviates is right if that is done beforehand.

    `is_right` tells that of promises kept for the target, for the draft, or for both.
    """
    if promises == (None, None):
        return ""
    done = "filtered" if isinstance(promises[0], Sampling) else "changed"
    for applied, side in (
        ((True, False), "the target is not"),
        ((False, True), "the draft is not"),
        ((True, True), "neither side is"),
    ):
        is_asked = all(promises[n] is not None for n in range(2) if applied[n])
        if is_asked and is_right(applied):
            return f"{side} {done} as was promised: with that done beforehand, it is right"
    return ""


def _forget_draft(root: Node | DraftChain) -> None:
    """Replace each draft law by another one, and keep the drafts."""
    if isinstance(root, DraftChain):
        root.q = _another(root.q)
        return
    for node in root.walk():
        if node.drafts is not None:
            q = _another(node.drafts.propensity())
            node.drafts = WithReplacement(q, node.drafts.num_drafts)


def _another(laws: Vector) -> Vector:
    """Laws (..., V) in reverse, mixed with the uniform one."""
    return (laws[..., ::-1] + 1.0 / laws.shape[-1]) / 2
