"""What a tree is expected to accept from the models at hand, before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mdsd_opt.decoding.growth import MAX_DRAFTS, first_plan
from mdsd_opt.decoding.place_rates import measured_rates
from mdsd_opt.decoding.place_values import expected_accepted
from mdsd_opt.decoding.topology import DynamicTree, PlannedTree, Tree


def informed(
    tree: Tree,
    target: Any,
    draft: Any,
    texts: Sequence[Sequence[int]],
    scheme: str,
    settings: dict[str, Any],
) -> tuple[Tree, float | None]:
    """The tree with the rates of the models on some texts, and the forecast by them.

    Parameters
    ----------
    tree : Topology, PlannedTree or DynamicTree
    target, draft : model
    texts : sequence of sequences of int
        Token ids.
    scheme : str
    settings : dict
        Temperatures and filters.

    Returns
    -------
    tree
        Planned, and grown, by the rates measured.
    forecast : float or None
        Accepted drafts a step; None for a tree that grows.
    """
    if isinstance(tree, PlannedTree):
        widest = MAX_DRAFTS
    elif isinstance(tree, DynamicTree):
        widest = tree.num_drafts
    else:
        widest = max(tree.num_drafts.values())
    table = measured_rates(target, draft, texts, widest, scheme, **settings)
    if isinstance(tree, PlannedTree):
        tree = replace(tree, table=table)
        return tree, first_plan(tree).expected_accepted
    if isinstance(tree, DynamicTree):
        return replace(tree, rates=table), None
    return tree, expected_accepted(tree, table)
