"""One draw from each of K different draft models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers, frozen
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.scheme import DraftScheme, Entry, EntryReader, inverse_cdf
from mdsd_opt.drafts.support_law import (
    COUNTLESS,
    MAX_EXACT_TERMS,
    MAX_PASSES,
    MAX_TERMS,
    SupportLaw,
    all_tuples,
    count_power,
    count_subsets,
    require_listable,
    subsets_of_size,
)
from mdsd_opt.errors import InvalidDistribution


class ProductDrafts(DraftScheme):
    """Scheme of K independent drafts: the law of a tuple is a product."""

    @property
    @abstractmethod
    def independent_models(self) -> tuple[tuple[Distribution, int], ...]: ...

    def _laws(self) -> list[Numbers]:
        """Law of each draft."""
        models = [(model.numbers(self.exact), count) for model, count in self.independent_models]
        return [q for q, count in models for _ in range(count)]

    def next_law(self, earlier: Integers) -> Floats:
        place = earlier.size
        for model, count in self.independent_models:
            if place < count:
                return model.values
            place -= count
        return np.zeros(self.vocab_size)

    def is_possible(self, tokens: Integers) -> bool:
        pairs = zip(self._laws(), tokens.tolist(), strict=True)
        return all(token >= 0 and q[token] > 0 for q, token in pairs)

    def count_tuples(self) -> int:
        return count_power(self.vocab_size, self.num_drafts)

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        tuples = self._listed_tuples()
        return tuples, np.prod([q[tuples[:, k]] for k, q in enumerate(self._laws())], axis=0)

    def _listed_tuples(self) -> NDArray[np.int32]:
        """Tuples that `tuple_law` lists: in Fractions those that can be drawn, else all."""
        terms = self.num_drafts
        for model, count in self.independent_models:
            choices = np.count_nonzero(model.numbers(True) > 0) if self.exact else self.vocab_size
            terms = min(terms * count_power(int(choices), count), COUNTLESS)
        require_listable(f"listing the draft tuples of {self!r}", terms, MAX_EXACT_TERMS)
        if not self.exact:
            return all_tuples(self.vocab_size, self.num_drafts)
        drawable = (np.flatnonzero(q > 0).tolist() for q in self._laws())
        return np.array(list(product(*drawable)), dtype=np.int32)


class IndependentDrafts(ProductDrafts):
    r"""K independent draws, one from each q_k: :math:`Q(H) = \prod_k q_k(H)`.

    Q is supermodular, but no fixed order of the tokens holds an optimal subset as a prefix.

    Parameters
    ----------
    draft_distributions : sequence of array_like, each of shape (V,)
        q_1 .. q_K.
    """

    scheme: ClassVar[str] = "independent"
    title: ClassVar[str] = "drawn independently"
    entries: ClassVar[tuple[str, ...]] = ("q",)
    has_many_models: ClassVar[bool] = True

    def __init__(self, draft_distributions: Sequence[Any]) -> None:
        if not isinstance(draft_distributions, Iterable):
            raise InvalidDistribution(
                f"the draft distributions are {draft_distributions!r}: give a list [q1, ..., qK]"
            )
        models = [Distribution.of(q, f"q[{k}]") for k, q in enumerate(draft_distributions)]
        if not models:
            raise InvalidDistribution("no draft distribution given: give a list [q1, ..., qK]")
        sizes = sorted({model.vocab_size for model in models})
        if len(sizes) > 1:
            raise InvalidDistribution(
                f"the draft distributions have {sizes} tokens: they must share one vocabulary"
            )
        self._models = tuple(models)
        self.num_drafts = len(models)
        self.vocab_size = sizes[0]

    @property
    def models(self) -> tuple[Distribution, ...]:
        return self._models

    @property
    def independent_models(self) -> tuple[tuple[Distribution, int], ...]:
        return tuple((model, 1) for model in self._models)

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        return {"scheme": self.scheme, "q": [written(model) for model in self._models]}

    @classmethod
    def from_entry(cls, entry: EntryReader) -> IndependentDrafts:
        return cls([x.law() for x in entry["q"].items()])

    @cached_property
    def q(self) -> Numbers:
        """Laws q_1 .. q_K, shape (K, V)."""
        return frozen(np.stack([model.numbers(self.exact) for model in self.models]))

    def in_fractions(self) -> IndependentDrafts:
        return self._with_fractions()

    @cached_property
    def support(self) -> Integers:
        """Tokens that some draft model can draw."""
        return np.flatnonzero((self.q > 0).any(axis=0))

    def _containment(self, subset: Flags) -> Any:
        return np.minimum(self.q[:, subset].sum(axis=1), 1).prod()

    def independent_places(self) -> list[tuple[list[int], Floats]]:
        return [([k], q) for k, q in enumerate(self.q)]

    def drafted_mass(self, p: Floats) -> float:
        return float(p @ (1.0 - np.prod(1.0 - self.q, axis=0)))

    def propensity(self) -> Floats:
        return np.asarray(self.q.mean(axis=0))

    def prefix_containment(self, order: Integers) -> Numbers:
        inside = self.zeros(self.num_drafts, order.size + 1)
        np.cumsum(self.q[:, order], axis=1, out=inside[:, 1:])
        return np.minimum(inside, 1).prod(axis=0)

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        return np.stack([inverse_cdf(q, rng, (size,)) for q in self.q], axis=1)

    def count_supports(self) -> tuple[int, int]:
        return count_subsets(
            self.support.size, range(1, min(self.num_drafts, self.support.size) + 1)
        )

    def require_listable(self) -> None:
        most = min(self.num_drafts, self.support.size)
        subject = f"listing the draft sets of {self!r}"
        require_listable(subject, count_power(self.support.size, self.num_drafts), MAX_TERMS)
        passes = sum(count_power(size, self.num_drafts) for size in range(1, most + 1))
        require_listable(subject, passes, MAX_PASSES)

    def support_law(self) -> SupportLaw:
        self.require_listable()
        groups = []
        for size in range(1, min(self.num_drafts, self.support.size) + 1):
            sets = self.support[subsets_of_size(self.support.size, size)]
            mass = self.zeros(len(sets))
            for columns in _surjections(self.num_drafts, size):
                mass += np.prod(
                    [q[sets[:, c]] for q, c in zip(self.q, columns, strict=True)], axis=0
                )
            groups.append((sets, mass))
        return SupportLaw.from_groups(self.vocab_size, groups)


def _surjections(num_drafts: int, size: int) -> Iterator[tuple[int, ...]]:
    """Assignments of drafts to columns such that each column of a set is taken by some draft."""
    for columns in product(range(size), repeat=num_drafts):
        if len(set(columns)) == size:
            yield columns
