"""Advice whether speculation pays, and with which drafts, by forecasts and costs.

Data flows: logits, a corpus or two models -> `tree_forecasts` and `costs` -> `advice`; logs of
engines -> `formats` -> `count_forecasts` -> `count_advice`, with `policies` ->
`engine_flags`. `cost_measurements` times passes for a file of `costs`; `draft_choice` and
`draft_temperature` tell which of several drafts is best.
"""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
