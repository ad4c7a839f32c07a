"""Pictures of results on matplotlib axes, as the command line draws them.

Each function draws on `ax`, or on a figure of its own, and returns the axes, so that titles, sizes
and whatever else a paper asks for can be changed. They need matplotlib (``mdsd-opt[plot]``).
"""

from mdsd_opt.plots.filter_lines import draft_filters
from mdsd_opt.plots.rate_curves import rates
from mdsd_opt.plots.speedups import advice
from mdsd_opt.plots.stability_steps import stability
from mdsd_opt.plots.timings import bench
from mdsd_opt.plots.transports import plan

__all__ = ["advice", "bench", "draft_filters", "plan", "rates", "stability"]
