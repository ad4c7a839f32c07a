"""Advice whether speculation pays, and with which drafts, by forecasts and costs.

Data flows: logits, a corpus or two models -> `tree_forecasts` and `costs` -> `advice`; logs of
engines -> `formats` -> `count_forecasts` -> `count_advice`; both have `options`. `ranking` compares
ways to draft, by the rates of `draft_search`: schemes, filters, temperatures and models.
"""

import lazy_loader

from mdsd_opt._gone import telling

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = ["Candidate", "rank_drafts"]

__getattr__ = telling(__name__, _named)
