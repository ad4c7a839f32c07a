"""Measures speed: the alternatives a user would pick, side by side in one run, with the gap.

`suite` runs benchmarks by name, each a file: `solvers`, `flows`, `batches`, `decisions`,
`polyhedra`. `problem_sets` has the problems of the first two, `record` what is measured and sums
over it, `bench_report` files and tables of a run. `methods` is every method on one problem.
"""

import lazy_loader

from mdsd_opt._gone import telling

__all__ = [
    "FAMILIES", "LEFT_OUT", "SETS", "SUITE", "BenchReport", "Change", "Mean", "Outcome", "Record",
    "Scaling", "changes", "load_report", "load_warning", "means", "performance_profile", "run",
    "scaling",
]  # fmt: skip

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = telling(__name__, _named)
