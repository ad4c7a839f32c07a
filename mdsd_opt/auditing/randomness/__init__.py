"""Random numbers of an engine, answered by the audit instead of by the engine's own generators."""

from mdsd_opt.auditing.randomness.interception import Serving, served
from mdsd_opt.auditing.randomness.sources import Grid, SampledSource, Source

__all__ = ["Grid", "SampledSource", "Serving", "Source", "served"]
