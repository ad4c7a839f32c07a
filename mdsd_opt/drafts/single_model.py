"""Common parts of schemes with a single draft model, and declarations by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from mdsd_opt.base.array_types import Floats, Numbers
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import (
    DraftScheme,
    Entry,
    EntryReader,
    PrefixDraftScheme,
    checked_num_drafts,
)
from mdsd_opt.prefix_search import BatchRates, RandomDraws


@dataclass(frozen=True, slots=True)
class Composition:
    """Composition of K drafts from one q: its likeliest tokens for certain, then draws.

    Attributes
    ----------
    num_random : int or None
        Number of draws, from q without the likeliest tokens, which make up the others of the K
        drafts (ties towards the lowest id); None if all K are drawn.
    is_replaced : bool
        Whether one token can be drawn twice.
    """

    num_random: int | None = None
    is_replaced: bool = False

    @property
    def is_random(self) -> bool:
        """Whether all drafts are drawn at random."""
        return self.num_random is None

    def num_fixed(self, num_drafts: int) -> int:
        """Number of drafts, among K, that are the likeliest tokens."""
        return 0 if self.num_random is None else num_drafts - self.num_random


class SingleModelDrafts(DraftScheme):
    """Scheme that one draft distribution q and K describe.

    Attributes
    ----------
    composition : Composition or None
        Composition of the drafts from q; None if it cannot describe them.
    optimal_kernels : BatchRates or None
        Kernels of the optimal verifier for batches; without it positions are taken one by one.
    model : Distribution
    """

    entries: ClassVar[tuple[str, ...]] = ("q", "num_drafts")
    composition: ClassVar[Composition | None] = None
    optimal_kernels: ClassVar[BatchRates | None] = None
    model: Distribution

    def __init__(self, q: Any, num_drafts: int) -> None:
        self.model = Distribution.of(q, "q")
        self.num_drafts = checked_num_drafts(num_drafts)
        self.vocab_size = self.model.vocab_size

    @classmethod
    def draws_independently(cls) -> bool:
        """Whether all drafts are independent draws from q, as far as the composition says."""
        composition = cls.composition
        return composition is not None and composition.is_random and composition.is_replaced

    @classmethod
    def from_entry(cls, entry: EntryReader) -> Self:
        return cls(entry["q"].law(), entry["num_drafts"].integer())

    @cached_property
    def q(self) -> Numbers:
        return self.model.numbers(self.exact)

    def in_fractions(self) -> Self:
        return self._with_fractions()


class OneDraft(SingleModelDrafts, PrefixDraftScheme):
    """Scheme of K drafts from one draft distribution q, whose ratios p/q order the tokens."""

    @property
    def models(self) -> tuple[Distribution, ...]:
        return (self.model,)

    @cached_property
    def random_draws(self) -> RandomDraws | None:
        composition = self.composition
        if composition is None or not composition.is_random:
            return None
        return RandomDraws(self.q, self.num_drafts, composition.is_replaced)

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        return {"scheme": self.scheme, "q": written(self.model), "num_drafts": self.num_drafts}

    def propensity(self) -> Floats:
        return self.q

    @property
    def weights(self) -> Numbers:
        return self.q
