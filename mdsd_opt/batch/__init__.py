"""Acceptance rates of whole batches of logits, and decisions, on the CPU or a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mdsd_opt.batch.rates import acceptance_rates

if TYPE_CHECKING:
    from mdsd_opt.batch.verification import VerifiedBatch, verify_batch

__all__ = ["VerifiedBatch", "acceptance_rates", "verify_batch"]


def __getattr__(name: str) -> Any:
    if name in ("VerifiedBatch", "verify_batch"):
        from mdsd_opt.batch import verification

        return getattr(verification, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
