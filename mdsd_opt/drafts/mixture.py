"""A random choice among schemes: a random number of drafts, or with or without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import Distribution
from mdsd_opt.drafts.base import DraftScheme, ExactSupportLaw, PrefixDraftScheme
from mdsd_opt.drafts.product_form import ProductForm, joined, product_form
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.with_replacement import WithReplacement
from mdsd_opt.drafts.without_replacement import WithoutReplacement
from mdsd_opt.errors import InvalidInput


class MixtureDrafts(DraftScheme):
    r"""With probability m_c, draft by component c: :math:`Q(H) = \sum_c m_c Q_c(H)`.

    A random number of drafts is the mixture of one scheme at several K. If all components draw,
    with or without replacement, from the same q, then q-convexity and the prefix order carry over:
    the object made is then a `PrefixDraftScheme`. Mixtures of independent draws, from whatever
    models, can be solved at any vocabulary; all others at sizes where draft sets can be listed.

    Parameters
    ----------
    components : sequence of (probability, scheme)
        Any schemes over one vocabulary.
    """

    scheme: ClassVar[str] = "mixture"

    def __new__(cls, components: Any = ()) -> MixtureDrafts:
        sorts = cls is MixtureDrafts and _share_an_order(components)
        return object.__new__(SortedMixtureDrafts if sorts else cls)

    def __init__(self, components: Sequence[tuple[Any, DraftScheme]]) -> None:
        if not components:
            raise InvalidInput("no component given: give [(probability, scheme), ...]")
        self._law = Distribution.of([mass for mass, _ in components], "the mixture weights")
        self.components = tuple(scheme for _, scheme in components)
        for component in self.components:
            if not isinstance(component, DraftScheme):
                raise InvalidInput(
                    f"a component is a {type(component).__name__}: give draft schemes such as "
                    "WithReplacement(q, num_drafts)"
                )
        sizes = sorted({component.vocab_size for component in self.components})
        if len(sizes) > 1:
            raise InvalidInput(f"the components have {sizes} tokens: they must share a vocabulary")
        self.vocab_size = sizes[0]
        self.num_drafts = max(component.num_drafts for component in self.components)

    @property
    def mixture_weights(self) -> NDArray[np.float64]:
        """m_c, shape (number of components,)."""
        return self._law.values

    @cached_property
    def exact_mixture_weights(self) -> tuple[Fraction, ...]:
        return self._law.exact()

    def rechecked(self) -> DraftScheme:
        components = tuple(component.rechecked() for component in self.components)
        if all(a is b for a, b in zip(components, self.components, strict=True)):
            return self
        result = copy(self)
        result.components = components
        return result

    def _containment(self, subset: NDArray[np.bool_]) -> float:
        values = [component.containment(subset) for component in self.components]
        return float(self.mixture_weights @ values)

    def exact_containment(self, subset: Any) -> Fraction:
        pairs = zip(self.exact_mixture_weights, self.components, strict=True)
        return sum((m * c.exact_containment(subset) for m, c in pairs), Fraction(0))

    def prefix_containment(self, order: NDArray[np.int64]) -> NDArray[np.float64]:
        curves = [component.prefix_containment(order) for component in self.components]
        result: NDArray[np.float64] = self.mixture_weights @ np.array(curves)
        return result

    def exact_prefix_containment(self, order: Sequence[int]) -> list[Fraction]:
        curves = [component.exact_prefix_containment(order) for component in self.components]
        return [
            sum(
                (m * x for m, x in zip(self.exact_mixture_weights, point, strict=True)), Fraction(0)
            )
            for point in zip(*curves, strict=True)
        ]

    def _sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        result = np.full((size, self.num_drafts), -1, dtype=np.int64)
        chosen = rng.choice(len(self.components), size=size, p=self.mixture_weights)
        for c, component in enumerate(self.components):
            rows = np.flatnonzero(chosen == c)
            result[rows, : component.num_drafts] = component.sample(rng, rows.size)
        return result

    def count_supports(self) -> tuple[int, int]:
        counts = [component.count_supports() for component in self.components]
        return sum(n for n, _ in counts), sum(arcs for _, arcs in counts)

    def support_law(self) -> SupportLaw:
        merged: dict[tuple[int, ...], float] = {}
        for m, component in zip(self.mixture_weights.tolist(), self.components, strict=True):
            law = component.support_law()
            for members, mass in zip(law.sets(), law.mass.tolist(), strict=True):
                merged[members] = merged.get(members, 0.0) + m * mass
        return SupportLaw.from_sets(self.vocab_size, merged)

    def exact_support_law(self) -> ExactSupportLaw:
        merged: ExactSupportLaw = {}
        for m, component in zip(self.exact_mixture_weights, self.components, strict=True):
            for members, mass in component.exact_support_law().items():
                merged[members] = merged.get(members, Fraction(0)) + m * mass
        return {members: mass for members, mass in merged.items() if mass > 0}

    def count_tuples(self) -> int:
        return sum(component.count_tuples() for component in self.components)

    def tuple_law(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        tuples, masses = [], []
        for m, component in zip(self.mixture_weights.tolist(), self.components, strict=True):
            drafts, mass = component.tuple_law()
            padding = np.full((len(drafts), self.num_drafts - drafts.shape[1]), -1, np.int32)
            tuples.append(np.concatenate([drafts, padding], axis=1))
            masses.append(m * mass)
        return np.concatenate(tuples), np.concatenate(masses)

    def exact_tuple_law(self) -> dict[tuple[int, ...], Fraction]:
        merged: dict[tuple[int, ...], Fraction] = {}
        for m, component in zip(self.exact_mixture_weights, self.components, strict=True):
            padding = (-1,) * (self.num_drafts - component.num_drafts)
            for key, mass in component.exact_tuple_law().items():
                merged[key + padding] = merged.get(key + padding, Fraction(0)) + m * mass
        return {key: mass for key, mass in merged.items() if mass > 0}

    def __repr__(self) -> str:
        return f"MixtureDrafts(vocab_size={self.vocab_size}, num_drafts={self.num_drafts})"


class SortedMixtureDrafts(MixtureDrafts, PrefixDraftScheme):
    """A mixture over one draft model, in which the order by p/q holds an optimal prefix."""

    components: tuple[WithReplacement | WithoutReplacement, ...]

    @property
    def q(self) -> NDArray[np.float64]:
        return self.components[0].q

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.q

    @property
    def exact_weights(self) -> tuple[Fraction, ...]:
        return self.components[0].exact_q

    def prefix_slopes(self, order: NDArray[np.int64]) -> NDArray[np.float64]:
        curves = [component.prefix_slopes(order) for component in self.components]
        result: NDArray[np.float64] = self.mixture_weights @ np.array(curves)
        return result


def _share_an_order(components: Any) -> bool:
    """Whether all draw from one q, and none drafts its whole support for certain."""
    try:
        schemes = [scheme for _, scheme in components]
    except (TypeError, ValueError):
        return False  # which the constructor says
    return bool(schemes) and all(
        isinstance(scheme, (WithReplacement, WithoutReplacement))
        and np.array_equal(scheme.q, schemes[0].q)
        and not (isinstance(scheme, WithoutReplacement) and scheme.drafts_whole_support)
        for scheme in schemes
    )


@product_form.register
def _mixed(drafts: MixtureDrafts, exact: bool = False) -> ProductForm | None:
    forms = [product_form(component, exact) for component in drafts.components]
    known = [form for form in forms if form is not None]
    if len(known) < len(forms):
        return None
    weights = (
        np.array(drafts.exact_mixture_weights, dtype=object) if exact else drafts.mixture_weights
    )
    return joined(known, weights)
