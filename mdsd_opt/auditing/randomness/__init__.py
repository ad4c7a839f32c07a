"""Random numbers of an engine, answered by the audit instead of by the engine's own generators."""

from mdsd_opt.auditing.randomness.grids import Grid
from mdsd_opt.auditing.randomness.serving import Serving, served
from mdsd_opt.auditing.randomness.source import Source
from mdsd_opt.auditing.randomness.sources import SampledSource

__all__ = ["Grid", "SampledSource", "Serving", "Source", "served"]
