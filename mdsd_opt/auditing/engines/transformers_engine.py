"""Transformers: the sampling of assisted generation."""

from __future__ import annotations

import numpy as np

from mdsd_opt.auditing.engines.engine import Adapter, Chain, Laws, Tokens

PACKAGE = "transformers"
TESTED = ("5.23.0",)
FUNCTION = "transformers.generation.utils._speculative_sampling"
REBOUND = ""


def chain() -> Chain:
    """In float32, as `generate` gives it the logits."""
    import torch
    from transformers.generation.utils import _speculative_sampling

    def logits(laws: Laws) -> torch.Tensor:
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(laws)).float()[None]

    def verify(p: Laws, q: Laws, drafts: Tokens) -> Tokens:
        tokens, _ = _speculative_sampling(torch.tensor([drafts]), logits(q), len(drafts), logits(p))
        return tuple(tokens[0].tolist())

    return verify


ADAPTERS = {
    "transformers": Adapter(PACKAGE, TESTED, FUNCTION, REBOUND, chain=chain),
}
