"""Draft schemes: the joint law of the K tokens a draft model proposes."""

import lazy_loader

__all__ = [
    "SINGLE_MODEL_SCHEMES", "DraftScheme", "DraftSetLaw", "FixedPlusDrafts", "GreedyDrafts",
    "IndependentDrafts", "MixtureDrafts", "PrefixDraftScheme", "SequentialDrafts", "SupportLaw",
    "TopKDrafts", "WithReplacement", "WithoutReplacement", "register",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
