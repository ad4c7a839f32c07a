"""Acceptance rates and verification of whole batches of logits on a CUDA device."""

from __future__ import annotations

from mdsd_opt.gpu.runtime import is_available, why_unavailable

__all__ = ["is_available", "why_unavailable"]
