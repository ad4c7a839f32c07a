"""A fixed set of tokens that is always drafted, beside any other scheme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import DraftScheme, Entry, EntryReader, PrefixDraftScheme
from mdsd_opt.drafts.fixed_set import HoldsFixed
from mdsd_opt.drafts.set_law import DraftSetLaw
from mdsd_opt.errors import InvalidInput


class FixedPlusDrafts(HoldsFixed):
    r"""Tokens D drafted for certain, then the drafts of another scheme (which may hit D again).

    :math:`Q(H) = [D \subseteq H]\,Q_S(H)`, and :math:`\alpha^* = p(D) + \alpha^*_S(p \text{ with }
    p_D := 0)`. If S has a prefix order, so has this scheme: the object made is then a
    `PrefixDraftScheme`. Fixed tokens of S (of greedy drafts, or of another fixed set) join D.

    Parameters
    ----------
    tokens : sequence of int
        D, distinct token ids; they come first in the draw order.
    drafts : DraftScheme
        S.
    """

    scheme: ClassVar[str] = "fixed_plus"
    title: ClassVar[str] = "fixed tokens and others"
    entries: ClassVar[tuple[str, ...]] = ("tokens", "drafts")

    def __new__(cls, tokens: Any = (), drafts: Any = None) -> FixedPlusDrafts:
        inner = _joined((), drafts)[1]
        sorts = isinstance(inner, PrefixDraftScheme) and not inner.always_drafted.size
        kind = SortedFixedPlusDrafts if cls is FixedPlusDrafts and sorts else cls
        return object.__new__(kind)

    def __init__(self, tokens: Sequence[int], drafts: DraftScheme) -> None:
        if not isinstance(drafts, DraftScheme):
            raise InvalidInput(
                f"drafts is a {type(drafts).__name__}: give a draft scheme such as "
                "WithReplacement(q, num_drafts)"
            )
        fixed = np.array(tokens, dtype=np.int64)
        self.vocab_size = drafts.vocab_size
        if fixed.ndim != 1 or np.unique(fixed).size != fixed.size:
            raise InvalidInput(f"the fixed tokens {tokens} are not distinct")
        if fixed.size and not (fixed.min() >= 0 and fixed.max() < self.vocab_size):
            raise InvalidInput(f"the fixed tokens {tokens} are not all in 0..{self.vocab_size - 1}")
        listed, self.drafts = _joined(fixed.tolist(), drafts)
        self._fixed = np.array(listed, dtype=np.int64)
        self.num_drafts = self._fixed.size + self.drafts.num_drafts

    @property
    def always_drafted(self) -> Integers:
        """D, and what joined it."""
        return self._fixed

    @property
    def beside_fixed(self) -> DraftScheme:
        return self.drafts

    def random_places(self, tokens: Integers) -> Integers:
        """All behind D: a draft may hit D again."""
        return self._fixed.size + np.flatnonzero(tokens[self._fixed.size :] >= 0)

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        drafts = self.drafts.to_entry(written)
        return {"scheme": self.scheme, "tokens": self._fixed.tolist(), "drafts": drafts}

    @classmethod
    def from_entry(cls, entry: EntryReader) -> FixedPlusDrafts:
        return cls(entry.tokens("tokens"), entry.scheme("drafts"))

    def miniature(
        self, law: Callable[[Distribution, int], Any], vocab_size: int, num_drafts: int
    ) -> FixedPlusDrafts:
        return FixedPlusDrafts([0], self.drafts.miniature(law, vocab_size, num_drafts))

    def rechecked(self) -> DraftScheme:
        drafts = self.drafts.rechecked()
        if drafts is self.drafts:
            return self
        result = copy(self)
        result.drafts = drafts
        return result

    def is_possible(self, tokens: Integers) -> bool:
        held, drawn = np.split(tokens, [self._fixed.size])
        return np.array_equal(held, self._fixed) and self.drafts.is_possible(drawn)

    def _draws(self, tokens: Integers) -> bool:
        held, drawn = np.split(tokens, [self._fixed.size])
        return np.array_equal(held, self._fixed) and self.drafts._draws(drawn)

    def as_listed(self, tuples: Integers) -> Integers:
        held, drawn = np.split(tuples, [self._fixed.size], axis=1)
        return np.concatenate([held, self.drafts.as_listed(drawn)], axis=1)

    def propensity(self) -> Floats:
        propensity = self.drafts.propensity().copy()
        propensity[self._fixed] = 1.0
        return propensity

    def count_tuples(self) -> int:
        return self.drafts.count_tuples()

    def __repr__(self) -> str:
        return f"FixedPlusDrafts(vocab_size={self.vocab_size}, num_drafts={self.num_drafts})"


class SortedFixedPlusDrafts(FixedPlusDrafts, PrefixDraftScheme):
    """A fixed set beside drafts that have a prefix order; D comes first in it."""

    drafts: PrefixDraftScheme

    @cached_property
    def weights(self) -> Floats:
        result = self.drafts.weights.copy()
        result[self._fixed] = 0.0
        return result

    @cached_property
    def exact_weights(self) -> tuple[Fraction, ...]:
        fixed = set(self._fixed.tolist())
        return tuple(
            Fraction(0) if i in fixed else x for i, x in enumerate(self.drafts.exact_weights)
        )


def _joined(tokens: Sequence[int], drafts: Any) -> tuple[list[int], Any]:
    """The fixed tokens with those that the drafts begin with, and what the drafts add to them."""
    listed = list(tokens)
    while isinstance(drafts, DraftScheme) and drafts.begins_with_fixed:
        fixed, drafts = split_fixed(drafts)
        listed += [i for i in fixed.tolist() if i not in listed]
    return listed, drafts


def split_fixed(drafts: DraftScheme) -> tuple[Integers, DraftScheme]:
    """The tokens that are always drafted, and the scheme beside them, which may draft nothing."""
    beside = drafts.beside_fixed
    if beside is None:
        beside = DraftSetLaw(drafts.vocab_size, {(): 1})
    return drafts.always_drafted, beside
