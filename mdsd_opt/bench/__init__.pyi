from .problem_sets import SETS as SETS
from .record import (
    SHIFT as SHIFT, BenchReport as BenchReport, Change as Change, Record as Record,
    Scaling as Scaling, changes as changes, geometric_means as geometric_means,
    load_report as load_report, load_warning as load_warning,
    performance_profile as performance_profile, scaling as scaling,
)
from .suite import LEFT_OUT as LEFT_OUT, SUITE as SUITE, run as run
