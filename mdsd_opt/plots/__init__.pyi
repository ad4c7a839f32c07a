from .deviations import audit_figure as audit_figure, portfolio_figure as portfolio_figure
from .draft_curves import drafts_figure as drafts_figure
from .drawing import new_figure as new_figure
from .filter_lines import draft_filters as draft_filters
from .frontier_curves import frontier_figure as frontier_figure
from .planned_trees import tree_figure as tree_figure
from .rate_curves import rates as rates, rates_figure as rates_figure
from .reproduced_curves import reproduction_figure as reproduction_figure
from .speedups import (
    advice as advice, advice_figure as advice_figure, chains_figure as chains_figure,
)
from .timings import bench as bench, bench_figure as bench_figure
from .transports import plan as plan
