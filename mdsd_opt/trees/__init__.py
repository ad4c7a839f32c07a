"""Mathematics of trees of drafts: no language model is called here.

Data flows: `topology` (shapes, and what places are worth) and the laws of two models, drawn by
`draft_tree`, go to `rules` (what of a tree is accepted), which give tokens. `token_split` and
`recursive_rejection` are what rules do at a node, where places differ in worth, too; `plans` finds
the best shape; `optimum` tells what no rule exceeds; `device_laws` are laws that stay on a device;
`tree_kernels` are compiled. The public names are those of `mdsd_opt.decoding`, too.
"""

import lazy_loader

from mdsd_opt._gone import telling

__all__ = [
    "Accepted", "DynamicTree", "Node", "PlannedTree", "PublishedRule", "Stop",
    "Topology", "TreeBound", "TreePlan", "TreeRule", "ValueBound", "balanced", "chain",
    "expected_accepted", "get_rule", "grow", "initial_rates", "k_ary", "parse_topology",
    "place_values", "plan_tree", "published_rules", "register", "rule_names", "set_targets",
    "sparse", "tree_bound", "tree_optimum", "value_bound", "whole_paths",
]  # fmt: skip

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = telling(__name__, _named)
