from . import cost_measurements as cost_measurements
from .advice import Advice as Advice, advise as advise, scheme_title as scheme_title
from .cost_measurements import time_model as time_model
from .costs import (
    Pass as Pass, PassCost as PassCost, StepCosts as StepCosts, read_costs as read_costs,
)
from .count_advice import CountAdvice as CountAdvice
from .draft_choice import (
    SchemeComparison as SchemeComparison, best_draft_temperature as best_draft_temperature,
    compare_draft_schemes as compare_draft_schemes, scheme_label as scheme_label,
)
from .draft_comparison import (
    DraftComparison as DraftComparison, compare_drafts as compare_drafts,
)
from .draft_filter import (
    BestFilter as BestFilter, best_draft_filter as best_draft_filter,
    setting_shown as setting_shown,
)
from .engine_advice import (
    advice_of_run as advice_of_run, advise_from_counts as advise_from_counts,
    check_asked as check_asked, counts_given as counts_given,
)
from .engine_flags import EngineFlags as EngineFlags, engine_flags as engine_flags
from .model_advice import ModelAdvice as ModelAdvice, advise_models as advise_models
from .options import speedup_cell as speedup_cell
from .row_allocation import RowAllocation as RowAllocation, allocate_rows as allocate_rows
