"""Acceptance rates of whole batches of logits, and decisions, on the CPU or a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mdsd_opt.batch.rates import acceptance_rates

if TYPE_CHECKING:
    from mdsd_opt.batch.relaxed import relaxed_rates
    from mdsd_opt.batch.verification import verify_batch

__all__ = ["acceptance_rates", "relaxed_rates", "verify_batch"]


def __getattr__(name: str) -> Any:
    if name == "relaxed_rates":
        from mdsd_opt.batch.relaxed import relaxed_rates

        return relaxed_rates
    if name == "verify_batch":
        from mdsd_opt.batch.verification import verify_batch

        return verify_batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
