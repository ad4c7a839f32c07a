"""Decisions about whole trees of drafts, in the form that serving engines call."""

import lazy_loader

__all__ = [
    "KernelUse", "NodeDrafts", "ScoredTree", "draft_tree", "greedy_drafts", "kernel_budget",
    "register_operators", "rows_of_children", "verify_tree", "verify_tree_of_draws",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
