from .drafting import (
    NodeDrafts as NodeDrafts, greedy_drafts as greedy_drafts,
    rows_of_children as rows_of_children,
)
from .kernel_budget import KernelUse as KernelUse, kernel_budget as kernel_budget
from .operators import register_operators as register_operators
from .scored_trees import ScoredTree as ScoredTree, draft_tree as draft_tree
from .verification import verify_tree as verify_tree, verify_tree_of_draws as verify_tree_of_draws
