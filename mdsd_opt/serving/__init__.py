"""Decisions about whole trees of drafts, in the form that serving engines call."""

from mdsd_opt.serving.drafting import NodeDrafts, greedy_drafts, rows_of_children
from mdsd_opt.serving.kernel_budget import KernelUse, kernel_budget
from mdsd_opt.serving.scored_trees import ScoredTree, draft_tree
from mdsd_opt.serving.verification import verify_tree, verify_tree_of_draws

__all__ = [
    "KernelUse",
    "NodeDrafts",
    "ScoredTree",
    "draft_tree",
    "greedy_drafts",
    "kernel_budget",
    "rows_of_children",
    "verify_tree",
    "verify_tree_of_draws",
]
