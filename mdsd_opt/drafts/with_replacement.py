"""K independent draws from one draft model."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.independent import ProductDrafts
from mdsd_opt.drafts.scheme import Composition, OneDraft, inverse_cdf
from mdsd_opt.drafts.support_law import (
    COUNTLESS,
    MAX_EXACT_TERMS,
    MAX_PASSES,
    MAX_TERMS,
    SupportLaw,
    compositions,
    count_choices,
    count_subsets,
    multinomial,
    require_listable,
    require_short_powers,
    subsets_of_size,
)
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, masses_in
from mdsd_opt.prefix_search import BatchRates, with_replacement_rates

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
        kernel=with_replacement_rates,
        device="with_replacement",
        decides_on_device=True,
    )

    @property
    def independent_models(self) -> tuple[tuple[Distribution, int], ...]:
        return ((self.model, self.num_drafts),)

    def _containment(self, subset: Flags) -> Any:
        inside = self.q[subset].sum()
        if self.exact:
            require_short_powers([inside], self.num_drafts)
        return min(inside, 1) ** self.num_drafts

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        return inverse_cdf(self.q, rng, (size, self.num_drafts))

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        return UniformIntervals.of_choices(*masses_in(self.q, tuples))

    def independent_places(self) -> list[tuple[list[int], Floats]]:
        return [(list(range(self.num_drafts)), self.q)]

    def drafted_mass(self, p: Floats) -> float:
        missed = np.log1p(-np.minimum(self.q, 1 - 1e-16))
        return -float((p * np.expm1(self.num_drafts * missed)).sum())

    def prefix_containment(self, order: Integers) -> Numbers:
        inside = np.concatenate([self.zeros(1), np.cumsum(self.q[order])])
        if self.exact:
            require_short_powers(inside.tolist(), self.num_drafts)
        return np.minimum(inside, 1) ** self.num_drafts

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

    def count_supports(self) -> tuple[int, int]:
        positive = int((self.q > 0).sum())
        return count_subsets(positive, range(1, min(self.num_drafts, positive) + 1))

    def require_listable(self) -> None:
        """Raise if there are too many draft sets, or multisets of drafts, to go through."""
        k, num_tokens = self.num_drafts, int(np.count_nonzero(self.q > 0))
        passes, _ = count_subsets(k - 1, range(min(k, num_tokens)))
        if num_tokens > 1 and k > _MAX_LISTED_DRAFTS:
            passes = COUNTLESS
        terms = count_choices(num_tokens + k - 1, k)
        subject = f"listing the draft sets of {self!r}"
        if self.exact:
            require_listable(subject, k**2 * terms, MAX_EXACT_TERMS)
        require_listable(subject, terms, MAX_TERMS)
        require_listable(subject, passes, MAX_PASSES // 10)

    def support_law(self) -> SupportLaw:
        self.require_listable()
        tokens = np.flatnonzero(self.q > 0)
        groups = []
        for size in range(1, min(self.num_drafts, tokens.size) + 1):
            sets = tokens[subsets_of_size(tokens.size, size)]
            factors = self.q[sets]
            mass = self.zeros(len(sets))
            for counts in compositions(self.num_drafts, size):
                powers = np.array(counts, dtype=factors.dtype)
                mass += multinomial(counts) * np.prod(factors**powers, axis=1)
            groups.append((sets, mass))
        return SupportLaw.from_groups(self.vocab_size, groups)


def _power_slopes(before: Floats, after: Floats, exponent: int) -> Floats:
    """Slopes (b^K - a^K) / (b - a), K a^(K-1) if a = b, by the relative step from b back to a."""
    step = np.divide(after - before, after, out=np.zeros_like(after), where=after > 0)
    with np.errstate(divide="ignore"):  # a step from zero: all of b^K
        rise = -np.expm1(exponent * np.log1p(-step))
    mean = np.divide(rise, step, out=np.full_like(step, float(exponent)), where=step > 0)
    return mean * after ** (exponent - 1)
