"""Speculative decoding over several steps, with trees of drafts.

Data flows: draft model -> `grow` -> tree -> target model -> rule -> tokens; `generate` does it step
after step.
"""

from mdsd_opt.decoding.draft_tree import Node, grow, grow_by_acceptance
from mdsd_opt.decoding.generation import Generation, Metrics, generate, generate_steps, weigh
from mdsd_opt.decoding.language_models import tree_logits
from mdsd_opt.decoding.rules import Accepted, Stop, TreeRule, get_rule, rule_names
from mdsd_opt.decoding.topology import DynamicTree, Topology, k_ary, parse_topology, sparse
from mdsd_opt.decoding.tree_optimum import tree_optimum

__all__ = [
    "Accepted",
    "DynamicTree",
    "Generation",
    "Metrics",
    "Node",
    "Stop",
    "Topology",
    "TreeRule",
    "generate",
    "generate_steps",
    "get_rule",
    "grow",
    "grow_by_acceptance",
    "k_ary",
    "parse_topology",
    "rule_names",
    "sparse",
    "tree_logits",
    "tree_optimum",
    "weigh",
]
