"""Audits: whether a verifier is lossless, its drafts follow their law, and how good it is."""

import lazy_loader

__all__ = [
    "AuditOptions", "AuditReport", "Check", "Coverage", "Interval", "Level", "Standing",
    "TokenDeviation", "Trace", "Violation", "audit", "audit_drafts", "audit_trace",
    "load_definitions", "load_trace", "load_verifier", "served",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
