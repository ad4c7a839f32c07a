"""Mathematics of trees of drafts: no language model is called here.

Data flows: `topology` (shapes, and what places are worth) and the laws of two models, drawn by
`draft_tree`, go to `rules` (what of a tree is accepted), which give tokens. `token_split` and
`recursive_rejection` are what rules do at a node; `plans` finds the best shape; `optimum`,
`text_tree` and `value_bound` tell what no rule exceeds; `device_laws` are laws that stay on a
device. The public names are those of `mdsd_opt.decoding`, too.
"""

from mdsd_opt.trees.draft_tree import Node, grow, set_targets
from mdsd_opt.trees.optimum import TreeBound, tree_bound, tree_optimum
from mdsd_opt.trees.plans import TreePlan, plan_tree
from mdsd_opt.trees.rules import Accepted, Stop, TreeRule, get_rule, rule_names
from mdsd_opt.trees.rules.published import PublishedRule, published_rules
from mdsd_opt.trees.topology import (
    AutoTree,
    DynamicTree,
    PlannedTree,
    Topology,
    balanced,
    chain,
    expected_accepted,
    initial_rates,
    k_ary,
    parse_topology,
    place_values,
    sparse,
    whole_paths,
)
from mdsd_opt.trees.value_bound import ValueBound, value_bound

__all__ = [
    "Accepted", "AutoTree", "DynamicTree", "Node", "PlannedTree", "PublishedRule", "Stop",
    "Topology", "TreeBound", "TreePlan", "TreeRule", "ValueBound", "balanced", "chain",
    "expected_accepted", "get_rule", "grow", "initial_rates", "k_ary", "parse_topology",
    "place_values", "plan_tree", "published_rules", "rule_names", "set_targets", "sparse",
    "tree_bound", "tree_optimum", "value_bound", "whole_paths",
]  # fmt: skip
