"""Decoding from models made of noise, so that a clock does not time the loading of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.generation import generate_steps
from mdsd_opt.decoding.growth import first_plan
from mdsd_opt.decoding.hull_plan import MANY_TOKENS
from mdsd_opt.decoding.topology import (
    DynamicTree,
    PlannedTree,
    Topology,
    Tree,
    k_ary,
    parse_topology,
)
from mdsd_opt.drafts.by_name import SchemeMaker

#: Few, but enough to accept, to reject and to come by the rarer branches of a rule.
_STEPS = 8

_ROWS = 7


def warm_up(
    rule: str,
    vocab_size: int,
    tree: Tree | str = "4x3",
    scheme: str | SchemeMaker = "with_replacement",
    **settings: Any,
) -> None:
    """Decode some steps, silently, as `generate` will: by the same kernels, already compiled then.

    Small trees have the whole vocabulary, so that a rule that cannot decode there says so before
    anything has been decoded; the tree itself has a few thousand tokens.

    Parameters
    ----------
    rule : str
    vocab_size : int
        V of the models.
    tree, scheme
        As for `generate`.
    **settings
        Temperatures and filters, as for `generate`.

    Raises
    ------
    MdsdError
        What `generate` would raise: the rule does not take such drafts, or so many tokens.
    """
    topology = parse_topology(tree) if isinstance(tree, str) else tree
    if isinstance(topology, PlannedTree):
        topology = first_plan(topology).topology
    for shape in [*(k_ary(count, 1) for count in _counts(topology)), topology]:
        size = vocab_size if shape is not topology else min(vocab_size, MANY_TOKENS)
        target, draft = _noise(size)
        steps = generate_steps(
            target, draft, [0], tree=shape, scheme=scheme, rule=rule, rng=0,
            max_new_tokens=10**6, **settings,
        )  # fmt: skip
        for _ in islice(steps, _STEPS):
            pass


def _counts(topology: Topology | DynamicTree) -> list[int]:
    """The numbers of drafts that nodes have."""
    if isinstance(topology, DynamicTree):
        return [topology.num_drafts]
    return sorted(set(topology.num_drafts.values()))


Model = Callable[[Sequence[int]], NDArray[np.float64]]


def _noise(vocab_size: int) -> tuple[Model, Model]:
    """A target and a draft that resemble each other somewhat."""
    rng = np.random.default_rng(0)
    draft = 2.5 * rng.standard_normal((_ROWS, vocab_size))
    target = draft + rng.standard_normal(draft.shape)
    return (lambda ids: target[sum(ids) % _ROWS]), (lambda ids: draft[sum(ids) % _ROWS])
