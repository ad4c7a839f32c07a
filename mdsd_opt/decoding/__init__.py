"""Speculative decoding over several steps, with trees of drafts: all names below are public.

Data flows: draft model -> `grow` -> tree -> target model -> rule -> tokens; `generate` does it step
after step. `generation` is the loop, `growth` says which trees are drawn, and by what rates, and
`step_laws` asks the models for the laws of a step; trees and rules stand in the room below,
`mdsd_opt.trees`. `language_models` has what a model or a draft may be; those of the transformers
library are opened by `loading` and read by `passes` and `tree_pass`, and `huggingface` decodes
inside its `generate`. `comparison` decodes by several rules in turn.
"""

import lazy_loader

from mdsd_opt import trees as _trees
from mdsd_opt._gone import telling

__all__ = [
    "ContextEnds", "Generation", "Metrics", "PromptLookup", "RunningRates", "custom_generate",
    "generate", "generate_batch", "generate_steps", "grow_by_acceptance", "measured_rates",
    "place_rates", "tree_logits",
]  # fmt: skip

__all__ += [name for name in _trees.__all__ if name != "register"]

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = telling(__name__, _named)
