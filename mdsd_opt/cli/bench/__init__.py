"""Speed measured: the alternatives a user would pick, side by side in one run, with the gap."""

from mdsd_opt.cli.bench.comparison import Change, changes
from mdsd_opt.cli.bench.record import Record, Report, load_report
from mdsd_opt.cli.bench.scaling import Scaling, scaling
from mdsd_opt.cli.bench.suite import SUITE, run

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
