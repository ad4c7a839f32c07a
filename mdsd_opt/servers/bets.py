r"""Bets on the next token that pay where engines are wrong.

A bet is a law b of the next token, chosen before the token is seen. Against a stated law p it gains

.. math:: g(x) = \min(b(x)/p(x), 20) - \mathbb E_p \min(b/p, 20),

whose mean under p is zero. Its swing is max g - min g.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.servers.laws import Law

Function = TypeVar("Function", bound=Callable[..., Any])

#: Largest ratio of a bet to the stated law that still pays.
LARGEST_RATIO = 20.0

#: Powers of the stated law that are bet on, as other temperatures would give them.
TILTS = (0.5, 0.8, 0.9, 1.1, 1.25, 2.0, 4.0)

#: Names of the bets that depend on the stated law alone.
OF_LAW = (
    "the likeliest token",
    "not the likeliest token",
    "the second token",
    "beyond the five likeliest",
    "beyond nine tenths",
    "the last of the list",
    *(f"p to the power {tilt:g}" for tilt in TILTS),
)

#: Names of the bets that depend on the draft's law q.
OF_DRAFT = (
    "the draft's law",
    "p times q",
    "what q has beyond p",
    "what p has beyond q",
    "the smaller of p and q",
    "q squared",
    "the draft's likeliest token",
    "the likeliest of p - q",
    "not the draft's likeliest token",
)

#: Names of the bets that depend on earlier tokens and laws.
OF_CONTEXT = (
    "the token that followed the same two",
    "the token before",
    "the law before",
    "the token that came here last",
    "tokens too rare or too frequent",
)


class BetTable(NamedTuple):
    """Bets against one law.

    Attributes
    ----------
    gains : ndarray, shape (bets, cells)
    swings : ndarray, shape (bets,)
    favoured : ndarray, shape (bets,)
        Probability of the cells that gain, under the stated law.
    """

    gains: Floats
    swings: Floats
    favoured: Floats


class DraftBets(NamedTuple):
    """Bets of a draft's law, and the places of the cells when they are ordered by q/p.

    `overlap` is sum min(p, q).
    """

    table: BetTable
    starts: Floats
    overlap: float


def table_of(p: Floats, bets: Sequence[Floats]) -> BetTable:
    """Table of the gains of some laws against the law p of the cells."""
    ratios = np.minimum(np.array(bets) / p, LARGEST_RATIO)
    gains = ratios - (ratios @ p)[:, None]
    return BetTable(gains, gains.max(axis=1) - gains.min(axis=1), (gains > 0) @ p)


def _or_none(weights: Floats, p: Floats) -> Floats:
    """Law in proportion to the weights, or p, which gains nothing, if they are all zero."""
    total = weights.sum()
    return weights / total if total > 1e-9 else p


def _without(p: Floats, cell: int) -> Floats:
    rest = p.copy()
    rest[cell] = 0.0
    return _or_none(rest, p)


def _only(p: Floats, cell: int) -> Floats:
    alone = np.zeros(p.size)
    alone[cell] = 1.0
    return alone


def _once(function: Function) -> Function:
    """Function that makes its result once for each law, or for one law and the last beside it."""

    @wraps(function)
    def result(law: Law, *others: Law) -> Any:
        if function not in law.results or law.results[function][0] != others:
            law.results[function] = others, function(law, *others)
        return law.results[function][1]

    return cast(Function, result)


@_once
def bets_of_law(law: Law) -> BetTable:
    """Table of the bets `OF_LAW`, made once for each law."""
    p = law.p
    beyond_five = p.copy()
    beyond_five[:5] = 0.0
    tail = np.where(np.cumsum(p) - p >= 0.9, p, 0.0)
    logs = np.log(p)
    tilted = np.exp(np.outer(TILTS, logs - logs[0]))
    tilted /= tilted.sum(axis=1, keepdims=True)
    return table_of(
        p,
        [
            _only(p, 0),
            _without(p, 0),
            _only(p, min(1, p.size - 1)),
            _or_none(beyond_five, p),
            _or_none(tail, p),
            _only(p, p.size - 1),
            *tilted,
        ],
    )


@_once
def bets_of_draft(law: Law, draft: Law) -> DraftBets | None:
    """Table of the bets `OF_DRAFT`, made once for each pair; None if the laws share no token."""
    p, q = law.p, law.onto(draft)
    if q is None:
        return None
    first = int(np.argmax(q))
    table = table_of(
        p,
        [
            q,
            _or_none(p * q, p),
            _or_none(np.maximum(q - p, 0.0), p),
            _or_none(np.maximum(p - q, 0.0), p),
            _or_none(np.minimum(p, q), p),
            _or_none(q * q, p),
            _only(p, first),
            _only(p, int(np.argmax(p - q))),
            _without(p, first),
        ],
    )
    order = np.argsort(q / p, kind="stable")
    starts = np.empty(p.size)
    starts[order] = np.cumsum(p[order]) - p[order]
    return DraftBets(table, starts, float(np.minimum(p, q).sum()))


@_once
def bet_of_previous(law: Law, previous: Law) -> BetTable | None:
    """Bet on the law of the token before, as an engine that takes the wrong row would follow it."""
    row = law.onto(previous)
    return None if row is None else table_of(law.p, [row])
