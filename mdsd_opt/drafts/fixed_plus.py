"""A fixed set of tokens that is always drafted, beside any other scheme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import (
    DraftScheme,
    Entry,
    EntryReader,
    ExactSupportLaw,
    PrefixDraftScheme,
)
from mdsd_opt.drafts.draw_masses import DrawMasses, all_hold
from mdsd_opt.drafts.set_law import DraftSetLaw
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.errors import InvalidInput


class FixedPlusDrafts(DraftScheme):
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
    def always_drafted(self) -> NDArray[np.int64]:
        """D, and what joined it."""
        return self._fixed

    @property
    def beside_fixed(self) -> DraftScheme:
        return self.drafts

    def random_places(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
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

    def _containment(self, subset: NDArray[np.bool_]) -> float:
        return self.drafts.containment(subset) if subset[self._fixed].all() else 0.0

    def exact_containment(self, subset: Any) -> Fraction:
        mask = self._as_subset(subset)
        return self.drafts.exact_containment(mask) if mask[self._fixed].all() else Fraction(0)

    def prefix_containment(self, order: NDArray[np.int64]) -> NDArray[np.float64]:
        held = np.concatenate([[0], np.cumsum(np.isin(order, self._fixed))])
        return np.where(held == self._fixed.size, self.drafts.prefix_containment(order), 0.0)

    def exact_prefix_containment(self, order: Sequence[int]) -> list[Fraction]:
        missing = set(self._fixed.tolist())
        inner = self.drafts.exact_prefix_containment(order)
        result = [Fraction(0) if missing else inner[0]]
        for i, contained in zip(order, inner[1:], strict=True):
            missing.discard(i)
            result.append(Fraction(0) if missing else contained)
        return result

    def _sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        fixed = np.broadcast_to(self._fixed, (size, self._fixed.size))
        return np.concatenate([fixed, self.drafts.sample(rng, size)], axis=1)

    def next_law(self, earlier: NDArray[np.int64]) -> NDArray[np.float64]:
        if earlier.size >= self._fixed.size:
            return self.drafts.next_law(earlier[self._fixed.size :])
        law = np.zeros(self.vocab_size)
        law[self._fixed[earlier.size]] = 1.0
        return law

    def is_possible(self, tokens: NDArray[np.int64]) -> bool:
        held, drawn = np.split(tokens, [self._fixed.size])
        return np.array_equal(held, self._fixed) and self.drafts.is_possible(drawn)

    def draw_masses(self, tuples: NDArray[np.int64]) -> DrawMasses:
        held, drawn = np.split(tuples, [self._fixed.size], axis=1)
        return self.drafts.draw_masses(drawn).where(all_hold(held == self._fixed))

    def drafted_mass(self, p: NDArray[np.float64]) -> float:
        others = p.copy()
        others[self._fixed] = 0.0
        return float(p[self._fixed].sum()) + self.drafts.drafted_mass(others)

    def propensity(self) -> NDArray[np.float64]:
        propensity = self.drafts.propensity().copy()
        propensity[self._fixed] = 1.0
        return propensity

    def count_supports(self) -> tuple[int, int]:
        supports, arcs = self.drafts.count_supports()
        return supports, arcs + supports * self._fixed.size

    def require_listable(self) -> None:
        self.drafts.require_listable()

    def support_law(self) -> SupportLaw:
        law = self.drafts.support_law()
        merged: dict[tuple[int, ...], float] = {}
        for members, mass in zip(law.sets(), law.mass.tolist(), strict=True):
            union = tuple(sorted({*members, *self._fixed.tolist()}))
            merged[union] = merged.get(union, 0.0) + mass
        return SupportLaw.from_sets(self.vocab_size, merged)

    def exact_support_law(self) -> ExactSupportLaw:
        merged: ExactSupportLaw = {}
        for members, mass in self.drafts.exact_support_law().items():
            union = tuple(sorted({*members, *self._fixed.tolist()}))
            merged[union] = merged.get(union, Fraction(0)) + mass
        return merged

    def count_tuples(self) -> int:
        return self.drafts.count_tuples()

    def tuple_law(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        tuples, mass = self.drafts.tuple_law()
        fixed = np.broadcast_to(self._fixed.astype(np.int32), (len(tuples), self._fixed.size))
        return np.concatenate([fixed, tuples], axis=1), mass

    def exact_tuple_law(self) -> dict[tuple[int, ...], Fraction]:
        fixed = tuple(self._fixed.tolist())
        return {(*fixed, *key): mass for key, mass in self.drafts.exact_tuple_law().items()}

    def __repr__(self) -> str:
        return f"FixedPlusDrafts(vocab_size={self.vocab_size}, num_drafts={self.num_drafts})"


class SortedFixedPlusDrafts(FixedPlusDrafts, PrefixDraftScheme):
    """A fixed set beside drafts that have a prefix order; D comes first in it."""

    drafts: PrefixDraftScheme

    @cached_property
    def weights(self) -> NDArray[np.float64]:
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


def split_fixed(drafts: DraftScheme) -> tuple[NDArray[np.int64], DraftScheme]:
    """The tokens that are always drafted, and the scheme beside them, which may draft nothing."""
    beside = drafts.beside_fixed
    if beside is None:
        beside = DraftSetLaw(drafts.vocab_size, {(): 1})
    return drafts.always_drafted, beside
