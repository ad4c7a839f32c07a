"""Claims about exact optima: a search over laws with small integer weights, shrunk where one fails.

A claim is a function of some laws to a Fraction that is positive where it fails. Nothing is rounded
on the way, so what is found is a counterexample; that the optima it is about are optima is shown
twice, by the best of all cuts and by a flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from mdsd_opt.base.checked import check_counts
from mdsd_opt.base.keywords import renamed
from mdsd_opt.base.seeds import Rng, drawn_seed
from mdsd_opt.cddlib_checks.draft_laws import require_written
from mdsd_opt.cddlib_checks.result import verdict_of
from mdsd_opt.cddlib_checks.subsets import best_cut, containment_table, exact_acceptance
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, SolverError
from mdsd_opt.problem import TransportProblem, checked_problem

Law = tuple[Fraction, ...]
Weights = tuple[tuple[int, ...], ...]

#: Most tokens, all of whose subsets are gone through: 4,096 of them.
_MOST_TOKENS = 12

#: Largest weight that is drawn.
_MOST_WEIGHT = 9


@dataclass(frozen=True, slots=True)
class LawSearch:
    """Finding of a search among laws, and on how many of them the claim says something.

    It says nothing where its premise is not met, and where it divides by zero.
    """

    counterexample: LawCounterexample | None
    instances: int
    trials: int

    @property
    def verdict(self) -> str:
        """Refuted, held on `instances`, which is no proof, or open: nothing was tried."""
        return verdict_of(False if self.counterexample else None, self.instances)


@dataclass(frozen=True, slots=True)
class LawCounterexample:
    """Laws for which a claim fails.

    Attributes
    ----------
    laws : tuple of tuple of Fraction
        As the claim takes them, with weights that cannot be lowered one by one.
    excess : Fraction
        Value of the claim, above zero.
    trial : int
        Number of the trial that found it, from 1, before it was shrunk.
    """

    laws: tuple[Law, ...]
    excess: Fraction
    trial: int

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
    if checked_problem(problem).vocab_size > _MOST_TOKENS:
        raise ProblemTooLarge(
            f"{problem.vocab_size} tokens have too many subsets: up to {_MOST_TOKENS} are gone "
            "through; certify(..., exact=True) takes more"
        )
    require_written(problem.target_law, problem.drafts)
    law = problem.drafts.exact_support_law()
    above, _ = best_cut(problem.exact_target, containment_table(law, problem.vocab_size))
    below = exact_acceptance(problem.exact_target, law)
    if above != below:
        raise SolverError(f"cut {above} and flow {below} differ: please report this problem")
    return above


@renamed("seed", "rng")
def search_laws(
    claim: Callable[..., Fraction],
    vocab_size: int,
    num_laws: int = 2,
    *,
    trials: int = 1000,
    rng: Rng = 0,
) -> LawCounterexample | None:
    """Laws for which a claim fails, as simple as can be; None if no trial found any.

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


def laws_tried(
    claim: Callable[..., Fraction], vocab_size: int, num_laws: int, trials: int, rng: Rng
) -> LawSearch:
    """Search of `search_laws`, with the number of laws that the claim says something of."""
    check_counts(vocab_size=vocab_size, num_laws=num_laws, trials=trials)
    seed = drawn_seed(rng)
    instances = 0
    for trial in range(1, trials + 1):
        chance = np.random.default_rng([seed, trial])
        drawn = chance.integers(0, chance.integers(1, _MOST_WEIGHT, endpoint=True), endpoint=True,
                             size=(num_laws, vocab_size))  # fmt: skip
        weights = tuple(tuple(row) for row in drawn.tolist())
        excess = _excess(claim, weights) if all(map(any, weights)) else None
        instances += excess is not None
        if excess is not None and excess > 0:
            simple = _shrunk(claim, weights)
            found = LawCounterexample(_laws(simple), _excess(claim, simple) or excess, trial)
            return LawSearch(found, instances, trial)
    return LawSearch(None, instances, trials)


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
    for simpler in _simpler(weights):
        if (_excess(claim, simpler) or 0) > 0:
            return _shrunk(claim, simpler)
    return weights


def _simpler(weights: Weights) -> Iterator[Weights]:
    """Same weights with one removed, halved or lowered by one, the simplest first."""
    for lowered in (lambda n: 0, lambda n: n // 2, lambda n: n - 1):
        for i, row in enumerate(weights):
            for j, n in enumerate(row):
                smaller = (*row[:j], lowered(n), *row[j + 1 :])
                if n and any(smaller):
                    yield (*weights[:i], smaller, *weights[i + 1 :])
