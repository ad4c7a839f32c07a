"""Speculative decoding over several steps, with trees of drafts: all names below are public.

Data flows: draft model -> `grow` -> tree -> target model -> rule -> tokens; `generate` does it step
after step. A way through the files: `generation` (the loop), `growth` (which trees are drawn) and
`step_laws` (asking the models); trees and rules stand in the room below, `mdsd_opt.trees`. Beside
it: `place_rates` (what places are worth), `language_models`, `models` and `huggingface` (whose
logits), `comparison` (several rules in turn).
"""

import lazy_loader

from mdsd_opt import trees as _trees

__all__ = [
    "ConfidenceRates", "ContextEnds", "Generation", "Metrics", "PromptLookup", "RunningRates",
    "SharedLaw", "best_first", "blind_bound", "by_position", "confidence_rates",
    "custom_generate", "generate", "generate_batch", "generate_steps", "grow_by_acceptance",
    "measured_rates", "place_rates", "shared_law", "tree_logits",
]  # fmt: skip

__all__ += [name for name in _trees.__all__ if name != "register"]

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
