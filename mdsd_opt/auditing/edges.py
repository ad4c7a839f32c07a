"""Calls with one draw at an end of its range, such as a uniform of 0: there `<=` and `<` differ.

A draft of target probability zero that is accepted when u <= p/q comes out once in 2**53 draws
(once in 2**24 with float32 uniforms): no sample shows it, a chosen uniform does. The ends are those
of the type drawn: the largest float32 uniform is 1 - 2**-24.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mdsd_opt.auditing.randomness import Serving, served
from mdsd_opt.auditing.randomness.sources import EdgeSource
from mdsd_opt.auditing.subject import (
    Failure,
    Subject,
    TreeVerify,
    ViolationLog,
    answered,
    described,
    outcome_of,
)
from mdsd_opt.base.arrays import Tokens
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.problem import TransportProblem

if TYPE_CHECKING:
    from mdsd_opt.auditing.subject import DraftChain
    from mdsd_opt.trees import Node

#: Number of places in the sequence of draws that are put to an edge.
_MAX_PLACES = 16

#: Most impossible tokens that are put among the drafts.
_MAX_IMPOSSIBLE = 4

_SAMPLED_TUPLES = 8

#: Number of random values of the other uniforms for each edge, to reach later tests.
_REPEATS = 4

#: Number of trees searched for impossible drafts, and how many with and without them are kept.
_GROWN, _TELLING, _ORDINARY = 256, 16, 8


class _EdgeCase(NamedTuple):
    """Drafts, as a violation lists them and in words, and a judge of a call with them.

    The judge calls the verifier with a generator: kind of violation, "" for none, and what it did.
    """

    drafts: Tokens
    shown: str
    judge: Callable[[np.random.Generator], tuple[str, str]]


def edge_violations(
    subject: Subject, rng: np.random.Generator, max_probes: int
) -> tuple[ViolationLog, int]:
    """Test the subject at the edges of its draws, one at a time.

    Beside the violations, the number of calls is returned in which the draw that was to be put to
    an end was really made.
    """
    target = subject.problem.target

    def judge(row: Tokens, generator: np.random.Generator) -> tuple[str, str]:
        token = subject.token(row, generator)
        if isinstance(token, Failure):
            return token.kind, token.message
        impossible = "impossible token" if target[token] <= 0 else ""
        return impossible, f"gave token {token}, whose target probability is zero"

    cases = [
        _EdgeCase(row, f"drafts {row.tolist()}", partial(judge, row))
        for row in _telling_tuples(subject.problem, rng)
    ]
    # A race draws one number for each token: its place there is the token itself.
    unlikely = np.flatnonzero(target <= 0)[:_MAX_IMPOSSIBLE].tolist()
    return _probed(cases, unlikely, rng, max_probes)


def tree_edges(
    verify: TreeVerify,
    drawn: Callable[[], Node | DraftChain],
    vocab_size: int,
    rng: np.random.Generator,
    max_probes: int,
) -> tuple[ViolationLog, int]:
    """Test a rule for trees at the edges of its draws, on trees that `drawn` gives."""
    if max_probes <= 0:
        return ViolationLog(), 0
    grown = [drawn() for _ in range(_GROWN)]
    holds = (any(x.target[i] <= 0 for x in root.walk() for i in x.children) for root in grown)
    telling = [*compress(grown, holds)][:_TELLING]

    def judge(root: Any, generator: np.random.Generator) -> tuple[str, str]:
        answer = answered(verify, root, generator, vocab_size)
        if isinstance(answer, Failure):
            return answer.kind, answer.message
        node = root
        for token in answer:
            if node.target[token] <= 0:
                return "impossible text", f"gave {answer}, which has probability zero"
            node = node.children.get(token, node)
        return "", ""

    cases = [
        _EdgeCase(np.empty(0, np.int64), described(root), partial(judge, root))
        for root in [*telling, *grown[:_ORDINARY]]
    ]
    unlikely = {int(token) for root in telling for token in np.flatnonzero(root.target <= 0)}
    return _probed(cases, unlikely, rng, max_probes)


def _probed(
    cases: Sequence[_EdgeCase], places: Iterable[int], rng: np.random.Generator, max_probes: int
) -> tuple[ViolationLog, int]:
    """Call each case with one draw at an end: each of the first draws, and those at `places`."""
    log = ViolationLog()
    source = EdgeSource(np.random.default_rng(int(rng.integers(2**32))))
    every_place = sorted({*range(_MAX_PLACES), *places})
    probes = 0
    seen: set[tuple[str, str]] = set()
    draws = [1] * len(cases)  # the most draws seen in a call of this case
    with served(source) as serving:
        for _ in range(_REPEATS):
            for upper in (False, True):
                for n, case in enumerate(cases):
                    for place in every_place:
                        if place >= draws[n]:
                            break
                        if probes >= max_probes:
                            return log, probes
                        state = source.rng.bit_generator.state
                        probe = partial(_probe, case, source, serving, place, upper)
                        kind, outcome = probe()
                        if source.trouble:  # what came of it could not come of a generator
                            continue
                        if kind and source.rarity is not None and (kind, case.shown) not in seen:
                            seen.add((kind, case.shown))
                            rarity = _rarity(source, state, probe, kind)
                            where = f"draw {place} ({source.kind}) equal to {_end(source)}"
                            event = f"{where}, once in 2**{rarity} draws, {outcome}"
                            log.add(kind, case.drafts, f"{case.shown} with {event}", 2.0**-rarity)
                        probes += source.rarity is not None
                        serving.check()
                        draws[n] = max(draws[n], source.drawn)
    return log, probes


def _probe(
    case: _EdgeCase, source: EdgeSource, serving: Serving, place: int, upper: bool
) -> tuple[str, str]:
    """Kind of violation of one call ("" for none), and a description of what it did."""
    source.restart(place, upper)
    with serving.inside:
        outcome: Any = outcome_of(lambda: case.judge(serving.rng))
    return (outcome.kind, outcome.message) if isinstance(outcome, Failure) else outcome


def _rarity(source: EdgeSource, state: Any, probe: Callable[[], tuple[str, str]], kind: str) -> int:
    """Exponent n if one draw in 2**n shows the violation: not all bits may count.

    Each probe begins with the same state of the source's generator.
    """
    assert source.rarity is not None
    rarity, value, drawn = source.rarity, source.value, source.drawn
    while source.kind == "integer" and rarity > 1:
        source.spared += 1
        source.rng.bit_generator.state = state
        if probe()[0] != kind:
            break
        rarity = source.rarity
    source.spared, source.value, source.drawn = 0, value, drawn
    return rarity


def _end(source: EdgeSource) -> str:
    """End of the range as text, as a power of two if it is just below 1."""
    below = 1.0 - source.value
    return f"1 - 2**{round(np.log2(below))}" if 0 < below < 0.01 else f"{source.value:.4g}"


def _telling_tuples(problem: TransportProblem, rng: np.random.Generator) -> Tokens:
    """Draft tuples (n, K) with impossible tokens in every place, and some ordinary ones."""
    ordinary = problem.drafts.sample(rng, 512)
    holds = (ordinary >= 0) & (problem.target[ordinary] <= 0)
    sampled = ordinary[holds.any(axis=1)][: _MAX_IMPOSSIBLE * problem.num_drafts]
    impossible = []
    for n, place in enumerate(np.repeat(np.arange(problem.num_drafts), _MAX_IMPOSSIBLE).tolist()):
        row = _with_impossible_token(problem, ordinary[n % len(ordinary)], place, n)
        if row is not None:
            impossible.append(row)
    parts = [*([np.array(impossible)] if impossible else []), sampled, ordinary[:_SAMPLED_TUPLES]]
    rows = np.concatenate(parts)
    first = {row.tobytes(): row for row in rows[::-1]}  # np.unique fails on a thousand columns
    return np.array(list(first.values())[::-1])


def _with_impossible_token(
    problem: TransportProblem, row: Tokens, place: int, n: int
) -> Tokens | None:
    """The tuple with the n-th impossible token that could stand at this place, if there is one."""
    if row[place] < 0:
        return None
    try:
        law = problem.drafts.next_law(row[:place])
    except UnsupportedScheme:  # a law too long to list
        return None
    choices = np.flatnonzero((law > 0) & (problem.target <= 0))
    if not choices.size:
        return None
    result = row.copy()
    result[place] = choices[n % choices.size]
    return result if problem.drafts.is_possible(result) else None
