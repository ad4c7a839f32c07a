"""Advice whether speculation pays, and with which drafts, by forecasts and costs.

Data flows: logits, a corpus or two models -> `tree_forecasts` and `costs` -> `advice`; logs of
engines -> `formats` -> `count_forecasts` -> `count_advice`; both have `options`. `ranking` compares
ways to draft, by the rates of `draft_search`: schemes, filters, temperatures and models.
"""

from typing import Any

import lazy_loader

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = ["Candidate", "rank_drafts"]

#: Names that left in this release; the next one does not know them.
_GONE = {
    **dict.fromkeys(("EngineFlags", "engine_flags"), "take CountAdvice.flags"),
    **dict.fromkeys(
        ("time_server", "time_llamacpp", "time_any_server"),
        "give the log of a run without drafts, too",
    ),
    "cost_measurements": "take planning.time_model",
    "Policy": "give advise_from_counts a batch",
}


def __getattr__(name: str) -> Any:
    if name in _GONE:
        raise AttributeError(f"{name} left planning: {_GONE[name]} instead")
    return _named(name)
