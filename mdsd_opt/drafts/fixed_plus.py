"""A fixed set of tokens that is always drafted, beside any scheme with a prefix order."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts.base import DraftScheme, ExactSupportLaw, PrefixDraftScheme
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.errors import InvalidInput, UnsupportedScheme


class FixedPlusDrafts(PrefixDraftScheme):
    r"""Tokens D drafted for certain, then the drafts of another scheme (which may hit D again).

    :math:`Q(H) = [D \subseteq H]\,Q_S(H)`, and :math:`\alpha^* = p(D) + \alpha^*_S(p \text{ with }
    p_D := 0)`.

    Parameters
    ----------
    tokens : sequence of int
        D, distinct token ids; they come first in the draw order.
    drafts : PrefixDraftScheme
        S, with weights on every token it drafts.
    """

    scheme: ClassVar[str] = "fixed_plus"

    def __init__(self, tokens: Sequence[int], drafts: DraftScheme) -> None:
        if not isinstance(drafts, PrefixDraftScheme) or drafts.always_drafted.size:
            raise UnsupportedScheme(
                "a fixed set combines with drafts that have a prefix order and no always-drafted "
                f"tokens of their own, not with {drafts!r}"
            )
        fixed = np.array(tokens, dtype=np.int64)
        self.vocab_size = drafts.vocab_size
        if fixed.ndim != 1 or np.unique(fixed).size != fixed.size:
            raise InvalidInput(f"the fixed tokens {tokens} are not distinct")
        if fixed.size and not (fixed.min() >= 0 and fixed.max() < self.vocab_size):
            raise InvalidInput(f"the fixed tokens {tokens} are not all in 0..{self.vocab_size - 1}")
        self._fixed = fixed
        self.drafts = drafts
        self.num_drafts = fixed.size + drafts.num_drafts

    @property
    def always_drafted(self) -> NDArray[np.int64]:
        return self._fixed

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

    def count_supports(self) -> tuple[int, int]:
        supports, arcs = self.drafts.count_supports()
        return supports, arcs + supports * self._fixed.size

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


def peeled(drafts: DraftScheme) -> tuple[NDArray[np.int64], DraftScheme]:
    """The fixed tokens of a scheme, if it is one of this kind, and the scheme beside them."""
    fixed = np.empty(0, dtype=np.int64)
    while isinstance(drafts, FixedPlusDrafts):
        fixed = np.union1d(fixed, drafts.always_drafted)
        drafts = drafts.drafts
    return fixed, drafts
