"""Speed measured: the alternatives a user would pick, side by side in one run, with the gap."""

from mdsd_opt.bench.comparison import Change, changes
from mdsd_opt.bench.record import Record, Report, load_report
from mdsd_opt.bench.scaling import Scaling, scaling
from mdsd_opt.bench.suite import SUITE, run

__all__ = [
    "SUITE",
    "Change",
    "Record",
    "Report",
    "Scaling",
    "changes",
    "load_report",
    "run",
    "scaling",
]
