from .methods import (
    MethodRow as MethodRow, ShownEvidence as ShownEvidence,
    evidence_tables as evidence_tables, method_rows as method_rows,
    methods_conclusion as methods_conclusion, methods_table as methods_table,
    with_plan as with_plan,
)
from .problem_sets import FAMILIES as FAMILIES, SETS as SETS
from .record import (
    Mean as Mean, Outcome as Outcome, Record as Record, Scaling as Scaling, means as means,
    performance_profile as performance_profile, scaling as scaling,
)
from .bench_report import (
    BenchReport as BenchReport, Change as Change, changes as changes,
    changes_table as changes_table, load_report as load_report, load_warning as load_warning,
)
from .suite import LEFT_OUT as LEFT_OUT, SUITE as SUITE, not_installed as not_installed, run as run
