"""Schemes that always draft some tokens: greedy [Hu25], top-K, and a set beside any scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.base.checked import checked_integer, of_kind
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.scheme import (
    Composition,
    DraftScheme,
    Entry,
    EntryReader,
    OneDraft,
    PrefixDraftScheme,
    checked_draft_scheme,
)
from mdsd_opt.drafts.set_law import DraftSetLaw
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, all_hold
from mdsd_opt.drafts.with_replacement import WithReplacement
from mdsd_opt.errors import InvalidInput
from mdsd_opt.prefix_search import BatchRates, greedy_rates, top_k_rates


class HoldsFixed(DraftScheme):
    """Tokens T for certain, first in the draw order, then the drafts of `beside_fixed`, if any."""

    def _containment(self, subset: Flags) -> Any:
        fixed, beside = split_fixed(self)
        return beside.containment(subset) if subset[fixed].all() else 0

    def prefix_containment(self, order: Integers) -> Numbers:
        fixed, beside = self.always_drafted, self.beside_fixed
        held = np.concatenate([[0], np.cumsum(np.isin(order, fixed))])
        nothing = self.zeros(held.size)
        inside = nothing + 1 if beside is None else beside.prefix_containment(order)
        return np.where(held == fixed.size, inside, nothing)

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        fixed, beside = self.always_drafted, self.beside_fixed
        result = np.full((size, self.num_drafts), -1, dtype=np.int64)
        result[:, : fixed.size] = fixed
        if beside is not None:
            result[:, fixed.size : fixed.size + beside.num_drafts] = beside.sample(rng, size)
        return result

    def next_law(self, earlier: Integers) -> Floats:
        fixed, beside = self.always_drafted, self.beside_fixed
        if beside is not None and earlier.size >= fixed.size:
            return beside.next_law(earlier[fixed.size :])
        law = np.zeros(self.vocab_size)
        if earlier.size < fixed.size:
            law[fixed[earlier.size]] = 1.0
        return law

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        fixed, beside = self.always_drafted, self.beside_fixed
        held, drawn = np.split(tuples, [fixed.size], axis=1)
        nothing = np.empty((len(tuples), 0))
        intervals = (
            UniformIntervals(nothing, nothing, all_hold(drawn == -1))
            if beside is None
            else beside.uniform_intervals(drawn)
        )
        return intervals.where(all_hold(held == fixed))

    def drafted_mass(self, p: Floats) -> float:
        (fixed, beside), others = split_fixed(self), p.copy()
        others[fixed] = 0.0
        return float(p[fixed].sum()) + beside.drafted_mass(others)

    def count_supports(self) -> tuple[int, int]:
        fixed, beside = split_fixed(self)
        supports, arcs = beside.count_supports()
        return supports, arcs + supports * fixed.size

    def require_listable(self) -> None:
        split_fixed(self)[1].require_listable()

    def support_law(self) -> SupportLaw:
        merged: dict[tuple[int, ...], Any] = {}
        for members, mass in split_fixed(self)[1].support_law().masses().items():
            union = tuple(sorted({*members, *self.always_drafted.tolist()}))
            merged[union] = merged.get(union, 0) + mass
        return SupportLaw.from_sets(self.vocab_size, merged)

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        fixed, beside = self.always_drafted, self.beside_fixed
        nothing = np.empty((1, 0), np.int32), self.zeros(1) + 1
        drawn, mass = nothing if beside is None else beside.tuple_law()
        tuples = np.full((len(drawn), self.num_drafts), -1, dtype=np.int32)
        tuples[:, : fixed.size] = fixed
        tuples[:, fixed.size : fixed.size + drawn.shape[1]] = drawn
        return tuples, mass


class FixedSetDrafts(HoldsFixed, OneDraft):
    """Set T that is always drafted, then perhaps one token drawn from q outside T."""

    def _likeliest(self, count: int) -> Integers:
        """Likeliest `count` tokens of positive probability, ties towards the lowest id."""
        q = self.model.values  # also where the laws are in Fractions
        positive = q[q > 0]  # many zeros are many ties, over which selection is slow
        count = min(count, positive.size)
        least = np.partition(positive, -count)[-count]
        candidates = np.flatnonzero(q >= least)
        return candidates[np.argsort(-q[candidates], kind="stable")[:count]]

    @property
    def last_draw(self) -> Numbers:
        """Law q' of the token drawn outside T, shape (V,); all zero if there is none."""
        beside = self.beside_fixed
        return self.zeros(self.vocab_size) if beside is None else beside.q

    @property
    def weights(self) -> Numbers:
        return self.last_draw

    @cached_property
    def beside_fixed(self) -> WithReplacement | None:
        """One draw from q', or None."""
        return None

    def is_possible(self, tokens: Integers) -> bool:
        """Whether the tuple is possible, in any order."""
        fixed, drawn = self.always_drafted, tokens[tokens >= 0]
        others = drawn[~np.isin(drawn, fixed)]
        if drawn.size - others.size != fixed.size or not np.isin(fixed, drawn).all():
            return False
        is_one = others.size == int(self.beside_fixed is not None)
        return is_one and bool((self.last_draw[others] > 0).all())

    def _draws(self, tokens: Integers) -> bool:
        return bool(self.uniform_intervals(tokens[None]).possible[0])

    def independent_places(self) -> list[tuple[list[int], Floats]]:
        one = self.beside_fixed is not None
        return [([self.always_drafted.size], self.last_draw)] if one else []

    def support_law(self) -> SupportLaw:
        """Law of the draft set, without a loop: there may be as many sets as tokens."""
        if self.beside_fixed is None:
            return super().support_law()
        fixed, last = self.always_drafted, np.flatnonzero(self.last_draw > 0)
        sets = np.column_stack([np.broadcast_to(fixed, (last.size, fixed.size)), last])
        group = np.sort(sets, axis=1), self.last_draw[last]
        return SupportLaw.from_groups(self.vocab_size, [group])

    def tuple_law(self) -> tuple[NDArray[np.int32], Floats]:
        tuples, mass = super().tuple_law()
        return tuples[mass > 0], mass[mass > 0]


class TopKDrafts(FixedSetDrafts):
    r"""The K likeliest tokens of q, T, without any randomness: :math:`Q(H) = [T \subseteq H]`.

    Ties break towards the lowest token id; tokens with q = 0 are never drafted.

    Parameters
    ----------
    q : array_like, shape (V,)
        The draft distribution.
    num_drafts : int
        K.
    """

    scheme: ClassVar[str] = "top_k"
    title: ClassVar[str] = "top-K"
    composition: ClassVar[Composition] = Composition(num_random=0)
    optimal_kernels: ClassVar[BatchRates] = BatchRates(kernel=top_k_rates, device="top_k")

    @cached_property
    def always_drafted(self) -> Integers:
        return self._likeliest(self.num_drafts)


class GreedyDrafts(FixedSetDrafts):
    r"""The K-1 likeliest tokens T of q, plus one drawn from the rest [Hu25].

    The last draft follows :math:`q' = q / (1 - q(T))` outside T, so :math:`Q(H) = q'(H \setminus
    T)` if T is in H, else 0. Ties break towards the lowest token id; with no mass outside T, only
    T is drafted. An optimal subset is a prefix of: T first, then the ratio p/q' ascending.

    Parameters
    ----------
    q : array_like, shape (V,)
        The draft distribution.
    num_drafts : int
        K.
    """

    scheme: ClassVar[str] = "greedy"
    title: ClassVar[str] = "greedy"
    composition: ClassVar[Composition] = Composition(num_random=1)
    optimal_kernels: ClassVar[BatchRates] = BatchRates(kernel=greedy_rates, device="greedy")

    @cached_property
    def always_drafted(self) -> Integers:
        return self._likeliest(self.num_drafts - 1)

    @cached_property
    def beside_fixed(self) -> WithReplacement | None:
        rest = self.model.without(self.always_drafted)
        return None if rest is None else WithReplacement(rest, 1).law(self.exact)


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
        self.vocab_size = checked_draft_scheme(drafts).vocab_size
        given = of_kind(tokens, Iterable, "tokens", "ids in a list")
        fixed = [checked_integer(token, "a fixed token of tokens", 0) for token in given]
        if len({*fixed}) < len(fixed):
            raise InvalidInput(f"the fixed tokens {fixed} are not distinct")
        if max(fixed, default=0) >= self.vocab_size:
            raise InvalidInput(f"the fixed tokens {fixed} are not all in 0..{self.vocab_size - 1}")
        listed, self.drafts = _joined(fixed, drafts)
        self._fixed = np.array(listed, dtype=np.int64)
        self.num_drafts = self._fixed.size + self.drafts.num_drafts

    @property
    def always_drafted(self) -> Integers:
        """Tokens D, and those that joined them."""
        return self._fixed

    @property
    def beside_fixed(self) -> DraftScheme:
        return self.drafts

    def in_fractions(self) -> FixedPlusDrafts:
        return self._with_fractions(drafts=self.drafts.law(exact=True))

    def random_places(self, tokens: Integers) -> Integers:
        """Indices of the drafts after the fixed set, as a draft may hit D again."""
        return self._fixed.size + np.flatnonzero(tokens[self._fixed.size :] >= 0)

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        drafts = self.drafts.to_entry(written)
        return {"scheme": self.scheme, "tokens": self._fixed.tolist(), "drafts": drafts}

    @classmethod
    def from_entry(cls, entry: EntryReader) -> FixedPlusDrafts:
        return cls(entry["tokens"].tokens(), entry["drafts"].scheme())

    def with_finer_quadrature(self) -> DraftScheme:
        drafts = self.drafts.with_finer_quadrature()
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
    """Fixed set beside drafts that have a prefix order; D comes first in it."""

    drafts: PrefixDraftScheme

    @cached_property
    def weights(self) -> Numbers:
        result = self.drafts.weights.copy()
        result[self._fixed] = 0
        return result


def _joined(tokens: Sequence[int], drafts: Any) -> tuple[list[int], Any]:
    """Fixed tokens with those that the drafts begin with, and the remaining drafts."""
    listed = list(tokens)
    while isinstance(drafts, DraftScheme) and drafts.begins_with_fixed:
        fixed, drafts = split_fixed(drafts)
        listed += [i for i in fixed.tolist() if i not in listed]
    return listed, drafts


def split_fixed(drafts: DraftScheme) -> tuple[Integers, DraftScheme]:
    """Tokens that are always drafted, and the scheme beside them, which may draft nothing."""
    beside = drafts.beside_fixed
    if beside is None:
        beside = DraftSetLaw(drafts.vocab_size, {(): 1}).law(drafts.exact)
    return drafts.always_drafted, beside
