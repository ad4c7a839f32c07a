"""Inputs and results of a verification: uniforms, verdicts, and the law of the decision.

Given the drafts, each algorithm accepts draft k with some probability and otherwise draws from one
residual law. That `Decision` is all there is to know: the conditional law, the output law, the
acceptance rate and a random verdict all follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Integers, Numbers, Vector, to_numpy
from mdsd_opt.base.checked import checked_generator
from mdsd_opt.base.frames import Table
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import Relaxation, checked_relax, relaxed_by

#: Largest distance of a law from a distribution that rounding in float64 may cause.
_ROUNDING = 1e-9

#: The same where a rule that is not ours computes in float32.
_ROUNDING_OF_OTHERS = 1e-5


class Uniforms(NamedTuple):
    """Random numbers of one verification, each uniform on [0, 1) and used for one thing only.

    Attributes
    ----------
    mixing : float
        Chooses among the deterministic block structures of the hull rule.
    draft : float
        Chooses among the drafts of one block (drafts without replacement only).
    acceptance : float
        Accepts or rejects.
    residual : float
        Draws from the residual law.
    """

    mixing: float
    draft: float
    acceptance: float
    residual: float

    @classmethod
    def of(cls, rng: np.random.Generator | Uniforms) -> Uniforms:
        """Next four uniforms of a generator, or the given ones as they are."""
        if not isinstance(rng, Uniforms):
            return cls(*checked_generator(rng).random(4).tolist())
        if not all(0 <= x < 1 for x in rng):
            raise InvalidInput(f"the uniforms are {(*rng,)}: give numbers of [0, 1)")
        return rng


class Verdict(NamedTuple):
    """Outcome of one verification.

    Attributes
    ----------
    token : int
        The output token.
    accepted : bool
        Whether it is one of the drafts (residual hits included).
    draft_index : int or None
        Place of the (first) draft equal to the token.
    """

    token: int
    accepted: bool
    draft_index: int | None


class RelaxedVerdict(NamedTuple):
    """Outcome of one verification under a relaxed target.

    Attributes
    ----------
    token, accepted, draft_index
        Fields of a `Verdict`.
    relaxation : Relaxation
        The law that the token follows, and how far it is from the target.
    """

    token: int
    accepted: bool
    draft_index: int | None
    relaxation: Relaxation


@dataclass(frozen=True, slots=True, eq=False)
class BatchVerdict:
    """Outcomes of many verifications.

    Attributes
    ----------
    tokens : array of int64, shape (...)
        The output token of every row.
    draft_index : array of int64, shape (...)
        Place of the first draft that is the output token, -1 if none is.
    acceptance_rate : array of float64, shape (...), or None
        Probability that the output of this row is accepted, whatever the drafts; on request.
    gap : array of float64, shape (...), or None
        No rule with the same output law has an acceptance rate that is higher by more than this; on
        request.
    kl, tv : array of float64, shape (...), or None
        Distances of the law of each output from the target, KL in nats; None where none is relaxed.
    """

    tokens: Any
    draft_index: Any
    acceptance_rate: Any = None
    gap: Any = None
    kl: Any = None
    tv: Any = None

    def tables(self) -> list[Table]:
        """Table with a line for each verification."""
        found = {x.name: getattr(self, x.name) for x in fields(self)}
        kept = {name: to_numpy(x, name).ravel() for name, x in found.items() if x is not None}
        rows = zip(*(x.tolist() for x in kept.values()), strict=True)
        return [Table.of("outcomes of verifications", [*kept], rows, ())]

    @property
    def accepted(self) -> Any:
        """Whether the output token is among the drafts, array of bool."""
        return self.draft_index >= 0

    @property
    def total_kl(self) -> float:
        """Kullback-Leibler divergence of all outputs together; 0 if none is relaxed."""
        return 0.0 if self.kl is None else float(self.kl.sum())

    @property
    def total_tv(self) -> float:
        """Upper bound of the total variation of all outputs together; 0 if none is relaxed."""
        return 0.0 if self.tv is None else min(float(self.tv.sum()), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Law of the output given the drafts.

    Attributes
    ----------
    accept : ndarray, shape (K,)
        Probability that draft k is accepted (padding: 0).
    residual : ndarray, shape (V,), or None
        Law of the output if no draft is accepted; None if that never happens.
    """

    accept: Numbers
    residual: Numbers | None

    def is_law(self, num_drafts: int, vocab_size: int) -> bool:
        """Whether these are arrays of probabilities, up to the rounding of float32."""
        if not _are_masses(self.accept, num_drafts):
            return False
        left = 1.0 - self.accept.sum()
        if self.residual is None:
            return bool(abs(left) <= _ROUNDING_OF_OTHERS)
        fits = left >= -_ROUNDING_OF_OTHERS and _are_masses(self.residual, vocab_size)
        return bool(fits and abs(1.0 - self.residual.sum()) <= _ROUNDING_OF_OTHERS)

    def law(self, drafts: Integers, vocab_size: int) -> Numbers:
        """Law of the output token, shape (V,); without the rounding of float64, see `proper`."""
        law = np.zeros(vocab_size, dtype=self.accept.dtype)
        if law.dtype == object:
            law += Fraction(0)
        valid = drafts >= 0
        np.add.at(law, drafts[valid], self.accept[valid])
        if self.residual is not None:
            law = law + (1 - self.accept.sum()) * self.residual
        return proper(law)


def _are_masses(values: Any, size: int) -> bool:
    is_array = isinstance(values, np.ndarray) and values.dtype.kind in "biufO"
    return is_array and values.shape == (size,) and bool((values >= -_ROUNDING_OF_OTHERS).all())


def proper(law: Numbers) -> Numbers:
    """Law in float64, made non-negative with sum one after rounding.

    Fractions stay as they are, and so does what is off by more than rounding: that is a fault of
    its rule, which must stay in sight.
    """
    if law.dtype == object or law.min() < -_ROUNDING or abs(law.sum() - 1.0) > _ROUNDING:
        return law
    clipped = np.maximum(law, 0.0)
    return clipped / clipped.sum()


def verdict(token: int, tokens: Integers) -> Verdict:
    """Verdict from the output token and the drafts."""
    ids = tokens.tolist()
    return Verdict(token, token in ids, ids.index(token) if token in ids else None)


def first_places(drafts: Integers, tokens: Integers) -> Integers:
    """First place of each row's token among its drafts, shape (N, K), or -1."""
    hits = drafts == tokens[:, None]
    return np.where(hits.any(axis=1), hits.argmax(axis=1), -1)


class RelaxedProblems:
    """Problems of rows, relaxed by a budget if there is one, and the distances.

    `problem_of` makes the problem of a row, given its place.
    """

    def __init__(
        self,
        problem_of: Callable[[int], TransportProblem],
        num_rows: int,
        relax: Mapping[str, float] | None,
    ) -> None:
        self._problem_of = problem_of
        self._budget = None if relax is None else checked_relax(relax)  # before any row
        self._outcomes = np.zeros((3, num_rows))

    def __call__(self, n: int) -> TransportProblem:
        problem = self._problem_of(n)
        if self._budget is None:
            return problem
        relaxation = relaxed_by(problem, self._budget)
        self._outcomes[:, n] = relaxation.kl, relaxation.tv, relaxation.acceptance_rate
        return relaxation.problem

    @property
    def distances(self) -> dict[str, Vector]:
        """Values "kl" and "tv" of the rows, shape (num_rows,) each; empty without a budget."""
        return {} if self._budget is None else {"kl": self._outcomes[0], "tv": self._outcomes[1]}

    @property
    def rates(self) -> Vector:
        """Largest acceptance rates of the relaxed rows, shape (num_rows,)."""
        return self._outcomes[2]


class Estimate(float):
    """A float that remembers its `standard_error`; arithmetic gives plain floats."""

    standard_error: float

    def __new__(cls, value: float, standard_error: float) -> Estimate:
        estimate = super().__new__(cls, value)
        estimate.standard_error = standard_error
        return estimate

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]  # for pickle
        return float(self), self.standard_error

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.standard_error:.1g}"


class CertifiedRate(float):
    """Acceptance rate of a rule that is not quite optimal; arithmetic gives plain floats.

    The optimum is at most `gap` higher.
    """

    gap: float

    def __new__(cls, value: float, gap: float) -> CertifiedRate:
        rate = super().__new__(cls, value)
        rate.gap = gap
        return rate

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]  # for pickle
        return float(self), self.gap

    def __repr__(self) -> str:
        return f"{float(self):.6g} (optimum at most {self.gap:.1g} higher)"
