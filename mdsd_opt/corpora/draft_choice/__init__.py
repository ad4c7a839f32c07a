"""Which way of drafting is best at a given number of drafts, and at which draft temperature."""

from mdsd_opt.corpora.draft_choice.comparison import (
    SchemeComparison,
    SchemeRate,
    compare_draft_schemes,
)
from mdsd_opt.corpora.draft_choice.temperature import BestTemperature, best_draft_temperature

__all__ = [
    "BestTemperature",
    "SchemeComparison",
    "SchemeRate",
    "best_draft_temperature",
    "compare_draft_schemes",
]
