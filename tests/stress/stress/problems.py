"""Small problems of every draft scheme, each beside Q of all its subsets in Fractions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from support import oracles

from mdsd_opt import (
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
)
from mdsd_opt.drafts import DraftScheme
from stress import reference
from stress.weights import Weights, draw_beside, draw_weights, rational

Subsets = reference.Subsets


@dataclass(frozen=True)
class Drafts:
    """A scheme of the package, what it was made from, and its law by definition."""

    scheme: DraftScheme
    law: oracles.Law
    text: str
    model: Weights

    @cached_property
    def contained(self) -> Subsets:
        """Q of all subsets."""
        return reference.of_law(self.law, self.model.size)


@dataclass(frozen=True)
class Case:
    """A problem of the package beside the same problem in Fractions."""

    target: Weights
    drafts: Drafts

    @cached_property
    def problem(self) -> TransportProblem:
        return TransportProblem(self.target.given, self.drafts.scheme)

    @cached_property
    def optimum(self) -> Fraction:
        return reference.optimum(self.target, self.drafts.contained)

    def __str__(self) -> str:
        return f"TransportProblem({self.target}, {self.drafts.text})"


Builder = Callable[[np.random.Generator, Weights, int], Drafts]


def _with_replacement(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    law = oracles.with_replacement(q.exact, k)
    return Drafts(WithReplacement(q.given, k), law, f"WithReplacement({q}, {k})", q)


def _without_replacement(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    law = oracles.without_replacement(q.exact, k)
    return Drafts(WithoutReplacement(q.given, k), law, f"WithoutReplacement({q}, {k})", q)


def _likeliest(scheme: TopKDrafts | GreedyDrafts, q: Weights, count: int) -> tuple[int, ...]:
    """By the floats that are compared, ties to the lowest id."""
    return tuple(sorted(q.support, key=lambda i: (-scheme.q[i], i))[:count])


def _top_k(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    scheme = TopKDrafts(q.given, k)
    law = {_likeliest(scheme, q, k): Fraction(1)}
    return Drafts(scheme, law, f"TopKDrafts({q}, {k})", q)


def _greedy(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    scheme = GreedyDrafts(q.given, k)
    law = oracles.greedy(q.exact, k, _likeliest(scheme, q, k - 1))
    return Drafts(scheme, law, f"GreedyDrafts({q}, {k})", q)


def _independent(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    models = [q, *(draw_beside(rng, q) for _ in range(k - 1))]
    scheme = IndependentDrafts([m.given for m in models])
    text = f"IndependentDrafts([{', '.join(map(str, models))}])"
    return Drafts(scheme, oracles.independent([m.exact for m in models]), text, q)


def _set_law(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    """Any sets of at most k tokens, the empty one included."""
    sets = {
        tuple(sorted(set(rng.integers(0, q.size, rng.integers(0, k + 1)).tolist())))
        for _ in range(rng.integers(1, 7))
    }
    listed = sorted(sets)
    masses = draw_weights(rng, len(listed))
    law = {drafts: m for drafts, m in zip(listed, masses.exact, strict=True) if m}
    given = dict(zip(listed, masses.given, strict=True))
    text = f"DraftSetLaw({q.size}, { ({s: str(m) for s, m in given.items()})!r})"
    return Drafts(DraftSetLaw(q.size, given), law, text, q)


def _mixture(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    """Of one model, or of models that hardly or widely differ."""
    builders: tuple[Builder, ...] = (_with_replacement, _without_replacement)
    of_one_model = rng.random() < 0.6
    if not of_one_model:
        builders = (*builders, _independent, _set_law)
    parts = [
        builders[rng.integers(len(builders))](
            rng, q if of_one_model else draw_beside(rng, q), int(rng.integers(1, k + 1))
        )
        for _ in range(rng.integers(1, 4))
    ]
    masses = draw_weights(rng, len(parts))
    scheme = MixtureDrafts(list(zip(masses.given, [p.scheme for p in parts], strict=True)))
    law = oracles.mixture(masses.exact, [p.law for p in parts])
    text = f"MixtureDrafts(zip({masses}, [{', '.join(p.text for p in parts)}]))"
    return Drafts(scheme, law, text, q)


def _fixed_plus(rng: np.random.Generator, q: Weights, k: int) -> Drafts:
    builders = (
        _with_replacement, _without_replacement, _top_k, _greedy, _independent, _set_law, _mixture,
    )  # fmt: skip
    inner = builders[rng.integers(len(builders))](rng, q, k)
    size = int(rng.integers(0, min(q.size, 2) + 1))
    fixed = rng.choice(q.size, size, replace=False).tolist()
    law = {(*fixed, *drafts): mass for drafts, mass in inner.law.items()}
    text = f"FixedPlusDrafts({fixed}, {inner.text})"
    return Drafts(FixedPlusDrafts(fixed, inner.scheme), law, text, q)


BUILDERS: dict[str, Builder] = {
    "with replacement": _with_replacement,
    "without replacement": _without_replacement,
    "greedy": _greedy,
    "top-K": _top_k,
    "independent": _independent,
    "set law": _set_law,
    "mixture": _mixture,
    "fixed set beside another": _fixed_plus,
}

#: Vocabulary and largest K, so that all draft tuples can be listed.
SIZES = ((1, 3), (2, 5), (3, 4), (4, 3), (5, 2), (6, 2))


def draw_case(
    rng: np.random.Generator, scheme: str, sizes: tuple[tuple[int, int], ...] = SIZES
) -> Case:
    size, most = sizes[rng.integers(len(sizes))]
    k = int(rng.integers(1, most + 1))
    drafts = BUILDERS[scheme](rng, draw_weights(rng, size), k)
    if rng.random() < 0.15:
        return Case(_flat_target(rng, drafts), drafts)
    if rng.random() < 0.6:
        return Case(draw_beside(rng, drafts.model), drafts)
    return Case(draw_weights(rng, size), drafts)


def _flat_target(rng: np.random.Generator, drafts: Drafts) -> Weights:
    """P = Q on every prefix of some order: all of them are best at once, up to rounding."""
    order = rng.permutation(drafts.model.size).tolist()
    contained = drafts.contained
    masks = [reference.mask_of(order[:j]) for j in range(len(order) + 1)]
    steps = [Fraction(0)] * len(order)
    for j, i in enumerate(order):
        steps[i] = contained[masks[j + 1]] - contained[masks[j]]
    total = sum(steps)
    if not total:
        return rational([1] * len(order))
    exact = [x / total for x in steps]
    if rng.random() < 0.5 and all(x == 0 or x > 1e-290 for x in exact):
        return Weights.of(exact)
    return Weights.of(np.array([float(x) for x in exact]))
