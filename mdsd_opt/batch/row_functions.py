"""The table of what computes the rates of which draft scheme and verifier.

It is made of what the verifiers declare in `batch_rates`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.plug_ins import loaded
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.drafts.by_name import checked_scheme
from mdsd_opt.errors import UnknownName, UnsupportedScheme
from mdsd_opt.verifiers import BatchRates, Verifier

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


def entry(scheme: str, verifier: str | Verifier) -> BatchRates | None:
    """What computes the rates; None if there is nothing for such drafts.

    A verifier that is lossless for them and declares nothing is asked position by position.
    """
    rule = verifiers.get(verifier)
    declared = rule.batch_rates.get(scheme)
    if declared is not None or not rule.rates_any_batch:
        return declared
    if not rule.takes_kind(SINGLE_MODEL_SCHEMES[scheme]):
        return None
    from mdsd_opt.batch.verifier_rows import position_by_position

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
    """Look up what computes the rates of a draft scheme and a verifier on the CPU.

    Raises
    ------
    UnknownName
        No such scheme, or no such verifier; the message lists those that exist.
    UnsupportedScheme
        Both exist, but not together, or not for these numbers of drafts.
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
        from mdsd_opt.batch import verifier_rows

        return verifier_rows.FormulaRows(rates.formula, seed, scheme not in rule.batch_rates)
    return functools.partial(_by_kernel, rates.kernel)


def _by_kernel(name: str, *arguments: Any) -> None:
    """By a function of its name; numba comes with it, which a device does without."""
    from mdsd_opt.prefix_search import rates

    (loaded(name) if ":" in name else getattr(rates, name))(*arguments)
