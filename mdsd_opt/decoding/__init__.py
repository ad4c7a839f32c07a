"""Speculative decoding over several steps, with trees of drafts: all names below are public.

Data flows: draft model -> `grow` -> tree -> target model -> rule -> tokens; `generate` does it step
after step. A way through the files: `generation` (the loop), `growth` (which trees are drawn) and
`step_laws` (asking the models); trees and rules stand in the room below, `mdsd_opt.trees`. Beside
it: `place_rates` and `automatic` (which shape is best), `language_models`, `models` and
`huggingface` (whose logits), `comparison` (several rules in turn).
"""

import mdsd_opt.trees as _trees
from mdsd_opt.decoding.generation import (
    ContextEnds,
    Generation,
    Metrics,
    generate,
    generate_batch,
    generate_steps,
)
from mdsd_opt.decoding.growth import grow_by_acceptance
from mdsd_opt.decoding.huggingface import custom_generate
from mdsd_opt.decoding.language_models import PromptLookup, tree_logits
from mdsd_opt.decoding.parallel_drafts import best_first, by_position
from mdsd_opt.decoding.place_rates import (
    ConfidenceRates,
    RunningRates,
    confidence_rates,
    measured_rates,
    place_rates,
)
from mdsd_opt.decoding.shared_laws import SharedLaw, blind_bound, shared_law
from mdsd_opt.trees import *  # noqa: F403

__all__ = [
    "ConfidenceRates", "ContextEnds", "Generation", "Metrics", "PromptLookup", "RunningRates",
    "SharedLaw", "best_first", "blind_bound", "by_position", "confidence_rates", "custom_generate",
    "generate", "generate_batch", "generate_steps", "grow_by_acceptance", "measured_rates",
    "place_rates", "shared_law", "tree_logits",
]  # fmt: skip
__all__ += _trees.__all__
