"""Rates of verifiers row by row: softmax, then the formula of the verifier.

NumPy releases the GIL for all that takes time here, so rows run in parallel as those of compiled
kernels do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput, MdsdError
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers import Verifier
from mdsd_opt.verifiers.rates import RowFormula, Vector


@dataclass(frozen=True, slots=True)
class FormulaRows:
    """Rates of rows of logits by a formula; called as a `row_functions.RowFunction`."""

    formula: RowFormula
    seed: int
    is_slow: bool = False  # a position takes so long that it is a task of its own

    def __call__(
        self,
        target: NDArray[Any],
        draft: NDArray[Any],
        target_scale: float,
        draft_scale: float,
        num_drafts: NDArray[np.int64],
        rates: NDArray[np.float64],
        totals: NDArray[np.float64],
    ) -> None:
        counts = num_drafts.tolist()
        for row in range(len(target)):
            p, totals[row, 0] = _probabilities(target[row], target_scale)
            q, totals[row, 1] = _probabilities(draft[row], draft_scale)
            if np.isfinite(totals[row]).all():
                found = np.array(self.formula(p, q, counts, self.seed))
                rates[row] = np.clip(found, 0.0, 1.0)


def _probabilities(stored: NDArray[Any], scale: float) -> tuple[Vector, float]:
    """Softmax of one stored row and the sum of its weights, NaN where there is no distribution."""
    logits = stored.astype(np.float64)
    largest = logits.max()
    if not math.isfinite(largest):  # a NaN, +inf, or nothing but -inf
        return logits, math.nan
    with np.errstate(over="ignore"):  # far below the largest: exp2 gives zero
        weights = np.exp2((logits - largest) * scale)
    total = float(weights.sum())
    weights /= total
    weights[weights < SMALLEST_PROBABILITY] = 0.0
    return weights, total


def position_by_position(rule: Verifier, scheme: str) -> RowFormula:
    """The formula of a verifier that declares none: its own rate, one problem after another."""
    make = SINGLE_MODEL_SCHEMES[scheme]

    def rates(p: Vector, q: Vector, counts: list[int], seed: int) -> list[float]:
        found = []
        for k in counts:
            problem = TransportProblem(p, make(q, k))
            rule.check(problem)
            try:
                rate = float(rule.acceptance_rate(problem))
            except MdsdError:
                raise
            except Exception as error:  # the verifier is not ours: anything may come
                raise InvalidInput(
                    f"verifier {rule.name!r} cannot tell its acceptance rate at K = {k}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            if not 0.0 <= rate <= 1.0 + 1e-9:
                raise InvalidInput(
                    f"verifier {rule.name!r} gives the acceptance rate {rate!r} at K = {k}: it "
                    "must be a number from 0 to 1"
                )
            found.append(rate)
        return found

    return rates
