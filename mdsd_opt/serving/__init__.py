"""Decisions about whole trees of drafts, in the form that serving engines call."""

from mdsd_opt.serving.kernel_budget import KernelUse, kernel_budget
from mdsd_opt.serving.verification import verify_tree, verify_tree_of_draws

__all__ = ["KernelUse", "kernel_budget", "verify_tree", "verify_tree_of_draws"]
