"""Acceptance rates and verification of whole batches of logits on a CUDA device."""

import lazy_loader

__all__ = [
    "is_available", "why_unavailable",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
