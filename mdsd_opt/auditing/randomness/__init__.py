"""Random numbers of an engine: seeded, or answered by the audit one by one."""

from mdsd_opt.auditing.randomness.interception import Serving, served
from mdsd_opt.auditing.randomness.sources import Grid, Source

__all__ = ["Grid", "Serving", "Source", "served"]
