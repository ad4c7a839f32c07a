"""Calls with one draw at an end of its range, such as a uniform of 0: where `<=` and `<` differ.

A draft of target probability zero that is accepted when u <= p/q comes out once in 2**53 draws
(once in 2**24 with float32 uniforms): no sample shows it, a chosen uniform does. The ends are those
of the type drawn: the largest float32 uniform is 1 - 2**-24.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.auditing.randomness.serving import served
from mdsd_opt.auditing.randomness.sources import EdgeSource
from mdsd_opt.auditing.subject import Subject, Tokens, ViolationLog, describe, judged
from mdsd_opt.errors import UnservedDraw, UnsupportedScheme
from mdsd_opt.problem import TransportProblem

#: Places in the sequence of draws that are put to an edge.
_MAX_PLACES = 16

#: Impossible tokens that are put among the drafts.
_MAX_IMPOSSIBLE = 4

_SAMPLED_TUPLES = 8

#: Each edge is tried with several random values of the other uniforms, to reach later tests.
_REPEATS = 4


def edge_violations(
    subject: Subject, rng: np.random.Generator, max_probes: int
) -> tuple[ViolationLog, int]:
    """Drive the subject to the edges of its uniforms, one at a time.

    Returns
    -------
    log : ViolationLog
    num_probes : int
        Calls in which the draw that was to be put to an end was really made.
    """
    log = ViolationLog()
    tuples = telling_tuples(subject.problem, rng)
    source = EdgeSource(np.random.default_rng(int(rng.integers(2**32))))
    unlikely = np.flatnonzero(subject.problem.target <= 0)[:_MAX_IMPOSSIBLE].tolist()
    probes = 0
    seen: set[tuple[str, str]] = set()
    draws = [1] * len(tuples)  # the most draws seen in a call with this tuple
    with served(source) as serving:
        for _ in range(_REPEATS):
            for upper in (False, True):
                for n, row in enumerate(tuples):
                    # A race draws one number for each token: its place there is the token itself.
                    for place in sorted({*range(_MAX_PLACES), *unlikely}):
                        if place >= draws[n]:
                            break
                        if probes >= max_probes:
                            return log, probes
                        source.restart(place, upper)
                        _probe(subject, row, source, place, log, seen)
                        serving.check()
                        probes += source.rarity is not None
                        draws[n] = max(draws[n], source.drawn)
    return log, probes


def _probe(
    subject: Subject,
    row: Tokens,
    source: EdgeSource,
    place: int,
    log: ViolationLog,
    seen: set[tuple[str, str]],
) -> None:
    """One call; every kind of violation is listed once for each draft tuple."""
    try:
        with np.errstate(all="ignore"):
            answer = subject.call(row, source.bit_generator.generator)
    except UnservedDraw:
        raise
    except Exception as error:  # the callable is not ours: anything may come
        kind, what = "exception", f"raised {describe(error)}"
    else:
        kind, token, message = judged(answer, subject.problem.vocab_size)
        if not kind and subject.problem.target[token] <= 0:
            kind = "impossible token"
            message = f"token {token}, whose target probability is zero"
        what = f"gave {message}"
    if kind and source.rarity is not None and (kind, str(row)) not in seen:
        seen.add((kind, str(row)))
        where = f"draw {place} equal to {_end(source)}, once in 2**{source.rarity} draws,"
        log.add(kind, row, f"drafts {row.tolist()} with {where} {what}")


def _end(source: EdgeSource) -> str:
    """The end that a draw was put to, as a power of two where it is just below 1."""
    below = 1.0 - source.value
    return f"1 - 2**{round(np.log2(below))}" if 0 < below < 0.01 else f"{source.value:.4g}"


def telling_tuples(problem: TransportProblem, rng: np.random.Generator) -> Tokens:
    """Draft tuples with impossible tokens in every place, and some ordinary ones, (n, K)."""
    ordinary = problem.drafts.sample(rng, 512)
    holds = (ordinary >= 0) & (problem.target[ordinary] <= 0)
    sampled = ordinary[holds.any(axis=1)][: _MAX_IMPOSSIBLE * problem.num_drafts]
    made = []
    for n, place in enumerate(np.repeat(np.arange(problem.num_drafts), _MAX_IMPOSSIBLE).tolist()):
        row = _with_impossible_token(problem, ordinary[n % len(ordinary)], place, n)
        if row is not None:
            made.append(row)
    parts = [*([np.array(made)] if made else []), sampled, ordinary[:_SAMPLED_TUPLES]]
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
