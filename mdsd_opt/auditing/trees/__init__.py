"""Audits of rules for trees of drafts: are their whole texts right, not only the first tokens?"""

from mdsd_opt.auditing.model_texts import TableModel
from mdsd_opt.auditing.trees.audit import audit_tree
from mdsd_opt.auditing.trees.report import TreeAuditReport

__all__ = ["TableModel", "TreeAuditReport", "audit_tree"]
