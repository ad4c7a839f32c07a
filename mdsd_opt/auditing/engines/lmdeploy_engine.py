"""LMDeploy: the rejection sampler of its portable PyTorch backend."""

from __future__ import annotations

import numpy as np

from mdsd_opt.auditing.engines.engine import Adapter, Chain, Laws, Tokens
from mdsd_opt.auditing.engines.loading import file_alone, stand_in

PACKAGE = "lmdeploy"
TESTED = ("0.18.0",)
FUNCTION = "lmdeploy.pytorch.backends.default.rejection_sampling.DefaultRejectionSamplingImpl"
REBOUND = "its abstract base class, which needs the rest of the package"

_FOLDER = "lmdeploy.pytorch.backends"


def chain() -> Chain:
    """With draft probabilities; the bonus token is drawn by the caller, as its engine does."""
    import torch

    stand_ins = stand_in(f"{_FOLDER}.default") | stand_in(
        f"{_FOLDER}.rejection_sampling", PLACEHOLDER_TOKEN_ID=-1, RejectionSamplingImpl=object
    )
    path = f"{_FOLDER}.default.rejection_sampling".replace(".", "/") + ".py"
    sampler = file_alone(PACKAGE, path, stand_ins).DefaultRejectionSamplingImpl()

    def verify(p: Laws, q: Laws, drafts: Tokens) -> Tokens:
        bonus = torch.multinomial(torch.tensor(p[-1:]), 1)[0]
        with np.errstate(divide="ignore"):
            logits = torch.from_numpy(np.log(p[:-1]))[None]
        tokens = sampler.forward(
            logits,
            torch.tensor([drafts]),
            bonus,
            is_greedy=None,
            draft_probs=torch.tensor(q).float()[None],
        )[0][0]
        return tuple(token for token in tokens.tolist() if token >= 0)

    return verify


ADAPTERS = {
    "lmdeploy": Adapter(PACKAGE, TESTED, FUNCTION, REBOUND, chain=chain),
}
