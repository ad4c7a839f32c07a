"""Draft schemes: the joint law of the K tokens a draft model proposes.

- `scheme`: what a scheme gives, in float64 and in Fractions; those of one draft model
- `with_replacement`, `without_replacement` (with `plackett_luce_kernels`), `independent`: draws
- `fixed_set`: greedy, top-K, and a fixed set beside any scheme; `mixture`: a random choice of them
- `set_law`: your own laws, over draft sets or of the next draft
- `support_law`: the law of the draft set, and how long lists of it are
- `product_form`: Q as a polynomial of masses; `inclusion`: which tokens are drafted, how often
- `uniform_intervals`: drafts as uniforms, which audits test
- `by_name`: schemes by name, a user's own among them
"""

import lazy_loader

__all__ = [
    "SINGLE_MODEL_SCHEMES", "DraftScheme", "DraftSetLaw", "FixedPlusDrafts", "GreedyDrafts",
    "IndependentDrafts", "MixtureDrafts", "PrefixDraftScheme", "SequentialDrafts", "SupportLaw",
    "TopKDrafts", "WithReplacement", "WithoutReplacement", "register",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
