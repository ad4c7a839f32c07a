"""Table of the functions that compute rates, by draft scheme and verifier, as verifiers declare.

Kernels take rows of logits; formulas are asked row by row, after softmax. NumPy releases the GIL
for all that takes time there, so that rows run in parallel as those of kernels do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.array_types import Floats, Integers, Vector
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.installed import loaded
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.drafts.by_name import checked_scheme
from mdsd_opt.errors import InvalidInput, MdsdError, UnknownName, UnsupportedScheme
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers import BatchRates, Verifier
from mdsd_opt.verifiers.rates import RowFormula

#: Computes the rates of rows of logits, without the GIL: called as
#: ``function(target, draft, target_scale, draft_scale, num_drafts, rates, totals)``.
#:
#: target, draft : (n, V), contiguous and read-only, both float32 or both float64.
#: target_scale, draft_scale : log2(e) divided by the temperature.
#: num_drafts : (k,) int64, every K that is wanted; they share the passes over the row.
#: rates : (n, k) float64, written.
#: totals : (n, 2) float64, written: sum of the weights of either side, not finite where the row is
#:     no distribution (NaN, +inf, all -inf); the row's rates mean nothing then.
RowFunction = Callable[
    [
        NDArray[Any],
        NDArray[Any],
        float,
        float,
        Integers,
        Floats,
        Floats,
    ],
    None,
]


def entry(scheme: str, verifier: str | Verifier) -> BatchRates | None:
    """Declared kernel or formula for the rates; None if there is none for such drafts.

    A verifier that is lossless for them and declares nothing is asked position by position.
    """
    rule = verifiers.get(verifier)
    declared = rule.batch_rates.get(scheme)
    if declared is not None or not rule.rates_any_batch:
        return declared
    if not rule.takes_kind(SINGLE_MODEL_SCHEMES[scheme]):
        return None
    return BatchRates(position_by_position(rule, scheme))


def batch_verifiers(scheme: str | None = None) -> list[str]:
    """Verifiers that have batched rates, for these drafts or for any scheme."""
    schemes = SINGLE_MODEL_SCHEMES if scheme is None else (scheme,)
    return [name for name in verifiers.names() if any(entry(x, name) for x in schemes)]


def is_supported(scheme: str, verifier: str | Verifier, num_drafts: int) -> bool:
    """Whether there are batched rates of this verifier, for these drafts and this K."""
    takes = verifiers.get(verifier).only_num_drafts in (None, num_drafts)
    return takes and entry(scheme, verifier) is not None


def is_bound(verifier: str | Verifier) -> bool:
    """Whether the batched rates are lower bounds."""
    return any(rates.is_bound for rates in verifiers.get(verifier).batch_rates.values())


def is_estimated(scheme: str, verifier: str | Verifier, num_drafts: int) -> bool:
    """Whether the batched rates may come from a simulation of each row."""
    rates = entry(scheme, verifier)
    first = None if rates is None else rates.estimated_from
    return first is not None and num_drafts >= first


def row_function(
    scheme: str, verifier: str | Verifier, num_drafts: Sequence[int], seed: int
) -> RowFunction:
    """Function that computes the rates of a draft scheme and a verifier on the CPU.

    Raises `UnknownName`, which lists those that exist, and `UnsupportedScheme` where both exist,
    but not together, or not for these numbers of drafts.
    """
    checked_scheme(scheme)
    try:
        rule = verifiers.get(verifier)
    except UnknownName:
        raise UnknownName.among("verifier", verifier, batch_verifiers()) from None
    rates = entry(scheme, rule)
    if rates is None:
        raise UnsupportedScheme(
            f"there are no batched rates of verifier {rule.name!r} with drafts {scheme!r}. "
            f"Verifiers for these drafts: {', '.join(batch_verifiers(scheme))}."
        )
    for k in num_drafts:
        rule.check_num_drafts(k)
    if rates.formula is not None:
        return FormulaRows(rates.formula, seed, scheme not in rule.batch_rates)
    return functools.partial(_by_kernel, rates.kernel)


def _by_kernel(name: str, *arguments: Any) -> None:
    """Call a kernel by its name; numba comes with it, which a device does without."""
    from mdsd_opt.prefix_search import rates

    (loaded(name) if ":" in name else getattr(rates, name))(*arguments)


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
        num_drafts: Integers,
        rates: Floats,
        totals: Floats,
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
    """Formula of a verifier that declares none: its own rate, one problem after another."""
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
