"""Audits: whether a verifier is lossless, its drafts follow their law, and how good it is."""

from mdsd_opt.auditing.audit_report import AuditReport, Standing
from mdsd_opt.auditing.definitions import load_definitions
from mdsd_opt.auditing.draft_audit import audit_drafts
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.subject import load_verifier
from mdsd_opt.auditing.trace_audit import audit_trace
from mdsd_opt.auditing.trace_io import Trace, load_trace
from mdsd_opt.auditing.verifier_audit import audit
from mdsd_opt.evidence.report import Check, Coverage, Interval, Level, TokenDeviation, Violation
from mdsd_opt.evidence.settings import AuditOptions

__all__ = [
    "AuditOptions",
    "AuditReport",
    "Check",
    "Coverage",
    "Interval",
    "Level",
    "Standing",
    "TokenDeviation",
    "Trace",
    "Violation",
    "audit",
    "audit_drafts",
    "audit_trace",
    "load_definitions",
    "load_trace",
    "load_verifier",
    "served",
]
