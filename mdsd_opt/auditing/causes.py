"""Causes of deviations: shapes of wrong laws and signatures of wrong calls, where they fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.checks import by_rank, by_ratio, merged_cells
from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.subject import DraftChain, TreeVerify, answered, outcome_of
from mdsd_opt.auditing.tape import Tail, Tape
from mdsd_opt.base.arrays import Vector
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.evidence import Promises
from mdsd_opt.trees import Node

#: Share of the distance that moving mass across one place of an order has to explain, and the
#: share that the other order may explain at most beside it.
_EXPLAINS, _ALSO_EXPLAINS = 0.95, 0.85

#: Distances below this multiple of their noise are too small to show a shape.
_LEAST_SIGNAL = 5.0

#: Expected outcomes beyond a rank that, if none of them came, make a cut.
_LEAST_MISSED = 30.0

#: Calls that are examined, and the least number of calls in which a signature has to hold.
_CALLS, _LEAST = 400, 20


def cause(
    output: Vector, target: Vector, drafts: DraftScheme, num_trials: int | None = None
) -> str:
    r"""Name the shape of a deviation of the output law from the target, or "" if it has none.

    A cut gives nothing to tokens beyond a rank of p. Mass that is moved across one place of an
    order (of p/q, or of p) shows in that order alone: :math:`\max_t |\sum_{i \le t} d_i|` is the
    whole distance then, where :math:`d` is the difference of the laws. `num_trials` are those
    behind the frequencies of the output; None where its law is known.
    """
    rank = by_rank(target)
    reached = np.flatnonzero(output[rank] > 0)
    support = int(reached[-1]) + 1 if reached.size else 0
    missed = float(target[rank[support:]].sum())
    if missed * (num_trials or np.inf) > _LEAST_MISSED:
        return f"only the {support:,} likeliest tokens of the target come out"
    by_order = {
        "between tokens drafted too often and too rarely": by_ratio(target, drafts),
        "between likely tokens and the tail": rank,
    }
    shares = {
        name: _explained(output, target, order, num_trials) for name, order in by_order.items()
    }
    (name, most), (_, other) = sorted(shares.items(), key=lambda item: -item[1])
    return f"mass moved {name}" if most >= _EXPLAINS and other <= _ALSO_EXPLAINS else ""


def _explained(
    output: Vector, target: Vector, order: NDArray[np.int64], num_trials: int | None
) -> float:
    """Share of the distance between cells in an order that one crossing explains; 0 for noise."""
    cells = merged_cells(target, order, num_trials or 1 << 40)
    inside = cells.of_token >= 0
    masses = np.bincount(
        cells.of_token[inside], weights=output[inside], minlength=cells.probabilities.size
    )
    difference = masses - cells.probabilities
    distance = 0.5 * float(np.abs(difference).sum())
    rest = np.maximum(1 - cells.probabilities, 0.0)  # their sum may round to more than one
    variance = cells.probabilities * rest / (num_trials or np.inf)
    if distance <= _LEAST_SIGNAL * float(np.sqrt(variance).sum()) / np.sqrt(2 * np.pi):
        return 0.0
    return float(np.abs(np.cumsum(difference)).max()) / distance


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


def behaviour(
    verify: TreeVerify,
    drawn: Callable[[np.random.Generator], Any],
    vocab_size: int,
    rng: np.random.Generator,
    deadline: float = math.inf,
    most: float = math.inf,
) -> str:
    """Causes of a deviation whose signatures hold in every call that could contradict them, or "".

    `drawn` draws a tree of drafts, with the laws at its nodes.
    """
    calls, without_q = [], []
    tape = Tape()
    with served(tape) as serving:
        for n in range(int(min(_CALLS, most))):
            if time.perf_counter() > deadline:
                break
            root = drawn(rng)
            answers, draws = [], 0
            for _ in range(2):
                tape.restart((), Tail(n))
                call = partial(answered, verify, root, serving.rng, vocab_size)
                with serving.inside:
                    answers.append(outcome_of(call))
                draws = len(tape.seen)
                _forget_draft(root)
            if isinstance(answers[0], tuple):
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
        likeliest = [call.tokens[-1] == np.argmax(call.last_node.target) for call in some]
        if len(some) >= _LEAST and all(likeliest):
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
