"""Advice whether speculation pays, and with which drafts, by forecasts and costs.

Data flows: logits, a corpus or two models -> `tree_forecasts` and `costs` -> `advice`; logs of
engines -> `formats` -> `engine_advice` -> `count_forecasts` -> `count_advice`, with `policies` ->
`engine_flags`; both have `options`. `cost_measurements` times passes for a file of `costs`;
`draft_search` rates ways to draft: schemes, filters, temperatures and models.
"""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
