"""Recursive rejection sampling: one draft after another, against what is left of the target."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import ClassVar

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.drafts import DraftScheme, IndependentDrafts, WithoutReplacement, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier, target_of
from mdsd_opt.verifiers.rates import BatchRates, Estimate
from mdsd_opt.verifiers.rejection import accepted, draft_of, nothing_accepted, residual_law
from mdsd_opt.verifiers.rrs_rates import (
    independent_rate,
    independent_rates,
    without_replacement_rate,
    without_replacement_rates,
)
from mdsd_opt.verifiers.verdicts import Decision, Law

DEFAULT_SAMPLES = 2000

#: In batches: sequences of an estimate; visits up to which a row is computed exactly instead.
_BATCH_SAMPLES = 256
_BATCH_MAX_VISITS = 50_000


class RecursiveRejection(Verifier):
    r"""Accept X_j with probability min(1, p_j/q_j), else go on with :math:`p_{j+1} \propto (p_j -
    q_j)_+`.

    With replacement q_j = q (the multi-step sampling of [SpecInfer]); without replacement q_j is q
    without the tokens drawn, renormalised ([RSD], [MCSD]); for different draft models it is the
    model of draft j. A rejected token has no residual mass left, so it is not hit later. Lossless
    for all three, not optimal. Cost O(K V) a decision. The rate costs O(K V), without replacement
    O(V log V) at K = 2, and beyond that an exact recursion in about V^(K-1) on small vocabularies,
    an estimate with a standard error on large ones.
    """

    name: ClassVar[str] = "rrs"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (
        WithReplacement,
        WithoutReplacement,
        IndependentDrafts,
    )

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return {
            "with_replacement": BatchRates(_rates_with_replacement, device="rrs"),
            "without_replacement": BatchRates(_rates_without_replacement, estimated_from=3),
        }

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        law_of = _draft_laws(problem, exact)
        left = target_of(problem, exact)
        accept = nothing_accepted(drafts, left)
        undecided = accept[0] + 1
        for k, token in enumerate(drafts.tolist()):
            if token < 0 or undecided <= 0:
                break
            q = law_of(k, drafts[:k])
            share = accepted(left[token], q[token])
            accept[k] = undecided * share
            undecided = undecided * (1 - share)
            left = residual_law(left, q)
        return Decision(accept, left)

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """Pr(some draft is accepted); an `Estimate` where the exact recursion is out of reach.

        Parameters
        ----------
        problem : TransportProblem
        num_samples, seed : int
            Of the Rao-Blackwellised estimate, if one is needed; it takes some 10 ms.
        """
        self.check(problem)
        laws = problem.drafts.independent_laws()
        if laws is not None:
            return independent_rate(problem.target, laws)
        q, num_drafts = draft_of(problem, exact=False), problem.num_drafts
        rate, error = without_replacement_rate(problem.target, q, num_drafts, num_samples, seed)
        return rate if error is None else Estimate(rate, error)


def _draft_laws(problem: TransportProblem, exact: bool) -> Callable[[int, Integers], Law]:
    """(k, tokens drawn before) -> law of draft k."""
    drafts = problem.drafts
    q = draft_of(problem, exact)
    if drafts.has_many_models:
        return lambda k, drawn: q[k]
    if drafts.independent_models is not None:
        return lambda k, drawn: q

    def without_drawn(k: int, drawn: Integers) -> Law:
        rest = q.copy()
        rest[drawn] = q[0] * 0
        return rest / rest.sum()

    return without_drawn


def _rates_with_replacement(p: Vector, q: Vector, counts: list[int], seed: int) -> Sequence[float]:
    rates = independent_rates(p, [q] * max(counts))
    return [rates[k - 1] for k in counts]


def _rates_without_replacement(
    p: Vector, q: Vector, counts: list[int], seed: int
) -> Sequence[float]:
    """The random numbers depend on the seed and on the row itself, not on its place in a batch."""
    seeds = [seed, zlib.crc32(p.tobytes()), zlib.crc32(q.tobytes())]
    return without_replacement_rates(p, q, counts, _BATCH_SAMPLES, seeds, _BATCH_MAX_VISITS)[0]


VERIFIER = RecursiveRejection()
