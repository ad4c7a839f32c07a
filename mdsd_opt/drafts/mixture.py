"""A random choice among schemes that share one draft model: random K, or with/without."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import Distribution
from mdsd_opt.drafts.base import ExactSupportLaw, PrefixDraftScheme
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.with_replacement import WithReplacement
from mdsd_opt.drafts.without_replacement import WithoutReplacement
from mdsd_opt.errors import InvalidInput, UnsupportedScheme

Component = WithReplacement | WithoutReplacement


class MixtureDrafts(PrefixDraftScheme):
    r"""With probability m_c, draft by component c: :math:`Q(H) = \sum_c m_c Q_c(H)`.

    A random number of drafts is the mixture of one scheme at several K. All components draw, with
    or without replacement, from the same q, so q-convexity and the prefix order carry over.

    Parameters
    ----------
    components : sequence of (probability, scheme)
        Schemes `WithReplacement` or `WithoutReplacement` of one q.
    """

    scheme: ClassVar[str] = "mixture"

    def __init__(self, components: Sequence[tuple[Any, Component]]) -> None:
        if not components:
            raise InvalidInput("no component given: give [(probability, scheme), ...]")
        self._law = Distribution.of([mass for mass, _ in components], "the mixture weights")
        self.components = tuple(scheme for _, scheme in components)
        first = self.components[0]
        for component in self.components:
            if not isinstance(component, (WithReplacement, WithoutReplacement)):
                raise UnsupportedScheme(f"a mixture cannot hold {component!r}")
            if not np.array_equal(component.q, first.q):
                raise InvalidInput("the components of a mixture must draw from the same q")
            if isinstance(component, WithoutReplacement) and component.drafts_whole_support:
                raise UnsupportedScheme(
                    f"{component!r} drafts its whole support for certain, which has no prefix "
                    "order in common with the other components"
                )
        self.vocab_size = first.vocab_size
        self.num_drafts = max(component.num_drafts for component in self.components)

    @property
    def q(self) -> NDArray[np.float64]:
        return self.components[0].q

    @property
    def mixture_weights(self) -> NDArray[np.float64]:
        """m_c, shape (number of components,)."""
        return self._law.values

    @cached_property
    def exact_mixture_weights(self) -> tuple[Fraction, ...]:
        return self._law.exact()

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.q

    @property
    def exact_weights(self) -> tuple[Fraction, ...]:
        return self.components[0].exact_q

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

    def prefix_slopes(self, order: NDArray[np.int64]) -> NDArray[np.float64]:
        curves = [component.prefix_slopes(order) for component in self.components]
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
