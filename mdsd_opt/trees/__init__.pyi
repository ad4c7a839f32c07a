from .device_laws import BinnedDrafts as BinnedDrafts, BinnedLaw as BinnedLaw
from .device_laws import (
    bin_tables as bin_tables, bins_on_device as bins_on_device,
    undrafted_table as undrafted_table,
)
from .device_laws import (
    is_host as is_host,
    PromisedToken as PromisedToken, known as known, on_device as on_device,
    token_ids as token_ids,
)
from .device_laws import integer_weights as integer_weights, probabilities as probabilities
from .draft_tree import (
    DraftModel as DraftModel, Node as Node, draw_level as draw_level,
    drawn as drawn, grow as grow, hang as hang, set_targets as set_targets, settle as settle,
)
from .optimum import TreeBound as TreeBound, tree_bound as tree_bound, tree_optimum as tree_optimum
from .plans import (
    TreePlan as TreePlan, chances as chances, forecasts as forecasts,
    plan_tree as plan_tree, plans_by_size as plans_by_size,
)
from .recursive_rejection import MANY_TOKENS as MANY_TOKENS
from .rules import (
    Accepted as Accepted, PublishedRule as PublishedRule, Stop as Stop, TreeRule as TreeRule,
    get_rule as get_rule, published_rules as published_rules, register as register,
    rule_names as rule_names,
)
from .rules.by_level import Race as Race
from .rules.by_level import TopDown as TopDown
from .topology import (
    MAX_DEPTH as MAX_DEPTH, MAX_TABLE as MAX_TABLE,
    DynamicTree as DynamicTree, Place as Place,
    PlannedTree as PlannedTree, RateTable as RateTable, Topology as Topology,
    Tree as Tree, ValuedTopology as ValuedTopology, balanced as balanced, chain as chain,
    checked_rates as checked_rates,
    expected_accepted as expected_accepted, initial_rates as initial_rates, k_ary as k_ary,
    parse_topology as parse_topology, place_values as place_values, rates_among as rates_among,
    rates_from_alphas as rates_from_alphas, sparse as sparse, valued as valued,
    whole_paths as whole_paths,
)
from .optimum import ValueBound as ValueBound, value_bound as value_bound
