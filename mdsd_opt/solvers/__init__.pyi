from .export import linear_programme as linear_programme
from .frontier.curve import frontier_of as frontier_of
from .frontier.curve import CostCurve as CostCurve
from .frontier import distances as distances
from .frontier import (
    Relaxation as Relaxation, checked_relax as checked_relax, relax as relax,
    relaxed_by as relaxed_by, the_budget as the_budget,
)
from .frontier.relaxed_rows import ERROR as ERROR, RelaxedRows as RelaxedRows
from .frontier.rules import (
    NAMED_RULES as NAMED_RULES, FrontierPoint as FrontierPoint, RulePoint as RulePoint,
    Survey as Survey, survey_frontier as survey_frontier, survey_rules as survey_rules,
)
from .linear_programmes import TransportLP as TransportLP
from .max_flow import IntegerMasses as IntegerMasses, integer_masses as integer_masses
from .method import Method as Method
from .solving import (
    METHODS as METHODS, get as get, methods as methods, register as register,
)
from .scan_kernels import below_threshold as below_threshold, take_columns as take_columns
from .solving import Found as Found, Status as Status, choose as choose, solve as solve
from .subset_selection import best_length as best_length, exact_optimum as exact_optimum
from .subset_selection import (
    ThresholdSubset as ThresholdSubset, subset_of as subset_of,
    threshold_subset as threshold_subset,
)
from .truncated_lp import (
    PairRule as PairRule, check_names as check_names, rounds as rounds,
    stages_in_reach as stages_in_reach, winners as winners,
)
