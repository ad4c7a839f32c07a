"""EAGLE: the verification of its static tree, whose drafts are drawn without replacement."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.auditing.engines.engine import Drafted, Rule, Tokens
from mdsd_opt.auditing.engines.loading import file_alone
from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.topology import Topology
from mdsd_opt.errors import InvalidInput

PACKAGE = "eagle-llm"
TESTED = ("1.2.1",)
FUNCTION = "eagle.model.utils.evaluate_posterior"
REBOUND = "nothing; the file is loaded alone"

#: Two drafts, and two more after the first of them.
DRAFTED = Drafted(Topology({(): 2, (0,): 2}, "2, 2 after the first"), "without_replacement")


def rule(temperature: float = 1.0) -> Rule:
    """With the buffers of `generate_tree_buffers`; the last token is drawn as by its caller.

    The logits are such that their laws at the temperature are the target's.
    """
    import torch

    utils = file_alone(PACKAGE, "eagle/model/utils.py", {})
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
        chances, laws = _draws(nodes)
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


def _draws(nodes: list[Node]) -> tuple[list[float], list[list[Any]]]:
    """The chance of each draft after those before it, and the laws of the levels.

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
