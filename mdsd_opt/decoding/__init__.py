"""Speculative decoding over several steps, with trees of drafts: all names below are public.

Data flows: draft model -> `grow` -> tree -> target model -> rule -> tokens; `generate` does it step
after step. A way through the files: `generation` (the loop), `growth` (which trees are drawn) and
`step_laws` (asking the models); trees and rules stand in the room below, `mdsd_opt.trees`. Beside
it: `place_rates` and `automatic` (which shape is best), `language_models`, `models` and
`huggingface` (whose logits), `comparison` (several rules in turn).
"""

from mdsd_opt.decoding.generation import (
    ContextEnds,
    Generation,
    Metrics,
    generate,
    generate_batch,
    generate_steps,
)
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
from mdsd_opt.decoding.shared_laws import SharedLaw, blind_bound, shared_law
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
    "Accepted", "AutoTree", "ConfidenceRates", "ContextEnds", "DynamicTree", "Generation",
    "Metrics", "Node", "PlannedTree", "PromptLookup", "PublishedRule", "RunningRates", "SharedLaw",
    "Stop", "Topology", "TreeBound", "TreePlan", "TreeRule", "ValueBound", "balanced", "best_first",
    "blind_bound", "by_position", "chain", "confidence_rates", "custom_generate",
    "expected_accepted", "generate", "generate_batch", "generate_steps", "get_rule", "grow",
    "grow_by_acceptance", "initial_rates", "k_ary", "measured_rates", "parse_topology",
    "place_rates", "place_values", "plan_tree", "published_rules", "rule_names", "set_targets",
    "shared_law", "sparse", "tree_bound", "tree_logits", "tree_optimum", "value_bound",
    "whole_paths",
]  # fmt: skip
