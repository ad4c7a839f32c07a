from .comparison import (
    COMPARED as COMPARED, Begin as Begin, ComparedRule as ComparedRule,
    compare_rules as compare_rules, compared_rules as compared_rules,
    metrics_table as metrics_table, prompts_table as prompts_table, require_some as require_some,
    rules_conclusion as rules_conclusion, rules_table as rules_table,
    warm_up as warm_up,
)
from .generation import (
    ContextEnds as ContextEnds, Generation as Generation, Metrics as Metrics,
    generate as generate, generate_batch as generate_batch, generate_steps as generate_steps,
    require_room as require_room,
)
from .growth import (
    RunningRates as RunningRates, grow_by_acceptance as grow_by_acceptance, informed as informed,
    measured_rates as measured_rates, place_rates as place_rates,
)
from .huggingface import custom_generate as custom_generate
from .language_models import (
    PromptLookup as PromptLookup, ReadDraft as ReadDraft, tree_logits as tree_logits,
)
from .passes import cache_name as cache_name, cache_of as cache_of
from .loading import (
    LoadedModel as LoadedModel, load_model as load_model, load_pair as load_pair,
    maker_of_drafts as maker_of_drafts,
    tokenizer_identity as tokenizer_identity,
)
from .tree_pass import TreeModel as TreeModel
from .step_laws import (
    DEVICE_RULES as DEVICE_RULES, check_tree as check_tree,
    require_device_rule as require_device_rule,
)
from .tree_names import (
    Accepted as Accepted, DynamicTree as DynamicTree, Node as Node,
    PlannedTree as PlannedTree, PublishedRule as PublishedRule, Stop as Stop,
    Topology as Topology, TreeBound as TreeBound, TreePlan as TreePlan, TreeRule as TreeRule,
    ValueBound as ValueBound, balanced as balanced, chain as chain,
    expected_accepted as expected_accepted, get_rule as get_rule, grow as grow,
    initial_rates as initial_rates, k_ary as k_ary, parse_topology as parse_topology,
    place_values as place_values, plan_tree as plan_tree, published_rules as published_rules,
    rule_names as rule_names, set_targets as set_targets, sparse as sparse,
    tree_bound as tree_bound, tree_optimum as tree_optimum, value_bound as value_bound,
    whole_paths as whole_paths,
)
