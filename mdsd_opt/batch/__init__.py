"""Acceptance rates of whole batches of logits, on the CPU."""

from __future__ import annotations

from mdsd_opt.batch.rates import acceptance_rates

__all__ = ["acceptance_rates"]
