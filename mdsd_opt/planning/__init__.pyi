from .advice import Advice as Advice, advise as advise, scheme_title as scheme_title
from .costs import (
    PassCost as PassCost, StepCosts as StepCosts,
    measured as measured, read_costs as read_costs, time_model as time_model,
)
from .count_advice import (
    CountAdvice as CountAdvice, advice_of_run as advice_of_run,
    advise_from_counts as advise_from_counts, counts_given as counts_given,
)
from .draft_search import (
    Candidate as Candidate, best_draft_temperature as best_draft_temperature,
)
from .model_advice import ModelAdvice as ModelAdvice, advise_models as advise_models
from .ranking import (
    BestFilter as BestFilter, DraftComparison as DraftComparison,
    SchemeComparison as SchemeComparison, best_draft_filter as best_draft_filter,
    compare_draft_schemes as compare_draft_schemes, compare_drafts as compare_drafts,
    rank_drafts as rank_drafts, setting_shown as setting_shown,
)
from .row_allocation import RowAllocation as RowAllocation, allocate_rows as allocate_rows
