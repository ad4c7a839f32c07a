"""K independent draws from one draft model."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Flags, Floats, Integers
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import ExactSupportLaw, inverse_cdf
from mdsd_opt.drafts.counting import (
    COUNTLESS,
    MAX_EXACT_TERMS,
    MAX_PASSES,
    MAX_TERMS,
    count_choices,
    count_subsets,
    require_listable,
    require_short_powers,
)
from mdsd_opt.drafts.independent import ProductDrafts
from mdsd_opt.drafts.single_model import Composition, OneDraft
from mdsd_opt.drafts.support_law import SupportLaw, compositions, multinomial, subsets_of_size
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, masses_in
from mdsd_opt.prefix_search import BatchRates

#: Most drafts for which the masses of draft sets, sums of multinomial terms, stay within float64.
_MAX_LISTED_DRAFTS = 1000

#: Most drafts for which slopes are summed term by term.
_MAX_SUMMED_DRAFTS = 64


class WithReplacement(ProductDrafts, OneDraft):
    r"""K i.i.d. draws from q: :math:`\Pr(x) = \prod_k q(x_k)`, :math:`Q(H) = q(H)^K`.

    Parameters
    ----------
    q : array_like, shape (V,)
        The draft distribution.
    num_drafts : int
        K.

    Notes
    -----
    Q is q-convex, so an optimal subset is a prefix in the order of p/q [Hu25].
    """

    scheme: ClassVar[str] = "with_replacement"
    title: ClassVar[str] = "with replacement"
    composition: ClassVar[Composition] = Composition(is_replaced=True)
    optimal_kernels: ClassVar[BatchRates] = BatchRates(
        kernel="with_replacement_rates",
        device="with_replacement",
        decides_on_device=True,
    )

    @property
    def independent_models(self) -> tuple[tuple[Distribution, int], ...]:
        return ((self.model, self.num_drafts),)

    def _containment(self, subset: Flags) -> float:
        inside = float(self.q[subset].sum())
        return min(inside, 1.0) ** self.num_drafts

    def exact_containment(self, subset: Any) -> Fraction:
        inside = self._as_subset(subset)
        mass = sum((x for x, i in zip(self.exact_q, inside, strict=True) if i), Fraction(0))
        require_short_powers([mass], self.num_drafts)
        return mass**self.num_drafts

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        return inverse_cdf(self.q, rng, (size, self.num_drafts))

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        return UniformIntervals.of_choices(*masses_in(self.q, tuples))

    def independent_places(self) -> list[tuple[list[int], Floats]]:
        return [(list(range(self.num_drafts)), self.q)]

    def drafted_mass(self, p: Floats) -> float:
        missed = np.log1p(-np.minimum(self.q, 1 - 1e-16))
        return -float((p * np.expm1(self.num_drafts * missed)).sum())

    def prefix_containment(self, order: Integers) -> Floats:
        inside = np.concatenate([[0.0], np.cumsum(self.q[order])])
        return np.minimum(inside, 1.0) ** self.num_drafts

    def prefix_slopes(self, order: Integers) -> Floats:
        # (b^K - a^K) / (b - a) as the sum of a^i b^(K-1-i)
        inside = np.minimum(np.concatenate([[0.0], np.cumsum(self.q[order])]), 1.0)
        before, after = inside[:-1], inside[1:]
        if self.num_drafts > _MAX_SUMMED_DRAFTS:
            return _power_slopes(before, after, self.num_drafts)
        slopes = np.ones(order.size)
        power = np.ones(order.size)
        for _ in range(self.num_drafts - 1):
            power *= before
            slopes = slopes * after + power
        return slopes

    def exact_prefix_containment(self, order: Sequence[int]) -> list[Fraction]:
        inside = [Fraction(0), *accumulate(self.exact_q[i] for i in order)]
        require_short_powers(inside, self.num_drafts)
        return [mass**self.num_drafts for mass in inside]

    def count_supports(self) -> tuple[int, int]:
        positive = int((self.q > 0).sum())
        return count_subsets(positive, range(1, min(self.num_drafts, positive) + 1))

    def require_listable(self) -> None:
        self._require_listable(int((self.q > 0).sum()), 1, MAX_TERMS)

    def support_law(self) -> SupportLaw:
        self.require_listable()
        tokens = np.flatnonzero(self.q > 0)
        groups = []
        for size in range(1, min(self.num_drafts, tokens.size) + 1):
            sets = tokens[subsets_of_size(tokens.size, size)]
            factors = self.q[sets]
            mass = np.zeros(len(sets))
            for counts in compositions(self.num_drafts, size):
                mass += multinomial(counts) * np.prod(factors ** np.array(counts), axis=1)
            groups.append((sets, mass))
        return SupportLaw.from_groups(self.vocab_size, groups)

    def exact_support_law(self) -> ExactSupportLaw:
        tokens = np.array([i for i, x in enumerate(self.exact_q) if x > 0])
        self._require_listable(tokens.size, self.num_drafts**2, MAX_EXACT_TERMS)
        law: ExactSupportLaw = {}
        for size in range(1, min(self.num_drafts, tokens.size) + 1):
            terms = [(multinomial(c), c) for c in compositions(self.num_drafts, size)]
            for members in tokens[subsets_of_size(tokens.size, size)].tolist():
                mass = Fraction(0)
                for coefficient, counts in terms:
                    term = Fraction(coefficient)
                    for i, count in zip(members, counts, strict=True):
                        term *= self.exact_q[i] ** count
                    mass += term
                law[tuple(members)] = mass
        return law

    def _require_listable(self, num_tokens: int, cost: int, limit: int) -> None:
        """Raise if a list is too long, at `cost` for each term, that is, multiset of drafts."""
        k, sizes = self.num_drafts, min(self.num_drafts, num_tokens)
        passes, _ = count_subsets(k - 1, range(sizes))
        if num_tokens > 1 and k > _MAX_LISTED_DRAFTS:
            passes = COUNTLESS
        terms = cost * count_choices(num_tokens + k - 1, k)
        subject = f"listing the draft sets of {self!r}"
        require_listable(subject, terms, limit)
        require_listable(subject, passes, MAX_PASSES // 10)


def _power_slopes(before: Floats, after: Floats, exponent: int) -> Floats:
    """Slopes (b^K - a^K) / (b - a), K a^(K-1) if a = b, by the relative step from b back to a."""
    step = np.divide(after - before, after, out=np.zeros_like(after), where=after > 0)
    with np.errstate(divide="ignore"):  # a step from zero: all of b^K
        rise = -np.expm1(exponent * np.log1p(-step))
    mean = np.divide(rise, step, out=np.full_like(step, float(exponent)), where=step > 0)
    return mean * after ** (exponent - 1)
