"""Audits of functions that draft, verify and keep state by themselves: are their texts right?"""

from mdsd_opt.auditing.texts.audit import audit_text
from mdsd_opt.auditing.texts.report import TextAuditReport

__all__ = ["TextAuditReport", "audit_text"]
