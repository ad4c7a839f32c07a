"""Claims about exact optima: a search over laws of integer weights, shrunk where one fails.

A claim is a function of some laws to a Fraction that is positive where it fails. Nothing is rounded
on the way, so what is found is a counterexample; that the optima it is about are optima is shown
twice, by the best of all cuts and by a flow.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from math import lcm
from numbers import Rational
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.checked import Rng, check_function, checked_integer, drawn_seed
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.base.keywords import formerly
from mdsd_opt.cddlib_checks.draft_laws import require_written, set_law
from mdsd_opt.cddlib_checks.result import ClaimVerdict
from mdsd_opt.cddlib_checks.subsets import (
    SetLaw,
    best_cut,
    containment_table,
    exact_plan,
    members,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, SolverError
from mdsd_opt.problem import TransportProblem, checked_problem

Law = tuple[Fraction, ...]
Weights = tuple[tuple[int, ...], ...]

#: Lots of weight that move together: each a law, the tokens from and to which it goes, and units.
_Move = tuple[tuple[int, int, int, int], ...]

#: Text that a law follows, for claims about tables of laws.
Text = tuple[int, ...]

#: Most tokens, all of whose subsets are gone through: 4,096 of them.
_MOST_TOKENS = 12

#: Largest weight that is drawn.
_MOST_WEIGHT = 9

#: Most tokens, and most laws, of random trials.
_MOST_SIZE = 1000

#: Most random trials.
_MOST_TRIALS = 10**9

#: Number of random laws from which an ascent begins, how often each doubles its denominators, and
#: how many laws all of them try for each random one.
_STARTS, _DOUBLINGS, _ASCENTS = 4, 20, 4

#: Random moves of two lots of weight at once, for each of one: optima lie on ridges, along which no
#: single lot leads.
_JOINT = 8

#: Largest sum of weights with which an ascent to a premise begins, and most laws that it tries.
_MOST_TOTAL, _MOST_MEETING = 2**40, 5000

#: Most laws that are tried to make one that fails simpler.
_MOST_SHRINKING = 2000


@dataclass(frozen=True, slots=True)
class LawSearch(ClaimVerdict):
    """Finding of a search among laws, and on how many of them the claim says something.

    It says nothing where its premise is not met, and where it divides by zero.

    Attributes
    ----------
    counterexample : LawCounterexample or None
    nearest : LawCounterexample or None
        Laws on which the claim came nearest to failing, if it never did: its excess is at most 0.
    instances : int
        Number of laws on which the claim says something, those of the ascents among them.
    """

    counterexample: LawCounterexample | None
    nearest: LawCounterexample | None
    instances: int

    columns: ClassVar = ("holds", "verdict", "instances", "counterexample", "nearest")

    @property
    def holds(self) -> bool | None:
        """False where a counterexample was found; None otherwise, as no search is a proof."""
        return False if self.counterexample else None


@dataclass(frozen=True, slots=True)
class LawCounterexample(Result):
    """Laws for which a claim fails.

    Attributes
    ----------
    laws : tuple of tuple of Fraction
        As the claim takes them, with weights that cannot be lowered one by one.
    excess : Fraction
        Value of the claim, above zero.
    trial : int
        Number of the random laws that it comes from, from 1, by an ascent or directly.
    """

    laws: tuple[Law, ...]
    excess: Fraction
    trial: int

    columns: ClassVar = ("p", "q?", Column("fails_by", of="excess"), "trial")

    @property
    def p(self) -> Law:
        """The first law."""
        return self.laws[0]

    @property
    def q(self) -> Law:
        """The second law; none of a claim about one."""
        return self.laws[1] if len(self.laws) > 1 else ()

    def __str__(self) -> str:
        written = ", ".join(f"({', '.join(map(str, law))})" for law in self.laws)
        return f"fails by {self.excess} = {float(self.excess):.6f} at {written}"


def optimum(problem: TransportProblem) -> Fraction:
    r"""Optimum alpha* in exact arithmetic, certified, for any scheme of few tokens.

    The least of the cuts :math:`1 + P(H) - Q(H)` over all H, and the value of an integer flow: the
    one is an upper bound and the other a lower one, so that their being equal is the proof.

    Parameters
    ----------
    problem : TransportProblem
        Problem of fractions. Floats that are the decimals they print, as 0.25, are taken so.

    Raises
    ------
    InvalidInput
        A float that rounds another number, as 0.1.
    ProblemTooLarge
        More than 12 tokens, or too many draft sets to list.
    """
    return _settled(problem)[0]


def optimum_proof(problem: TransportProblem) -> dict[str, Any]:
    """Proof of `optimum` as a document for JSON, which ``examples/check_optimum.py`` checks.

    Parameters
    ----------
    problem : TransportProblem
        As for `optimum`, which says what is refused.

    Returns
    -------
    dict
        The problem and the law of its draft sets, "acceptance_rate", a "plan" of (draft set, token,
        mass), which proves it from below, and a "subset" H, which does from above:
        :math:`1 + P(H) - Q(H)`. Numbers are strings of fractions.
    """
    rate, subset, plan, law = _settled(problem)
    return {
        "target": [str(x) for x in problem.exact_target],
        "drafts": problem.drafts.to_entry(lambda q: [str(x) for x in q.exact()]),
        "draft_sets": [[list(s), str(mass)] for s, mass in law.items()],
        "acceptance_rate": str(rate),
        "plan": [[list(s), token, str(mass)] for s, token, mass in plan],
        "subset": list(members(subset)),
    }


def _settled(
    problem: TransportProblem,
) -> tuple[Fraction, int, list[tuple[tuple[int, ...], int, Fraction]], SetLaw]:
    """Optimum, mask of the best cut, best plan and law of the draft sets."""
    if checked_problem(problem).vocab_size > _MOST_TOKENS:
        raise ProblemTooLarge(
            f"{problem.vocab_size} tokens have too many subsets: up to {_MOST_TOKENS} are gone "
            "through; certify(..., exact=True) takes more"
        )
    require_written(problem.target_law, problem.drafts)
    law = set_law(problem.drafts)
    above, subset = best_cut(problem.exact_target, containment_table(law, problem.vocab_size))
    plan = exact_plan(problem.exact_target, law)
    below = sum((mass for *_, mass in plan), Fraction(0))
    if above != below:
        raise SolverError(f"cut {above} and flow {below} differ: please report this problem")
    return above, subset, plan, law


@formerly(seed="rng")
def search_laws(
    claim: Callable[..., Fraction],
    vocab_size: int,
    num_laws: int = 2,
    *,
    trials: int = 1000,
    rng: Rng = 0,
) -> LawCounterexample | None:
    """Laws for which a claim fails, as simple as can be; None if none were found.

    Random laws come first. From those on which the claim comes nearest to failing ascents begin,
    which move one unit of weight from a token to another where the claim then comes nearer, and
    double all weights where no move does. They try up to four laws for each random one, and reach
    claims that fail at thin tokens or near one point alone.

    Parameters
    ----------
    claim : callable
        Takes `num_laws` laws, each a tuple of V Fractions, and returns a Fraction: how much the
        claim fails by, at most zero where it holds.
    vocab_size : int
    num_laws : int
        Two for a target and a draft.
    trials : int
        Laws with random integer weights up to 9, zeros among them.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one.

    Returns
    -------
    LawCounterexample or None

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> from mdsd_opt import cddlib_checks
    >>> def top_two_are_best(p, q):  # they are not
    ...     pairs = (mo.TopKDrafts(q, 2), mo.WithoutReplacement(q, 2))
    ...     ours, theirs = (
    ...         cddlib_checks.optimum(mo.TransportProblem(p, drafts)) for drafts in pairs
    ...     )
    ...     return theirs - ours
    >>> print(cddlib_checks.search_laws(top_two_are_best, vocab_size=3))
    fails by 2/3 = 0.666667 at (0, 0, 1), (1/3, 1/3, 1/3)
    """
    return laws_tried(claim, vocab_size, num_laws, trials, rng).counterexample


def search_tables(
    claim: Callable[[dict[Text, Law], dict[Text, Law]], Fraction],
    vocab_size: int,
    depth: int,
    *,
    trials: int = 1000,
    rng: Rng = 0,
) -> tuple[dict[Text, Law], dict[Text, Law]] | None:
    """Tables of laws for which a claim about trees of drafts fails; None if none were found.

    Parameters
    ----------
    claim : callable
        Takes p and q, each a law of V Fractions by the text that it follows, texts of up to
        ``depth - 1`` tokens, and returns a Fraction: how much the claim fails by.
    vocab_size, depth : int
        V and the number of levels.
    trials, rng : optional
        As for `search_laws`.

    Returns
    -------
    tuple of dict or None
        Tables p and q, as simple as can be.
    """
    check_function(claim=claim)
    for name, count in (("vocab_size", vocab_size), ("depth", depth)):
        checked_integer(count, name, most=_MOST_SIZE)
    if vocab_size ** (depth - 1) > _MOST_SIZE:
        raise ProblemTooLarge(
            f"vocab_size is {vocab_size} and depth {depth}: give fewer, with up to {_MOST_SIZE:,} "
            "texts at the last level"
        )
    texts = [text for n in range(depth) for text in product(range(vocab_size), repeat=n)]

    def tables(laws: Sequence[Law]) -> tuple[dict[Text, Law], dict[Text, Law]]:
        p, q = laws[: len(texts)], laws[len(texts) :]
        return dict(zip(texts, p, strict=True)), dict(zip(texts, q, strict=True))

    found = search_laws(
        lambda *laws: claim(*tables(laws)), vocab_size, 2 * len(texts), trials=trials, rng=rng
    )
    return None if found is None else tables(found.laws)


def laws_tried(
    claim: Callable[..., Fraction],
    vocab_size: int,
    num_laws: int,
    trials: int,
    rng: Rng,
    ascents: int = _ASCENTS,
) -> LawSearch:
    """Search of `search_laws`, with the number of laws that the claim says something of.

    Its ascents try up to so many laws for each random one.
    """
    check_function(claim=claim)
    checked_integer(trials, "trials", most=_MOST_TRIALS)
    for name, count in (("vocab_size", vocab_size), ("num_laws", num_laws)):
        checked_integer(count, name, most=_MOST_SIZE)
    seed = drawn_seed(rng)
    instances, nearest, left = 0, list[tuple[Fraction, int, Weights]](), ascents * trials

    def chosen() -> Iterator[tuple[int, Weights]]:
        for trial in range(1, trials + 1):
            chance = np.random.default_rng([seed, trial])
            most = chance.integers(1, _MOST_WEIGHT, endpoint=True)
            drawn = chance.integers(0, most, endpoint=True, size=(num_laws, vocab_size))
            if drawn.any(axis=1).all():
                yield trial, tuple(map(tuple, drawn.tolist()))
        premise = getattr(claim, "given", None)
        if left and premise is not None and not instances:
            yield from _meeting(premise, (num_laws, vocab_size), seed)

    for trial, weights in chosen():
        excess = _excess(claim, weights)
        if excess is None:
            continue
        instances += 1
        if excess > 0:
            return LawSearch(_simple(claim, weights, trial), None, instances)
        nearest = sorted([*nearest, (excess, trial, weights)], reverse=True)[:_STARTS]
    for n, (excess, trial, weights) in enumerate(nearest):
        share = left - left // 2 if n + 1 < len(nearest) else left  # most to the nearest
        chance = np.random.default_rng([seed, trial, 1])
        excess, weights, tried, said = _climbed(claim, weights, excess, share, chance)
        left, instances = left - tried, instances + said
        if excess > 0:
            return LawSearch(_simple(claim, weights, trial), None, instances)
        nearest[n] = excess, trial, weights
    best = max(nearest, default=None)
    near = best and LawCounterexample(_laws(best[2]), best[0], best[1])
    return LawSearch(None, near, instances)


def _meeting(
    premise: Callable[..., Fraction], shape: tuple[int, int], seed: int
) -> Iterator[tuple[int, Weights]]:
    """Weights that meet a premise which no random ones met, by ascents that look for it alone.

    Their sum is a multiple of the denominators that are written in it, so that it can hold exactly.
    """

    def met(*laws: Law) -> Fraction:
        return Fraction(1) if (missing := premise(*laws)) <= 0 else -Fraction(missing)

    written = re.findall(r"/\s*(\d+)|\.(\d+)", getattr(premise, "text", ""))
    total = lcm(*(int(a) if a else 10 ** len(b) for a, b in written)) or 1
    for trial in range(1, _STARTS + 1):
        chance = np.random.default_rng([seed, trial, 2])
        even = np.full(shape[1], 1 / shape[1])
        drawn = chance.multinomial(min(total, _MOST_TOTAL), even, size=shape[0])
        weights: Weights = tuple(map(tuple, drawn.tolist()))
        found, weights, _, _ = _climbed(met, weights, Fraction(-2), _MOST_MEETING, chance)
        if found > 0:
            yield trial, weights


def _climbed(
    claim: Callable[..., Fraction],
    weights: Weights,
    excess: Fraction,
    most: int,
    chance: np.random.Generator,
) -> tuple[Fraction, Weights, int, int]:
    """Weights on which a claim comes nearer to failing, or fails.

    Returns its value there, how many were tried, and on how many of them the claim says something.
    """
    tried, said, helped = 0, 0, list[_Move]()
    size = len(weights[0])
    if size == 1:  # there is one law
        return excess, weights, tried, said
    single = [(i, a, b) for i in range(len(weights)) for a, b in permutations(range(size), 2)]
    for _ in range(_DOUBLINGS):
        weights = tuple(tuple(2 * n for n in row) for row in weights)
        lots = chance.integers(len(single), size=(_JOINT * len(single), 2)).tolist()
        units = chance.integers(1, 8, size=(len(lots), 2), endpoint=True).tolist()
        joint = [((*single[x], m), (*single[y], n))
                 for (x, y), (m, n) in zip(lots, units, strict=True)]  # fmt: skip
        moves = deque([*helped, *(((*x, 1),) for x in single), *joint])
        since, times = 0, 1  # moves that were tried since the last that helped; how far to go
        while since < len(moves):
            moved = _moved(weights, moves[0], times)
            nearer = None
            if moved is not None:
                if tried == most:
                    return excess, weights, tried, said
                nearer, tried = _excess(claim, moved), tried + 1
                said += nearer is not None
            if moved is not None and nearer is not None and nearer > excess:
                excess, weights, since = nearer, moved, 0
                if excess > 0:
                    return excess, weights, tried, said
                times *= 2  # the same way again, and further
            elif times > 1:
                times = 1
                helped = [moves[0], *(x for x in helped if x != moves[0])][:_JOINT]
            else:
                since += 1
                moves.rotate(-1)
    return excess, weights, tried, said


def _moved(weights: Weights, move: _Move, times: int) -> Weights | None:
    """Weights after a move, some times over; None where a token has not as much."""
    rows = [list(row) for row in weights]
    for i, a, b, units in move:
        rows[i][a], rows[i][b] = rows[i][a] - times * units, rows[i][b] + times * units
    return tuple(map(tuple, rows)) if all(min(row) >= 0 for row in rows) else None


def _simple(claim: Callable[..., Fraction], weights: Weights, trial: int) -> LawCounterexample:
    """Simple laws for which a claim fails as it does for these weights."""
    simple = _shrunk(claim, weights)
    excess = _excess(claim, simple)
    assert excess is not None
    return LawCounterexample(_laws(simple), excess, trial)


def _laws(weights: Weights) -> tuple[Law, ...]:
    return tuple(tuple(Fraction(n, sum(row)) for n in row) for row in weights)


def _excess(claim: Callable[..., Fraction], weights: Weights) -> Fraction | None:
    """Amount by which the claim fails; None where it says nothing."""
    laws = _laws(weights)
    premise = getattr(claim, "given", None)
    try:
        if premise is not None and premise(*laws) > 0:
            return None
        excess: Any = claim(*laws)
    except ZeroDivisionError:
        return None
    if not isinstance(excess, Rational):
        raise InvalidInput(
            f"the claim returned {excess!r:.60}, a {type(excess).__name__}: return a Fraction, so "
            "that nothing is rounded on the way"
        )
    return Fraction(excess)


def _shrunk(claim: Callable[..., Fraction], weights: Weights) -> Weights:
    """Lower weights for which the claim fails as well, until none can be lowered further."""
    left, ways = _MOST_SHRINKING, _simpler(weights)
    while left and (simpler := next(ways, None)) is not None:
        left -= 1
        if (_excess(claim, simpler) or 0) > 0:
            weights, ways = simpler, _simpler(simpler)
    return weights


def _simpler(weights: Weights) -> Iterator[Weights]:
    """Same weights with a law's halved, or one removed, halved or lowered, the simplest first."""
    for i, row in enumerate(weights):
        half = tuple(n // 2 for n in row)
        if any(half):
            yield (*weights[:i], half, *weights[i + 1 :])
    for lowered in (lambda n: 0, lambda n: n // 2, lambda n: n - 1):
        for i, row in enumerate(weights):
            for j, n in enumerate(row):
                smaller = (*row[:j], lowered(n), *row[j + 1 :])
                if n and any(smaller):
                    yield (*weights[:i], smaller, *weights[i + 1 :])
