"""Pictures of results on matplotlib axes, as the command line draws them.

Each function draws on `ax`, or on a figure of its own, and returns the axes, so that titles, sizes
and whatever else a paper asks for can be changed. They need matplotlib (``mdsd-opt[plot]``).
"""

import lazy_loader

from mdsd_opt._gone import telling

__all__ = ["advice", "bench", "draft_filters", "plan", "rates"]

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = telling(__name__, _named)
