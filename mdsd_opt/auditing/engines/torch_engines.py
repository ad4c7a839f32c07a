"""Functions in plain PyTorch, from transformers, LMDeploy and EAGLE."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.auditing.chains import Chain, Rows, Tokens
from mdsd_opt.auditing.engines.engine import Adapter, Drafted, Rule
from mdsd_opt.auditing.engines.loading import file_alone, stand_in
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.topology import Topology

_LMDEPLOY = "lmdeploy.pytorch.backends"

#: Tree of two drafts, and two more after the first of them.
_EAGLE_TREE = Drafted(Topology({(): 2, (0,): 2}, "2, 2 after the first"), "without_replacement")


def _transformers() -> Chain:
    """Function of transformers on float32 logits, as `generate` passes them."""
    import torch
    from transformers.generation.utils import _speculative_sampling

    def logits(laws: Rows) -> torch.Tensor:
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(laws)).float()[None]

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
        tokens, _ = _speculative_sampling(torch.tensor([drafts]), logits(q), len(drafts), logits(p))
        return tuple(tokens[0].tolist())

    return verify


def _lmdeploy() -> Chain:
    """Function of LMDeploy with draft probabilities; the caller draws the bonus token, as there."""
    import torch

    stand_ins = stand_in(f"{_LMDEPLOY}.default") | stand_in(
        f"{_LMDEPLOY}.rejection_sampling", PLACEHOLDER_TOKEN_ID=-1, RejectionSamplingImpl=object
    )
    path = f"{_LMDEPLOY}.default.rejection_sampling".replace(".", "/") + ".py"
    sampler = file_alone("lmdeploy", path, stand_ins).DefaultRejectionSamplingImpl()

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
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


def eagle(temperature: float = 1.0) -> Rule:
    """Function of EAGLE with buffers of `generate_tree_buffers`; the caller draws the last token.

    The logits are such that their laws at the temperature are the target's.
    """
    import torch

    utils = file_alone("eagle-llm", "eagle/model/utils.py", {})
    processor = utils.prepare_logits_processor(temperature=temperature)
    known: dict[tuple[tuple[int, ...], ...], Any] = {}

    def verify(root: Node) -> Tokens:
        nodes = sorted(root.walk(), key=lambda node: (node.depth, node.place))
        places = tuple(node.place for node in nodes[1:])
        if places not in known:
            known[places] = utils.generate_tree_buffers([list(p) for p in places], device="cpu")
        buffers = known[places]
        # one row past the end for the index -1, which pads short paths
        tokens = torch.tensor([0, *(node.tokens[-1] for node in nodes[1:]), -1])
        with np.errstate(divide="ignore"):
            logits = temperature * np.log(np.stack([node.target for node in nodes]))
        chances, laws = _eagle_draws(nodes)
        paths = buffers["retrieve_indices"]
        best, accepted, law = utils.evaluate_posterior(
            torch.from_numpy(logits).float()[paths],
            tokens[paths],
            processor,
            torch.tensor(chances).float()[paths],
            [torch.from_numpy(np.stack(level)).float() for level in laws],
            buffers["p_indices"],
            tokens[None, :-1],
            buffers["b_indices"],
        )
        last = torch.multinomial(law, 1)
        path = tokens[paths][int(best)].tolist()
        return (*path[1 : int(accepted) + 1], int(last))

    return verify


def _eagle_draws(nodes: list[Node]) -> tuple[list[float], list[list[Any]]]:
    """Probability of each draft given those before it, and the laws of the levels.

    In `topK_genrate` of the package, the chance is q divided by what is left of it, no more than 1.
    """
    chance = {nodes[0].place: 1.0}
    laws: list[list[Any]] = [[] for _ in range(nodes[-1].depth)]
    for node in nodes:
        if node.drafts is None:
            continue
        drawn = node.drafts.random_draws
        if drawn is None or drawn.is_replaced:
            raise InvalidInput(
                "eagle verifies drafts without replacement: audit it with "
                "scheme='without_replacement'"
            )
        laws[node.depth].append(drawn.q)
        left = 1.0
        for rank, token in enumerate(node.draws.tolist()):
            q = float(drawn.q[token])
            chance[(*node.place, rank)] = min(max(q / left if left > 0 else 0.0, 0.0), 1.0)
            left -= q
    return [*(chance[node.place] for node in nodes), 1.0], laws


ADAPTERS = {
    "transformers": Adapter(
        "transformers",
        ("5.23.0", "5.24.0"),
        "transformers.generation.utils._speculative_sampling",
        "",
        chain=_transformers,
    ),
    "lmdeploy": Adapter(
        "lmdeploy",
        ("0.18.0",),
        "lmdeploy.pytorch.backends.default.rejection_sampling.DefaultRejectionSamplingImpl",
        "its abstract base class, which needs the rest of the package",
        chain=_lmdeploy,
    ),
    "eagle": Adapter(
        "eagle-llm",
        ("1.2.1",),
        "eagle.model.utils.evaluate_posterior",
        "nothing; the file is loaded alone",
        rule=eagle,
        drafted=_EAGLE_TREE,
    ),
}
