from .deviations import audit_figure as audit_figure, portfolio_figure as portfolio_figure
from .curves import drafts_figure as drafts_figure
from .drawing import new_figure as new_figure
from .curves import draft_filters as draft_filters
from .curves import frontier_figure as frontier_figure
from .speedups import tree_figure as tree_figure
from .rate_curves import rates as rates, rates_figure as rates_figure
from .curves import reproduction_figure as reproduction_figure
from .speedups import (
    advice as advice, advice_figure as advice_figure, chains_figure as chains_figure,
)
from .timings import bench as bench, bench_figure as bench_figure
from .transports import plan as plan
