"""Which kernel computes the rates of which draft scheme and verifier."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import UnknownName, UnsupportedScheme

#: Computes the rates of rows of logits, without the GIL: called as
#: ``function(target, draft, is_half, target_scale, draft_scale, num_drafts, rates, totals)``.
#:
#: target, draft : (n, V), contiguous and read-only, both float64, float32 or uint16; the latter
#:     holds float16 (`is_half`) or bfloat16 bits.
#: target_scale, draft_scale : log2(e) divided by the temperature.
#: num_drafts : (k,) int64, every K that is wanted; they share the passes over the row.
#: rates : (n, k) float64, written.
#: totals : (n, 2) float64, written: sum of the weights of either side, not finite where the row is
#:     no distribution (NaN, +inf, all -inf); the row's rates mean nothing then.
RowFunction = Callable[
    [
        NDArray[Any],
        NDArray[Any],
        bool,
        float,
        float,
        NDArray[np.int64],
        NDArray[np.float64],
        NDArray[np.float64],
    ],
    None,
]

# (drafts, verifier): file, function. Kernels import numba, so they are imported when asked for.
_TABLE = {
    ("with_replacement", "optimal"): ("with_replacement_kernels", "with_replacement_rates"),
    ("without_replacement", "optimal"): (
        "without_replacement_kernels",
        "without_replacement_rates",
    ),
    ("greedy", "optimal"): ("deterministic_kernels", "greedy_rates"),
    ("top_k", "optimal"): ("deterministic_kernels", "top_k_rates"),
}


def row_function(drafts: str, verifier: str) -> RowFunction:
    """Look up the kernel of a draft scheme and a verifier.

    Raises
    ------
    UnknownName
        No such scheme, or no such verifier; the message lists those that exist.
    UnsupportedScheme
        Both exist, but not together.
    """
    schemes = sorted({scheme for scheme, _ in _TABLE})
    if drafts not in schemes:
        raise UnknownName.among("draft scheme", drafts, schemes)
    verifiers = sorted({name for _, name in _TABLE})
    if verifier not in verifiers:
        raise UnknownName.among("verifier", verifier, verifiers)
    if (drafts, verifier) not in _TABLE:
        fitting = ", ".join(sorted(name for scheme, name in _TABLE if scheme == drafts))
        raise UnsupportedScheme(
            f"there are no batched rates of verifier {verifier!r} with drafts {drafts!r}. "
            f"Verifiers for these drafts: {fitting}."
        )
    file, function = _TABLE[drafts, verifier]
    found: RowFunction = getattr(importlib.import_module(f"mdsd_opt.batch.{file}"), function)
    return found
