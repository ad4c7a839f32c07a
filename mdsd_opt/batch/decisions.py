"""Decisions for a batch of logits by the CPU, position by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import Opened
from mdsd_opt.batch.job import Job
from mdsd_opt.batch.rows import LogitRows
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.gpu.philox import Randomness, uniforms_of
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Uniforms, draw, first_places
from mdsd_opt.verifiers.relaxed_problems import RelaxedProblems

_MISSING = -1

Column = NDArray[np.int64] | NDArray[np.float64]


class Decisions:
    """The rows of a batch and their drafts, and by what budget targets are relaxed, if any."""

    def __init__(
        self,
        job: Job,
        target: LogitRows,
        draft: LogitRows,
        drafts: Opened,
        relax: Mapping[str, float] | None = None,
    ) -> None:
        self._job = job
        self._target = target
        self._draft = draft
        tokens = drafts.numpy()
        self._drafts = tokens.astype(np.int64).reshape(-1, tokens.shape[-1])
        # K of every row. Where a row may run out of drafts, -1 is one of its outcomes; independent
        # draws never do, and rows are verified with those that are there.
        self._may_miss = SINGLE_MODEL_SCHEMES[job.scheme].draws_independently()
        self._counts = np.full(len(self._drafts), tokens.shape[-1])
        if self._may_miss:
            self._counts = (self._drafts != _MISSING).sum(axis=1)
        self._with_drafts = np.flatnonzero(self._counts > 0)
        self._relaxed = relax is not None
        self._problems = RelaxedProblems(self._problem, len(self._with_drafts), relax)

    def columns(
        self, uniforms: NDArray[np.float64] | None, randomness: Randomness, with_rates: bool
    ) -> dict[str, Column]:
        """What a `BatchVerdict` holds of every row."""
        if uniforms is None:
            uniforms = uniforms_of(randomness, np.arange(len(self._drafts)))
        tokens = self._tokens(uniforms)
        columns: dict[str, Column] = {
            "tokens": tokens, "draft_index": first_places(self._drafts, tokens),
        }  # fmt: skip
        if with_rates:
            rates = self._relaxed_rates() if self._relaxed else self._rates()
            columns |= zip(("acceptance_rate", "gap"), rates, strict=True)
        columns |= {name: self._spread(values) for name, values in self._problems.distances.items()}
        return columns

    def _there(self, n: int) -> NDArray[np.int64]:
        """Drafts of a row that has some."""
        drafts = self._drafts[self._with_drafts[n]]
        return drafts[drafts != _MISSING] if self._may_miss else drafts

    def _problem(self, n: int) -> TransportProblem:
        """Of a row that has drafts."""
        row = int(self._with_drafts[n])
        q = self._draft.probabilities(row)
        scheme = SINGLE_MODEL_SCHEMES[self._job.scheme](q, self._there(n).size)
        return TransportProblem(self._target.probabilities(row), scheme)

    def _spread(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Over all rows; those without drafts follow the target, and accept nothing."""
        spread = np.zeros(len(self._drafts))
        spread[self._with_drafts] = values
        return spread

    def _tokens(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        with_drafts = self._with_drafts
        tokens = np.empty(len(self._drafts), np.int64)
        tokens[with_drafts] = verifiers.get(self._job.verifier).verify_rows(
            self._problems,
            [self._there(n) for n in range(with_drafts.size)],
            uniforms[with_drafts],
            self._job.threads,
            lambda n: self._target.name_of(int(with_drafts[n])),
        )
        for row in np.flatnonzero(self._counts == 0).tolist():
            self._draft.probabilities(row)  # a bad row is an error without drafts, too
            p, own = self._target.probabilities(row), Uniforms(*uniforms[row].tolist())
            tokens[row] = draw(p, own.residual)
        return tokens

    def _relaxed_rates(self) -> list[Column]:
        """The same under relaxed targets, from the problems that have been decided."""
        optimum, rule = self._problems.rates, verifiers.get(self._job.verifier)
        if rule is verifiers.get("optimal"):
            return [self._spread(optimum), np.zeros(len(self._drafts))]
        own = np.array([
            float(rule.acceptance_rate(self._problems(n))) for n in range(optimum.size)
        ])  # fmt: skip
        return [self._spread(own), self._spread(np.maximum(optimum - own, 0.0))]

    def _rates(self) -> list[Column]:
        """Acceptance rates of the rows and their gaps; both are zero without drafts."""
        own = self._rates_of(self._job.verifier)
        optimal = verifiers.get("optimal")
        if verifiers.get(self._job.verifier) is optimal:
            return [own, np.zeros_like(own)]
        return [own, np.maximum(self._rates_of(optimal) - own, 0.0)]

    def _rates_of(self, verifier: str | verifiers.Verifier) -> NDArray[np.float64]:
        rates = np.zeros(len(self._drafts))
        there = np.flatnonzero(self._counts > 0)
        if there.size == 0:
            return rates
        numbers, places = np.unique(self._counts[there], return_inverse=True)
        job = replace(self._job, verifier=verifier, num_drafts=tuple(numbers.tolist()))
        found = job.rates(self._target, self._draft).reshape(len(rates), -1)
        rates[there] = found[there, places]
        return rates
