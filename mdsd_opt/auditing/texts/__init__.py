"""Are the texts right that a function writes which drafts, verifies and keeps state by itself?"""

from mdsd_opt.auditing.texts.audit import audit_text
from mdsd_opt.auditing.texts.report import TextAuditReport

__all__ = ["TextAuditReport", "audit_text"]
