"""What computes the rates of which draft scheme and verifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.errors import UnknownName, UnsupportedScheme

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
        NDArray[np.int64],
        NDArray[np.float64],
        NDArray[np.float64],
    ],
    None,
]

# (drafts, verifier): function in optimal_rows. It imports numba, so it is imported when asked for.
_OPTIMAL = {
    ("with_replacement", "optimal"): "with_replacement_rates",
    ("without_replacement", "optimal"): "without_replacement_rates",
    ("greedy", "optimal"): "greedy_rates",
    ("greedy", "greedy"): "greedy_rates",  # they are optimal
    ("greedy", "spechub"): "greedy_rates",
    ("top_k", "optimal"): "top_k_rates",
    ("top_k", "greedy"): "top_k_rates",
    ("top_k", "naive_target"): "top_k_rates",
}

# (drafts, verifier): function in verifier_rows.
_FORMULAS = {
    ("with_replacement", "rrs"): "rrs_with_replacement",
    ("with_replacement", "kseq"): "kseq",
    ("with_replacement", "single_draft"): "single_draft",
    ("with_replacement", "naive_target"): "naive_target_with_replacement",
    ("with_replacement", "importance_sampling"): "importance_sampling",
    ("with_replacement", "gumbel"): "gumbel",
    ("without_replacement", "rrs"): "rrs_without_replacement",
    ("without_replacement", "naive_target"): "naive_target_without_replacement",
    ("greedy", "naive_target"): "naive_target_greedy",
}

#: Verifiers whose rates in batches are lower bounds.
BOUNDS = frozenset({"importance_sampling", "gumbel"})

_PAIRS = (*_OPTIMAL, *_FORMULAS)


def batch_verifiers(drafts: str | None = None) -> list[str]:
    """Verifiers that have batched rates, for these drafts or for any."""
    found = {name for scheme, name in _PAIRS if drafts in (None, scheme)}
    return [name for name in verifiers.names() if name in found]


def is_supported(drafts: str, verifier: str, num_drafts: int) -> bool:
    """Whether there are batched rates of this verifier, for these drafts and this K."""
    return (drafts, verifier) in _PAIRS and (verifier != "spechub" or num_drafts == 2)


def is_estimated(drafts: str, verifier: str, num_drafts: int) -> bool:
    """Whether the batched rates may come from a simulation of each row."""
    return (drafts, verifier) == ("without_replacement", "rrs") and num_drafts >= 3


def row_function(drafts: str, verifier: str, num_drafts: Sequence[int], seed: int) -> RowFunction:
    """Look up what computes the rates of a draft scheme and a verifier.

    Raises
    ------
    UnknownName
        No such scheme, or no such verifier; the message lists those that exist.
    UnsupportedScheme
        Both exist, but not together, or not for these numbers of drafts.
    """
    schemes = sorted({scheme for scheme, _ in _PAIRS})
    if drafts not in schemes:
        raise UnknownName.among("draft scheme", drafts, schemes)
    if verifier not in verifiers.names():
        raise UnknownName.among("verifier", verifier, batch_verifiers())
    if (drafts, verifier) not in _PAIRS:
        raise UnsupportedScheme(
            f"there are no batched rates of verifier {verifier!r} with drafts {drafts!r}. "
            f"Verifiers for these drafts: {', '.join(batch_verifiers(drafts))}."
        )
    for k in num_drafts:
        if not is_supported(drafts, verifier, k):
            raise UnsupportedScheme(
                f"verifier {verifier!r} is for {drafts} drafts with K = 2, not K = {k}: verifier "
                "'greedy' takes any K"
            )
    if (drafts, verifier) in _FORMULAS:
        from mdsd_opt.batch import verifier_rows

        formula = getattr(verifier_rows, _FORMULAS[drafts, verifier])
        return verifier_rows.FormulaRows(formula, seed)
    from mdsd_opt.batch import optimal_rows

    found: RowFunction = getattr(optimal_rows, _OPTIMAL[drafts, verifier])
    return found
