"""Are the texts right that a rule for trees of drafts gives? Whole texts, not first tokens."""

from mdsd_opt.auditing.trees.audit import audit_tree
from mdsd_opt.auditing.trees.report import TreeAuditReport
from mdsd_opt.auditing.trees.texts import TableModel

__all__ = ["TableModel", "TreeAuditReport", "audit_tree"]
