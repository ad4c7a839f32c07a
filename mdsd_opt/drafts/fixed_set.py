"""Schemes that always draft the likeliest tokens: greedy [Hu25] and top-K."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import ExactSupportLaw, inverse_cdf
from mdsd_opt.drafts.draw_masses import DrawMasses, all_hold, masses_in
from mdsd_opt.drafts.single_model import Composition, OneDraft, OptimalKernels
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.with_replacement import WithReplacement


class FixedSetDrafts(OneDraft):
    """A set T that is always drafted, then perhaps one token drawn from q outside T."""

    def _likeliest(self, count: int) -> NDArray[np.int64]:
        """The `count` likeliest tokens of positive probability, ties towards the lowest id."""
        positive = int((self.q > 0).sum())
        count = min(count, positive)
        least = np.partition(self.q, -count)[-count]
        candidates = np.flatnonzero(self.q >= least)
        return candidates[np.argsort(-self.q[candidates], kind="stable")[:count]]

    @cached_property
    def last_draw(self) -> NDArray[np.float64]:
        """q', the law of the token drawn outside T, shape (V,); all zero if there is none."""
        return np.zeros(self.vocab_size)

    @cached_property
    def exact_last_draw(self) -> tuple[Fraction, ...]:
        return (Fraction(0),) * self.vocab_size

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.last_draw

    @property
    def exact_weights(self) -> tuple[Fraction, ...]:
        return self.exact_last_draw

    @property
    def draws_one(self) -> bool:
        """Whether a token is drawn beside T."""
        return bool(self.last_draw.any())

    @cached_property
    def beside_fixed(self) -> WithReplacement | None:
        """One draw from q'."""
        if not self.draws_one:
            return None
        fixed = set(self.always_drafted.tolist())
        given = self.model.given
        if isinstance(given, tuple):
            rest = tuple(Fraction(0) if i in fixed else x for i, x in enumerate(given))
            return WithReplacement(Distribution(self.last_draw, rest), 1)
        outside = given.copy()
        outside[self.always_drafted] = 0.0
        return WithReplacement(Distribution(self.last_draw, outside), 1)

    def _containment(self, subset: NDArray[np.bool_]) -> float:
        if not subset[self.always_drafted].all():
            return 0.0
        return min(float(self.last_draw[subset].sum()), 1.0) if self.draws_one else 1.0

    def exact_containment(self, subset: Any) -> Fraction:
        inside = self._as_subset(subset)
        if not inside[self.always_drafted].all():
            return Fraction(0)
        if not self.draws_one:
            return Fraction(1)
        pairs = zip(self.exact_last_draw, inside, strict=True)
        return sum((x for x, i in pairs if i), Fraction(0))

    def prefix_containment(self, order: NDArray[np.int64]) -> NDArray[np.float64]:
        held = np.concatenate([[0], np.cumsum(np.isin(order, self.always_drafted))])
        inside = np.concatenate([[0.0], np.cumsum(self.last_draw[order])])
        inside = np.minimum(inside, 1.0) if self.draws_one else np.ones(inside.size)
        return np.where(held == self.always_drafted.size, inside, 0.0)

    def exact_prefix_containment(self, order: Sequence[int]) -> list[Fraction]:
        missing = set(self.always_drafted.tolist())
        inside = Fraction(0) if self.draws_one else Fraction(1)
        result = [Fraction(0) if missing else inside]
        for i in order:
            missing.discard(i)
            inside += self.exact_last_draw[i]
            result.append(Fraction(0) if missing else inside)
        return result

    def _sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        result = np.full((size, self.num_drafts), -1, dtype=np.int64)
        fixed = self.always_drafted.size
        result[:, :fixed] = self.always_drafted
        if self.draws_one:
            result[:, fixed] = inverse_cdf(self.last_draw, rng, (size,))
        return result

    def next_law(self, earlier: NDArray[np.int64]) -> NDArray[np.float64]:
        fixed = self.always_drafted
        if earlier.size < fixed.size:
            law = np.zeros(self.vocab_size)
            law[fixed[earlier.size]] = 1.0
            return law
        return self.last_draw if earlier.size == fixed.size else np.zeros(self.vocab_size)

    def is_possible(self, tokens: NDArray[np.int64]) -> bool:
        fixed, drawn = self.always_drafted, tokens[tokens >= 0]
        others = drawn[~np.isin(drawn, fixed)]
        if drawn.size - others.size != fixed.size or not np.isin(fixed, drawn).all():
            return False
        return others.size == int(self.draws_one) and bool((self.last_draw[others] > 0).all())

    def draw_masses(self, tuples: NDArray[np.int64]) -> DrawMasses:
        fixed = self.always_drafted.size
        end = fixed + int(self.draws_one)
        found = DrawMasses.of_choices(*masses_in(self.last_draw, tuples[:, fixed:end]))
        found = found.where(all_hold(tuples[:, :fixed] == self.always_drafted))
        return found.where(all_hold(tuples[:, end:] == -1))

    def independent_places(self) -> list[tuple[list[int], NDArray[np.float64]]]:
        return [([self.always_drafted.size], self.last_draw)] if self.draws_one else []

    def drafted_mass(self, p: NDArray[np.float64]) -> float:
        return float(p[self.always_drafted].sum() + p @ self.last_draw)

    def count_supports(self) -> tuple[int, int]:
        fixed = self.always_drafted.size
        free = int((self.last_draw > 0).sum())
        return (free, free * (fixed + 1)) if free else (1, fixed)

    def support_law(self) -> SupportLaw:
        fixed = self.always_drafted
        if not self.draws_one:
            return SupportLaw.from_groups(self.vocab_size, [(np.sort(fixed)[None], np.ones(1))])
        last = np.flatnonzero(self.last_draw > 0)
        sets = np.column_stack([np.broadcast_to(fixed, (last.size, fixed.size)), last])
        return SupportLaw.from_groups(
            self.vocab_size, [(np.sort(sets, axis=1), self.last_draw[last])]
        )

    def exact_support_law(self) -> ExactSupportLaw:
        fixed = self.always_drafted.tolist()
        if not self.draws_one:
            return {tuple(sorted(fixed)): Fraction(1)}
        return {tuple(sorted((*fixed, i))): x for i, x in enumerate(self.exact_last_draw) if x > 0}

    def tuple_law(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        last = np.flatnonzero(self.last_draw > 0) if self.draws_one else np.array([-1])
        tuples = np.full((last.size, self.num_drafts), -1, dtype=np.int32)
        fixed = self.always_drafted.size
        tuples[:, :fixed] = self.always_drafted
        if self.draws_one:
            tuples[:, fixed] = last
        return tuples, self.last_draw[last] if self.draws_one else np.ones(1)

    def exact_tuple_law(self) -> dict[tuple[int, ...], Fraction]:
        fixed = tuple(self.always_drafted.tolist())
        padding = (-1,) * (self.num_drafts - len(fixed) - int(self.draws_one))
        if not self.draws_one:
            return {fixed + padding: Fraction(1)}
        return {(*fixed, i, *padding): x for i, x in enumerate(self.exact_last_draw) if x > 0}


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
    optimal_kernels: ClassVar[OptimalKernels] = OptimalKernels("top_k_rates", "top_k")

    @cached_property
    def always_drafted(self) -> NDArray[np.int64]:
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
    optimal_kernels: ClassVar[OptimalKernels] = OptimalKernels("greedy_rates", "greedy")

    @cached_property
    def always_drafted(self) -> NDArray[np.int64]:
        return self._likeliest(self.num_drafts - 1)

    @cached_property
    def last_draw(self) -> NDArray[np.float64]:
        rest = self.q.copy()
        rest[self.always_drafted] = 0.0
        total = rest.sum()  # the mass outside T as a sum, not as 1 - q(T)
        return rest / total if total > 0 else rest

    @cached_property
    def exact_last_draw(self) -> tuple[Fraction, ...]:
        fixed = set(self.always_drafted.tolist())
        rest = [Fraction(0) if i in fixed else x for i, x in enumerate(self.exact_q)]
        total = sum(rest, Fraction(0))
        return tuple(x / total for x in rest) if total else tuple(rest)
