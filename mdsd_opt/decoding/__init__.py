"""Speculative decoding over several steps, with trees of drafts: all names below are public.

Data flows: draft model -> `grow` -> tree -> target model -> rule -> tokens; `generate` does it step
after step. A way through the files: `generation` (the loop), `growth` (which trees are drawn),
`draft_tree` (drawing one), `step_laws` (asking the models), `rules` (what of a tree is accepted),
`token_split` and `recursive_rejection` (what of a node is). Beside it: `topology` (shapes, and what
places are worth), `tree_plans`, `place_rates` and `automatic` (which shape is best), `tree_optimum`
and `value_bound` (what no rule exceeds), `language_models`, `models` and `huggingface` (whose
logits), `device_laws` (laws that stay on a device), `comparison` (several rules in turn).
"""

from mdsd_opt.decoding.draft_tree import Node, grow
from mdsd_opt.decoding.generation import (
    ContextEnds,
    Generation,
    Metrics,
    generate,
    generate_batch,
    generate_steps,
    set_targets,
)
from mdsd_opt.decoding.generation import weigh as weigh  # its old name
from mdsd_opt.decoding.growth import grow_by_acceptance
from mdsd_opt.decoding.huggingface import custom_generate
from mdsd_opt.decoding.language_models import PromptLookup, tree_logits
from mdsd_opt.decoding.parallel_drafts import best_first, by_position
from mdsd_opt.decoding.place_rates import (
    ConfidenceRates,
    RunningRates,
    confidence_rates,
    measured_rates,
    place_rates,
)
from mdsd_opt.decoding.rules import Accepted, Stop, TreeRule, get_rule, rule_names
from mdsd_opt.decoding.rules.published import PublishedRule, published_rules
from mdsd_opt.decoding.topology import (
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
from mdsd_opt.decoding.tree_optimum import TreeBound, tree_bound, tree_optimum
from mdsd_opt.decoding.tree_plans import TreePlan, plan_tree
from mdsd_opt.decoding.value_bound import ValueBound, value_bound

__all__ = [
    "Accepted", "AutoTree", "ConfidenceRates", "ContextEnds", "DynamicTree", "Generation",
    "Metrics", "Node", "PlannedTree", "PromptLookup", "PublishedRule", "RunningRates", "Stop",
    "Topology", "TreeBound", "TreePlan", "TreeRule", "ValueBound", "balanced", "best_first",
    "by_position", "chain", "confidence_rates", "custom_generate", "expected_accepted", "generate",
    "generate_batch", "generate_steps", "get_rule", "grow", "grow_by_acceptance", "initial_rates",
    "k_ary", "measured_rates", "parse_topology", "place_rates", "place_values", "plan_tree",
    "published_rules", "rule_names", "set_targets", "sparse", "tree_bound", "tree_logits",
    "tree_optimum", "value_bound", "whole_paths",
]  # fmt: skip
