"""Rates and decisions for whole batches of logits, on the CPU or a CUDA device.

Public are the names below, and `top_logprobs`: certified intervals where only the likeliest tokens
are known (`listed_tokens`: of what they are made). A `batch` knows whose arrays it holds, and what
is asked of every row: a `RowWork`, which cuts rows into tasks for threads. Verifiers declare what
computes their rates for which drafts; `device` does it on CUDA. `rates`, `relaxed` and
`verification` are the doors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mdsd_opt.batch.rates import acceptance_rates

if TYPE_CHECKING:
    from mdsd_opt.batch.relaxed import relaxed_rates
    from mdsd_opt.batch.verification import verify_batch

__all__ = ["acceptance_rates", "relaxed_rates", "verify_batch"]


_IMPORTED_LATER = {"relaxed_rates": "relaxed", "verify_batch": "verification"}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_IMPORTED_LATER[name]}"), name)
