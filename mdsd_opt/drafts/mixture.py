"""A random choice among schemes: a random number of drafts, or with or without replacement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.scheme import (
    DraftScheme,
    Entry,
    EntryReader,
    IndependentDraws,
    PrefixDraftScheme,
    checked_draft_scheme,
)
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, masses_in, successive_masses_in
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
    title: ClassVar[str] = "mixture"
    entries: ClassVar[tuple[str, ...]] = ("masses", "components")

    def __new__(cls, components: Any = ()) -> MixtureDrafts:
        sorts = cls is MixtureDrafts and _share_an_order(components)
        return object.__new__(SortedMixtureDrafts if sorts else cls)

    def __init__(self, components: Sequence[tuple[Any, DraftScheme]]) -> None:
        try:
            masses, schemes = zip(*((mass, scheme) for mass, scheme in components), strict=True)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"components is {components!r:.60}: give [(probability, scheme), ...]"
            ) from None
        self._law = Distribution.of(list(masses), "the mixture weights")
        self.components = tuple(checked_draft_scheme(scheme, "a component") for scheme in schemes)
        sizes = sorted({component.vocab_size for component in self.components})
        if len(sizes) > 1:
            raise InvalidInput(f"the components have {sizes} tokens: they must share a vocabulary")
        self.vocab_size = sizes[0]
        self.num_drafts = max(component.num_drafts for component in self.components)

    @cached_property
    def mixture_weights(self) -> Numbers:
        """Weights m_c, shape (number of components,)."""
        return self._law.numbers(self.exact)

    def in_fractions(self) -> MixtureDrafts:
        return self._with_fractions(components=tuple(x.law(exact=True) for x in self.components))

    def mixture_parts(self) -> list[tuple[Any, DraftScheme]]:
        return list(zip(self.mixture_weights.tolist(), self.components, strict=True))

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        components = [component.to_entry(written) for component in self.components]
        return {"scheme": self.scheme, "masses": written(self._law), "components": components}

    @classmethod
    def from_entry(cls, entry: EntryReader) -> MixtureDrafts:
        masses = entry["masses"].vector()
        components = [x.scheme() for x in entry["components"].items()]
        if len(masses) != len(components):
            raise entry.error(f"has {len(components)} components and {len(masses)} masses")
        return cls(list(zip(masses, components, strict=True)))

    def with_finer_quadrature(self) -> DraftScheme:
        components = tuple(component.with_finer_quadrature() for component in self.components)
        if all(a is b for a, b in zip(components, self.components, strict=True)):
            return self
        result = copy(self)
        result.components = components
        return result

    def _containment(self, subset: Flags) -> Any:
        values = [component.containment(subset) for component in self.components]
        return self.mixture_weights @ values

    def prefix_containment(self, order: Integers) -> Numbers:
        curves = [component.prefix_containment(order) for component in self.components]
        return self.mixture_weights @ np.array(curves)

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        result = np.full((size, self.num_drafts), -1, dtype=np.int64)
        chosen = rng.choice(len(self.components), size=size, p=self.mixture_weights)
        for c, component in enumerate(self.components):
            rows = np.flatnonzero(chosen == c)
            result[rows, : component.num_drafts] = component.sample(rng, rows.size)
        return result

    def next_law(self, earlier: Integers) -> Floats:
        """Next law of each component, weighted by its probability given the drafts so far."""
        likelihood = self.mixture_weights.copy()
        laws = np.zeros((len(self.components), self.vocab_size))
        for c, component in enumerate(self.components):
            for k, token in enumerate(earlier.tolist()):
                likelihood[c] *= component.next_law(earlier[:k])[token]
            laws[c] = component.next_law(earlier)
        total = likelihood.sum()
        return np.asarray(likelihood @ laws / total) if total > 0 else laws[0] * 0

    def is_possible(self, tokens: Integers) -> bool:
        return any(
            mass > 0
            and bool((tokens[component.num_drafts :] == -1).all())
            and component._draws(tokens[: component.num_drafts])
            for mass, component in self.mixture_parts()
        )

    def drafted_mass(self, p: Floats) -> float:
        each = [component.drafted_mass(p) for component in self.components]
        return float(self.mixture_weights @ each)

    def propensity(self) -> Floats:
        each = [component.propensity() for component in self.components]
        return np.asarray(self.mixture_weights @ np.array(each))

    def independent_draws(self) -> list[IndependentDraws] | None:
        parts: list[IndependentDraws] = []
        for weight, component in self.mixture_parts():
            inner = component.independent_draws()
            if inner is None:
                return None
            parts += [(weight * share, draws) for share, draws in inner]
        return parts

    def count_supports(self) -> tuple[int, int]:
        counts = [component.count_supports() for component in self.components]
        return sum(n for n, _ in counts), sum(arcs for _, arcs in counts)

    def require_listable(self) -> None:
        for component in self.components:
            component.require_listable()

    def support_law(self) -> SupportLaw:
        merged: dict[tuple[int, ...], Any] = {}
        for m, component in self.mixture_parts():
            for members, mass in component.support_law().masses().items():
                merged[members] = merged.get(members, 0) + m * mass
        return SupportLaw.from_sets(self.vocab_size, merged)

    def count_tuples(self) -> int:
        return sum(component.count_tuples() for component in self.components)

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        tuples, masses = [], []
        for m, component in self.mixture_parts():
            drafts, mass = component.tuple_law()
            padding = np.full((len(drafts), self.num_drafts - drafts.shape[1]), -1, np.int32)
            tuples.append(np.concatenate([drafts, padding], axis=1))
            masses.append(m * mass)
        listed, mass = np.concatenate(tuples), np.concatenate(masses)
        if not self.exact:
            return listed, mass
        once: dict[tuple[int, ...], Any] = {}
        for row, share in zip(map(tuple, listed[mass > 0].tolist()), mass[mass > 0], strict=True):
            once[row] = once.get(row, 0) + share
        return np.array(list(once), dtype=np.int32), np.array(list(once.values()), dtype=object)

    def __repr__(self) -> str:
        return f"MixtureDrafts(vocab_size={self.vocab_size}, num_drafts={self.num_drafts})"


class SortedMixtureDrafts(MixtureDrafts, PrefixDraftScheme):
    """A mixture over one draft model, in which the order by p/q holds an optimal prefix."""

    components: tuple[WithReplacement | WithoutReplacement, ...]

    @property
    def q(self) -> Numbers:
        return self.components[0].q

    @property
    def weights(self) -> Numbers:
        return self.q

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        """Intervals with components weighted by the drafts so far; padding comes last."""
        size = len(tuples)
        below = np.zeros(tuples.shape)
        mass = np.zeros(tuples.shape)
        likelihood = np.tile(self.mixture_weights, (size, 1))
        laws = []
        for component in self.components:
            law_of = masses_in if isinstance(component, WithReplacement) else successive_masses_in
            laws.append(law_of(component.q, tuples[:, : component.num_drafts]))
        for k in range(self.num_drafts):
            total = likelihood.sum(axis=1)
            ended = tuples[:, k] == -1
            for c, component in enumerate(self.components):
                if k < component.num_drafts:
                    before, at = laws[c][0][:, k], laws[c][1][:, k]
                else:  # this component has stopped: everything but the padding comes before it
                    before, at = np.zeros(size), ended.astype(np.float64)
                before = np.where(ended, float(k < component.num_drafts), before)
                with np.errstate(invalid="ignore", divide="ignore"):
                    share = np.where(total > 0, likelihood[:, c] / total, 0.0)
                below[:, k] += share * before
                mass[:, k] += share * at
                likelihood[:, c] *= at
        return UniformIntervals.of_choices(below, mass)

    def prefix_slopes(self, order: Integers) -> Floats:
        curves = [component.prefix_slopes(order) for component in self.components]
        return self.mixture_weights @ np.array(curves)


def _share_an_order(components: Any) -> bool:
    """Whether all components draw from one q, and none drafts its whole support for certain."""
    try:
        schemes = [scheme for _, scheme in components]
    except (TypeError, ValueError):
        return False  # which the constructor says
    return bool(schemes) and all(
        isinstance(scheme, (WithReplacement, WithoutReplacement))
        and scheme.model.same_as(schemes[0].model)
        and not (isinstance(scheme, WithoutReplacement) and scheme.drafts_whole_support)
        for scheme in schemes
    )
