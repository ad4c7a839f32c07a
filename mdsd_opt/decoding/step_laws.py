"""The laws of a step: where the draft's come from, and how the target's get into the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import softmax
from mdsd_opt.decoding.device_laws.laws import BinnedDrafts, BinnedLaw
from mdsd_opt.decoding.draft_tree import Node, Tokens, settle
from mdsd_opt.decoding.language_models import tree_logits
from mdsd_opt.decoding.rules import TreeRule
from mdsd_opt.drafts.by_name import SchemeMaker, composition_of
from mdsd_opt.errors import InvalidInput

#: Rules that decide from sums over bins, by name.
DEVICE_RULES = ("traversal_hull", "level_sequential", "optimal")


class StepLaws(Protocol):
    """What a step needs of the models."""

    @property
    def make(self) -> Callable[[Any, int], Any]:
        """Makes the drafts of a node from a row of `drafts` and their number."""

    def drafts(self, text: Sequence[int], continuations: Sequence[Tokens]) -> Any:
        """The draft's laws after some continuations of a text, one a row."""

    def weigh(self, text: Sequence[int], nodes: Sequence[Node]) -> None:
        """Give every node its target law; and the first, which is the root, its tree's tokens."""


class HostLaws:
    """float64 arrays of V numbers, for every rule and scheme.

    Parameters
    ----------
    target, draft : model
    make : callable
    temperature, draft_temperature : float
    filters : dict
    """

    def __init__(
        self, target: Any, draft: Any, make: SchemeMaker, temperature: float,
        draft_temperature: float, filters: dict[str, Any],
    ) -> None:  # fmt: skip
        self.make = make
        self._target, self._draft = tree_logits(target), tree_logits(draft)
        self._temperature, self._draft_temperature = temperature, draft_temperature
        self._filters = filters

    def drafts(self, text: Sequence[int], continuations: Sequence[Tokens]) -> NDArray[np.float64]:
        return softmax(self._draft(text, continuations), self._draft_temperature, **self._filters)

    def weigh(self, text: Sequence[int], nodes: Sequence[Node]) -> None:
        logits = self._target(text, [node.tokens for node in nodes])
        laws = softmax(logits, self._temperature, **self._filters)
        for node, law in zip(nodes, laws, strict=True):
            node.target = law


class DeviceLaws:
    """Integer weights where the logits are; the host gets tables of the nodes with drafts.

    Parameters
    ----------
    target, draft : model
        With a method ``tree_tensor(ids, continuations)``, as `TreeModel` has it.
    replaced : bool
        Whether drafts are drawn with replacement.
    temperature, draft_temperature : float
    filters : dict
    """

    def __init__(
        self, target: Any, draft: Any, replaced: bool, temperature: float,
        draft_temperature: float, filters: dict[str, Any],
    ) -> None:  # fmt: skip
        for model in (target, draft):
            if not hasattr(model, "tree_tensor"):
                raise InvalidInput(
                    f"{type(model).__name__} has no tensors to decide on: give a TreeModel, or "
                    "leave on_device out"
                )
        self._target, self._draft, self._replaced = target, draft, replaced
        self._temperature, self._draft_temperature = temperature, draft_temperature
        self._filters = filters

    def make(self, law: Any, num_drafts: int) -> Any:
        return BinnedDrafts(law, num_drafts, self._replaced)

    def drafts(self, text: Sequence[int], continuations: Sequence[Tokens]) -> Any:
        from mdsd_opt.decoding.device_laws.weights import integer_weights

        logits = self._draft.tree_tensor(text, continuations)
        return integer_weights(logits, self._draft_temperature, **self._filters)

    def weigh(self, text: Sequence[int], nodes: Sequence[Node]) -> None:
        from mdsd_opt.decoding.device_laws.promises import token_ids
        from mdsd_opt.decoding.device_laws.tables import bin_tables, undrafted_table
        from mdsd_opt.decoding.device_laws.transfers import on_device
        from mdsd_opt.decoding.device_laws.weights import integer_weights

        logits = self._target.tree_tensor(text, [node.tokens for node in nodes])
        inner = [n for n, node in enumerate(nodes) if node.drafts is not None]
        rows = logits.index_select(0, on_device(inner, logits.device))
        targets = integer_weights(rows, self._temperature, **self._filters)
        drafts: list[Any] = [nodes[n].drafts for n in inner]
        counts = [made.num_drafts for made in drafts]
        padded = [[*nodes[n].draws, *[0] * (max(counts) - nodes[n].draws.size)] for n in inner]
        tables = bin_tables(
            targets,
            [made.weights.to(targets.device) for made in drafts],
            token_ids(padded, targets.device),
            counts,
            drafts[0].replaced,
        )

        def later(row: Any) -> Any:  # one end of the tree at most is a leaf
            return lambda: integer_weights(row, self._temperature, **self._filters)

        tabled = dict(zip(inner, tables, strict=True))
        for n, node in enumerate(nodes):
            table = tabled[n] if n in tabled else undrafted_table(later(logits[n]))
            law: Any = BinnedLaw.target_of(table)
            node.target = law
            if node.draws.dtype == object:
                for promised, token in zip(node.draws, table.draws, strict=True):
                    promised.keep(token)
        if nodes[0].draws.dtype == object:
            settle(nodes[0])


def step_laws(
    target: Any, draft: Any, make: SchemeMaker, rule: TreeRule, on_device: bool,
    temperature: float, draft_temperature: float, filters: dict[str, Any],
) -> StepLaws:  # fmt: skip
    """The laws on the host or on the device.

    Raises
    ------
    InvalidInput
        Decisions on the device of another scheme or rule than they exist for.
    """
    if not on_device:
        return HostLaws(target, draft, make, temperature, draft_temperature, filters)
    replaced = require_device_rule(make, rule)
    return DeviceLaws(target, draft, replaced, temperature, draft_temperature, filters)


def require_device_rule(make: SchemeMaker, rule: TreeRule) -> bool:
    """Whether the drafts are drawn with replacement, if device and rule decide for them.

    Raises
    ------
    InvalidInput
        They do not, and why.
    """
    composed = composition_of(make)
    if composed is None or not composed.is_random:
        raise InvalidInput(
            "decisions on the device are for drafts with_replacement and without_replacement; "
            "others are for the host: leave on_device out"
        )
    if rule.host_only:
        raise InvalidInput(
            f"rule {rule.name!r} decides on the host only: {rule.host_only}; on the device decide "
            + ", ".join(DEVICE_RULES)
        )
    return composed.is_replaced
